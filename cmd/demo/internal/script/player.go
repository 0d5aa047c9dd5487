package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// player plays the host application: it gives sequences and pins their names,
// computes the KV of tokens on the compute stream, and remembers of each
// sequence what a host would.
type player struct {
	ctx     context.Context // that of the conversation
	rig     *Rig
	engine  Engine
	clock   *Clock
	writer  *host.Writer
	layouts []host.Layout

	tokensPerBlock, maxSeqLen int
	weights                   string // the epoch of what is computed

	sequences map[string]*sequence
	pins      map[string]messages.PinID

	memory *stores.Memory // nil: there is no store
	saved  int            // objects, since the last flush
}

// sequence is what a host remembers of a running sequence.
// computed ≤ written ≤ length; but for manual prefill, written = computed.
type sequence struct {
	id       messages.SequenceID
	manual   bool // the script commits
	prompt   int  // tokens
	chunk    int  // tokens; 0: none
	computed int  // committed tokens
	// written counts the tokens whose KV is in the pages. It runs ahead of
	// computed where sequences share pages and another one has written them.
	written int
	// stated counts the tokens after which the working pages hold the state; it is
	// computed, but while a commit is under way.
	stated int
	// checkpoints are the positions at which a commit makes a checkpoint.
	checkpoints []int
	// beams has the chain after each token, one list a beam.
	beams [][]host.Chain
	// ready is what the next kernel must wait for; last is the latest kernel
	// that touched the pages.
	ready []messages.Ticket
	last  messages.Ticket
	lost  error // it went down with an actor, and the engine has let it go
}

func (s *sequence) length() int { return len(s.beams[0]) }

func newPlayer(ctx context.Context, rig *Rig, setup Setup) *player {
	p := &player{
		ctx: ctx, rig: rig, engine: rig.Engine, clock: setup.Clock,
		tokensPerBlock: setup.Cache.TokensPerBlock, maxSeqLen: setup.Model.MaxSeqLen,
		weights:   setup.Weights,
		sequences: make(map[string]*sequence), pins: make(map[string]messages.PinID),
	}
	for _, pool := range setup.Pools {
		p.layouts = append(p.layouts, host.NewLayout(pool))
	}
	if setup.Store != nil {
		p.memory = setup.Store.Memory
	}
	p.writer = host.NewWriter(host.WriterConfig{
		Launcher: rig.Launcher, Stream: rig.Compute, Pools: rig.Pools, Layouts: p.layouts,
		NanosPerToken: nanosPerToken,
	})
	return p
}

// nanosPerToken is how long the simulated device computes a token: some ten
// thousand a second, as a large model's prefill does.
const nanosPerToken = 100_000

// named finds a running sequence.
func (p *player) named(name string) (*sequence, error) {
	s, ok := p.sequences[name]
	if !ok {
		return nil, refusals.New(messages.ErrUnknownSequence, "sequence %q is not running", name)
	}
	return s, s.lost
}

// vacant refuses the name of a running sequence. One that went down with an
// actor must be admitted again, so its name is vacant.
func (p *player) vacant(name string) error {
	s, ok := p.sequences[name]
	if !ok {
		return nil
	}
	if s.lost == nil {
		_, err := p.engine.TablesOf(p.ctx, s.id)
		_ = p.noticed(s, err)
	}
	if s.lost == nil {
		return duplicate(name)
	}
	delete(p.sequences, name)
	return nil
}

// noticed passes an error of a sequence on. One that was lost is released: its
// pages went down with it, and its name says so until it is used again.
func (p *player) noticed(s *sequence, err error) error {
	if s.lost == nil && errors.Is(err, messages.ErrSequenceLost) {
		s.lost = err
		// The answer says once more that it is lost.
		_, _ = p.engine.Release(p.ctx,
			[]messages.ReleaseStep{{Sequence: s.id, Discard: true, After: s.last}})
	}
	return err
}

func duplicate(name string) error {
	return refusals.New(codeDuplicateSequence, "sequence %q is running already", name)
}

// tooLong refuses lengths over max_seq_len.
func (p *player) tooLong(op string, tokens int64) error {
	if tokens <= int64(p.maxSeqLen) {
		return nil
	}
	return refusals.New(messages.ErrTooLong, "%s: %d tokens are over max_seq_len %d", op, tokens,
		p.maxSeqLen)
}

// names lists the running sequences in a fixed order.
func (p *player) names() []string { return slices.Sorted(maps.Keys(p.sequences)) }

// work is the KV of tokens [from, to) of one sequence, and with recurrent layers
// the state after to tokens.
type work struct {
	s        *sequence
	from, to int
	refused  bool // the engine will refuse its commit: nothing is computed
}

// states reports whether the working pages of the sequence are still to be brought
// to the end of the work. KV that a fork has written already is not computed again;
// a state is the sequence's own.
func (p *player) states(w work) bool { return p.recurrent() && w.s.stated < w.to }

// computes reports whether there is anything to compute.
func (p *player) computes(w work) bool { return !w.refused && (w.from < w.to || p.states(w)) }

// recurrent reports whether the model has recurrent layers.
func (p *player) recurrent() bool {
	return slices.ContainsFunc(p.layouts, func(l host.Layout) bool { return l.HoldsStates() })
}

// compute launches one kernel that computes the KV of all works, into the pages
// that the engine has given by now.
func (p *player) compute(label string, works []work) error {
	step := host.Step{Label: label}
	for _, w := range works {
		if !p.computes(w) {
			continue
		}
		tables, err := p.engine.TablesOf(p.ctx, w.s.id)
		if err != nil {
			return p.noticed(w.s, err)
		}
		step.Waits = append(step.Waits, w.s.ready...)
		step.States = append(step.States, p.stateUpdates(w, tables)...)
		for beam, chains := range w.s.beams {
			table := host.Beam(tables, beam)
			step.Reads = append(step.Reads, host.Span{Chains: chains, To: w.from, Table: table})
			step.Writes = append(step.Writes, host.Span{Chains: chains, From: w.from, To: w.to,
				Table: table})
		}
	}
	ticket, err := p.writer.Launch(step)
	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	for _, w := range works {
		if p.computes(w) {
			w.s.ready, w.s.last, w.s.written = nil, ticket, max(w.s.written, w.to)
			w.s.stated = w.to
		}
	}
	return nil
}

// stateUpdates are what a work does to the working pages of its sequence.
func (p *player) stateUpdates(w work, tables messages.Tables) (updates []host.StateUpdate) {
	if !p.states(w) {
		return nil
	}
	chains := w.s.beams[0]
	for pool := range p.layouts {
		if p.layouts[pool].HoldsStates() {
			updates = append(updates, host.StateUpdate{
				Pool: messages.PoolID(pool), Page: tables[pool][0][0],
				From: host.StateAfter(chains, w.s.stated), To: host.StateAfter(chains, w.to),
			})
		}
	}
	return updates
}

// commit computes and commits works in one engine step. With continues it is a
// part of the request that took the pages. The results are the engine's, in
// order.
func (p *player) commit(
	label string, works []work, continues continuation,
) ([]messages.StepResult, error) {
	if err := p.compute(label, works); err != nil {
		return nil, err
	}
	steps := make([]messages.CommitStep, len(works))
	for i, w := range works {
		steps[i] = messages.CommitStep{Sequence: w.s.id, Computed: w.to, After: w.s.last,
			SeparateRequest: continues != sameRequest}
	}
	results, err := p.engine.Commit(p.ctx, steps)
	for errors.Is(err, messages.ErrInternal) { // the kernels have run, and must not run again
		results, err = p.engine.Commit(p.ctx, steps)
	}
	p.waitForStore()
	if err != nil {
		return nil, err
	}
	for i, w := range works {
		if results[i].Err == nil {
			w.s.computed = w.to
			w.s.written = max(w.s.written, w.to)
			w.s.ready = append(w.s.ready, results[i].Ready...)
		}
	}
	return results, nil
}

// continuation says whether a commit is a request of its own.
type continuation uint8

const (
	ownRequest continuation = iota
	sameRequest
)

// tablesOf gives the page tables as they stand, for an answer.
func (p *player) tablesOf(s *sequence) (tables, error) {
	all, err := p.engine.TablesOf(p.ctx, s.id)
	if err != nil {
		return nil, p.noticed(s, err)
	}
	out := make(tables, len(all))
	for i, pool := range p.engine.Pools() {
		out[i].name, out[i].value = pool.Name, all[i]
		if len(all[i]) == 1 {
			out[i].value = all[i][0]
		}
	}
	return out, nil
}

// newPages names the pools of pages that were taken.
func (p *player) newPages(pages [][]messages.PageID) newPages {
	out := make(newPages, len(p.layouts))
	for i, pool := range p.engine.Pools() {
		out[i].name, out[i].value = pool.Name, []messages.PageID{}
		if i < len(pages) && pages[i] != nil {
			out[i].value = pages[i]
		}
	}
	return out
}

// bytes reads a page at rest, for the verifier.
func (p *player) bytes(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
	return p.rig.Bytes(gpu.Slot{Pool: p.rig.Pools[pool], Tier: tier, Page: page})
}
