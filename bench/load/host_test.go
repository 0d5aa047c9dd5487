package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
)

// chat is what a host keeps of a sequence.
type chat struct {
	prompt // as far as beam 0 goes
	seq    *kvactor.Sequence
	beams  [][]uint64 // the chain of each beam
	chunk  int
	// written is the number of tokens whose rows are in the pages: at least those that are
	// computed, and behind them drafts that are neither accepted nor dropped.
	written int
	encoded bool // the encoder's rows are in their pages
	spoiled bool // the state is ahead of the computed tokens
	last    kvactor.Ticket
	// waits are tickets of the sequence that no kernel has waited for yet. Sequence.Ready has
	// those since the last commit only, and a commit of drafts may come between an append
	// and the kernel that computes its tokens.
	waits []kvactor.Ticket
}

// host is one goroutine with sequences and a stream of its own.
type host struct {
	w       *world
	rand    *rand.Rand
	stream  gpu.Stream
	running []*chat
	pins    []kvactor.PinID
	inputs  kvactor.Inputs
}

func newHost(w *world, number int) *host {
	h := &host{w: w, rand: rand.New(rand.NewPCG(w.seed, uint64(number)+100))}
	stream, err := w.device.NewStream(fmt.Sprintf("host-%d", number))
	if err != nil {
		w.problem("stream: %v", err)
	}
	h.stream = stream
	return h
}

// play takes steps, then releases all that the host holds.
func (h *host) play() {
	for range h.w.plan.steps {
		if h.w.stopped() {
			break
		}
		if h.w.rebalance && h.rand.IntN(12) == 0 {
			h.w.gate.Lock()
			h.move()
			h.w.gate.Unlock()
		}
		h.w.gate.RLock()
		h.step()
		h.w.gate.RUnlock()
	}
	h.w.gate.RLock()
	defer h.w.gate.RUnlock()
	h.release(h.running...)
	for _, pin := range h.pins {
		h.unpin(pin)
	}
}

// step is one turn of the host.
func (h *host) step() {
	switch n := h.rand.IntN(100); {
	case n < 18 && len(h.running) < 6:
		h.admit()
	case n < 72:
		h.advance()
	case n < 77:
		h.fork()
	case n < 83 && len(h.running) > 0:
		h.release(h.one())
	case n < 93:
		h.ask()
	case n < 97:
		h.fault()
	default:
		h.wait()
	}
}

// one draws a running sequence.
func (h *host) one() *chat { return h.running[h.rand.IntN(len(h.running))] }

// wait lets time of the device pass: until a kernel has ended, or a little.
func (h *host) wait() {
	if len(h.running) > 0 && h.rand.IntN(2) == 0 {
		if c := h.one(); c.last != (kvactor.Ticket{}) {
			if err := h.w.device.Sync(context.Background(), c.last); err != nil {
				h.w.problem("sync: %v", err)
			}
		}
		return
	}
	for _, d := range h.w.sims {
		d.Advance(time.Duration(h.rand.IntN(20_000)))
	}
}

// transient tells of errors after which the same call is sent again.
func transient(err error) bool {
	return errors.Is(err, kvactor.ErrInternal) || errors.Is(err, kvactor.ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// context is that of a call: in some worlds it ends soon, or has ended.
func (h *host) context() (context.Context, context.CancelFunc) {
	if h.w.cancel && h.rand.IntN(12) == 0 {
		after := time.Duration(h.rand.IntN(60)) * time.Microsecond
		return context.WithTimeout(context.Background(), after)
	}
	return context.WithCancel(context.Background())
}

// call sends a request that is no batch of steps, again while its error is transient.
func (h *host) call(name string, call func(ctx context.Context) error) error {
	ctx, cancel := h.context()
	defer cancel()
	err := call(ctx)
	for try := 0; transient(err) && try < 3; try++ {
		err = call(context.Background())
	}
	h.w.count(name+outcome(err), 1)
	return err
}

// batchCall is a method of the engine that takes a batch of steps.
type batchCall func(context.Context, []kvactor.Step) error

// steps sends a batch, and those of its steps again whose errors are transient.
func (h *host) steps(name string, steps []kvactor.Step, send batchCall) {
	if len(steps) == 0 {
		return
	}
	ctx, cancel := h.context()
	defer cancel()
	_ = send(ctx, steps)
	for range 3 {
		var again []kvactor.Step
		for _, st := range steps {
			if transient(st.Err) {
				again = append(again, st)
			}
		}
		if len(again) == 0 {
			break
		}
		_ = send(context.Background(), again)
		for i := range steps {
			if transient(steps[i].Err) {
				steps[i], again = again[0], again[1:]
			}
		}
	}
	for _, st := range steps {
		h.w.count(name+outcome(st.Err), 1)
	}
}

// outcome names an error for the counts.
func outcome(err error) string {
	var refusal *kvactor.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return fmt.Sprintf(", %v", refusal.Code)
	}
	return ", other error"
}

// faulty tells whether an error may come in a world with faults; others are problems.
func (h *host) faulty(err error) bool {
	faulty := errors.Is(err, kvactor.ErrInternal) || errors.Is(err, kvactor.ErrSequenceLost)
	return faulty && (h.w.copies || h.w.panics)
}

// fault makes copies or an actor fail.
func (h *host) fault() {
	if h.w.copies {
		d := h.w.sims[h.rand.IntN(len(h.w.sims))]
		d.Fail(gpu.Direction(h.rand.IntN(int(gpu.Directions))), 1+h.rand.IntN(3))
		h.w.count("copies made to fail", 1)
	}
	if !h.w.panics {
		return
	}
	actors := []string{"coordinator", "coordinator", "tree", "offloader"}
	for i := range h.w.pools {
		actors = append(actors, "pool:"+h.w.pools[i].Name)
	}
	actor := actors[h.rand.IntN(len(actors))]
	err := h.w.points.Arm(actor)
	if h.rand.IntN(3) > 0 {
		err = h.w.points.ArmWithin(actor, h.rand.IntN(8))
	}
	if err != nil {
		h.w.problem("fault: %v", err)
	}
	h.w.count("panics", 1)
}

// move moves memory between pools. No other host is in a step.
func (h *host) move() {
	err := h.call("rebalance", func(ctx context.Context) error {
		if h.rand.IntN(2) == 0 {
			_, err := h.w.engine.Rebalance(ctx, nil)
			return err
		}
		stats, err := h.w.engine.Stats(ctx)
		if err != nil || len(stats.Pools) < 2 {
			return err
		}
		sizes := make([]int, len(stats.Pools))
		for i := range sizes {
			sizes[i] = stats.Pools[i].Primary.Total
			if h.w.pools[i].Kind != kvactor.KindCross {
				sizes[i] = max(2, sizes[i]+h.rand.IntN(9)-4)
			}
		}
		_, err = h.w.engine.Resize(ctx, sizes)
		return err
	})
	if err != nil && !errors.Is(err, kvactor.ErrOutOfPages) && !h.faulty(err) {
		h.w.problem("rebalance: %v", err)
	}
}

// release ends sequences. The host may drop some from its list that it works on.
func (h *host) release(list ...*chat) {
	list = slices.Clone(list)
	steps := make([]kvactor.Step, len(list))
	for i, c := range list {
		discard := c.spoiled || h.rand.IntN(8) == 0
		steps[i] = kvactor.Step{Sequence: c.seq, After: c.last, Discard: discard}
		drafts := c.written - c.seq.Computed()
		if drafts > 0 && !discard && len(c.beams) == 1 && c.chunk == 0 && !h.w.model.Recurrent() {
			steps[i].Computed = c.written - h.rand.IntN(drafts+1)
		}
	}
	h.steps("release", steps, h.w.engine.Release)
	for i, c := range list {
		err := steps[i].Err
		gone := h.w.panics && errors.Is(err, kvactor.ErrUnknownSequence)
		if err != nil && !gone && !h.faulty(err) {
			h.w.problem("release of %v: %v", c.seq.ID(), err)
		}
		computed := max(c.seq.Computed(), steps[i].Computed)
		if c.tokens = c.tokens[:min(computed, len(c.tokens))]; len(c.tokens) > 0 {
			c.items = inside(c.items, len(c.tokens))
			h.w.remember(c.prompt)
		}
		h.running = slices.DeleteFunc(h.running, func(o *chat) bool { return o == c })
	}
}
