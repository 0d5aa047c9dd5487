package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// plan is one run: the same plan is the same run.
type plan struct {
	seed  uint64
	steps int
	skip  map[int]bool // steps that are left out
	tell  bool         // keep a history
	// careless hosts do not wait for their tickets: a run must find them out.
	careless bool
}

// world is one engine with its device and hosts.
type world struct {
	plan
	setup
	rng     *rand.Rand // of the step at hand
	step    int
	sched   *mailbox.Scheduler
	sim     simgroup.Simulated
	device  *faultyDevice
	clock   *clock
	engine  *actors.Engine
	points  enginetest.Failpoints
	streams []gpu.Stream     // all but the engine's
	look    []host.Inspector // by rank
	layouts []host.Layout

	store *badStore // nil: none

	hosts    []*application
	flying   []*request // not answered
	answered []*request // not yet seen by their hosts
	pins     []messages.PinID
	past     []prompt // texts of sequences that have ended
	mirror   *events.Mirror
	totals   []inspect.TierPages // by pool; only Total, primary

	injected int  // panics asked for
	resizing bool // a rebalance has failed: the next statistics say what it has done
	lossy    bool // something has happened that may cost sequences
	treeLost bool // what is stored may have been lost, and pins
	dead     bool // the engine has failed, as it may
	failure  error
	hazards  []string
	history  []string
	counts   tally
}

// newWorld starts an engine.
func newWorld(p plan) (*world, error) {
	w := &world{plan: p, clock: &clock{}, counts: tally{}, mirror: events.NewMirror()}
	w.rng = rand.New(rand.NewPCG(p.seed, 1<<63))
	w.setup = drawSetup(w.rng, encodes(p.seed))
	w.ranks = groupOf(p.seed)
	if forecasts(p.seed) {
		w.cache.EvictionPolicy = windows.Forecast
	}
	if recurrent(p.seed) {
		addStates(&w.setup, w.rng)
		if statesAlone(p.seed) {
			dropAttention(&w.setup)
		}
	}
	options := addStore(w)
	watched.Store(w)
	w.sched = mailbox.NewChoosingScheduler(func(n int) int { return w.rng.IntN(n) })
	memory := int64(0)
	for i, pool := range w.pools {
		memory += pool.PageBytes() * int64(w.pages[i].Primary)
		w.layouts = append(w.layouts, host.NewLayout(pool))
		w.totals = append(w.totals, inspect.TierPages{Total: w.pages[i].Primary})
	}
	var err error
	if w.sim, err = simulate(sim.Config{MemoryBytes: memory, Seed: w.deviceSeed}, w.ranks,
		w.hazard); err != nil {
		return nil, err
	}
	if w.look, err = inspectors(w.sim); err != nil {
		return nil, err
	}
	w.device = &faultyDevice{Device: check.Wrap(w.sim, check.Options{OnProblem: w.hazard})}
	w.engine, err = actors.Spawn(system.Root, actors.Config{Model: w.model, Cache: w.cache,
		Pages: w.pages, Device: w.device}, append(options,
		enginetest.WithScheduler(w.sched), enginetest.WithFailpoints(&w.points),
		enginetest.WithFirstGeneration(0),
		actors.WithClock(w.clock.read), actors.WithMaxInFlight(w.inFlight),
		actors.WithRestartLimit(w.maxRestarts, 1000*time.Hour))...)
	if err != nil {
		return nil, err
	}
	for i := range w.setup.hosts {
		a, err := newApplication(w, i)
		if err != nil {
			return nil, err
		}
		w.hosts = append(w.hosts, a)
	}
	return w, nil
}

// run plays all steps and ends the engine. What it returns is the first thing
// that was not as it should be.
func run(p plan) (w *world, err error) {
	w, err = newWorld(p)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", p.seed, err)
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("step %d: panic outside the actors: %v\n%s", w.step, reason, stack())
		}
		w.end()
	}()
	for w.step = range p.steps {
		if p.skip[w.step] {
			continue
		}
		w.rng = rand.New(rand.NewPCG(p.seed, uint64(w.step)))
		w.play()
		if w.failure != nil || w.dead {
			break
		}
	}
	w.rng = rand.New(rand.NewPCG(p.seed, 1<<62))
	if w.failure == nil {
		w.finish()
	}
	if w.failure != nil {
		return w, fmt.Errorf("step %d: %w", w.step, w.failure)
	}
	return w, nil
}

func stack() string {
	buf := make([]byte, 1<<14)
	return string(buf[:runtime.Stack(buf, false)])
}

// quietEvery is the mean number of steps between two quiet points.
const quietEvery = 120

// play is one step.
func (w *world) play() {
	switch n := w.rng.IntN(1000); {
	case n < 1000/quietEvery:
		w.quiet()
	case n < 600:
		for range 1 + w.rng.IntN(6) {
			w.sched.Step()
		}
		if w.hasStore && w.rng.IntN(3) == 0 {
			w.store.fetchOn()
		}
	case n < 640:
		w.passTime()
	case n < 650:
		if !w.calm {
			w.fault()
		}
	case n < 700:
		w.observe()
	case n < 740 && w.hasStore:
		w.store.fetch()
	default:
		w.hosts[w.rng.IntN(len(w.hosts))].act()
	}
	w.hear()
}

// passTime moves the device's time, or the clock.
func (w *world) passTime() {
	switch w.rng.IntN(8) {
	case 0:
		jump := time.Duration(w.rng.IntN(400)) * time.Millisecond
		w.clock.now += jump
		w.tellf("clock +%v", jump)
	case 1:
		s := w.streams[w.rng.IntN(len(w.streams))]
		if w.rng.IntN(2) == 0 {
			s = gpu.Stream(1 + w.rng.IntN(4+len(w.streams)))
		}
		stall := time.Duration(w.rng.IntN(3_000_000))
		w.tellf("stream %d stalls %v", s, stall)
		w.counts.add("stalls", 1)
		w.fail(w.sim.Stall(s, stall))
	default:
		t := time.Duration(w.rng.IntN(200_000))
		w.tellf("device +%v", t)
		w.sim.Advance(t)
	}
}

// fault breaks something.
func (w *world) fault() {
	switch n := w.rng.IntN(11); n {
	case 0, 1, 2, 3, 4, 5:
		way, copies := gpu.Direction(n%3), 1+w.rng.IntN(3)
		w.sim.Fail(way, copies)
		w.counts.add("failing copies, "+way.String(), copies)
		if way == gpu.Local {
			w.lossy = true // beams that have followed their parents can't go back
		}
		w.tellf("next %d copies fail: %v", copies, way)
	case 6:
		w.device.lit = true
		w.panicNext("device")
	default:
		names := w.actors()
		name := names[w.rng.IntN(len(names))]
		if parts := w.rng.IntN(12) - 3; parts >= 0 {
			w.panicNext(fmt.Sprintf("%s after %d parts of a change", name, parts))
			w.treeLost = w.treeLost || name == "tree"
			w.injects(w.points.ArmWithin(name, parts))
			return
		}
		w.panicNext(name)
		w.injects(w.points.Arm(name))
	}
}

// injects hears whether the engine makes an actor panic: one that has failed does not.
func (w *world) injects(err error) {
	if code(err) == messages.ErrFailed && w.mayFail() {
		w.dead = true
		return
	}
	w.fail(err)
}

// actors are those that can be made to panic.
func (w *world) actors() []string {
	names := []string{"coordinator", "tree", "offloader", "events"}
	for _, p := range w.pools {
		names = append(names, "pool:"+p.Name)
	}
	if w.hasStore {
		names = append(names, "store")
	}
	return names
}

func (w *world) panicNext(name string) {
	w.injected++
	w.lossy = true
	actor, rest, _ := strings.Cut(name, " ")
	if i := strings.Index(actor, "pool:"); i >= 0 {
		actor = actor[:i] + "pool"
	}
	if rest != "" {
		actor += ", in a change"
	}
	w.counts.add("panics, "+actor, 1)
	w.tellf("%s panics next", name)
}

// panicked is told of every panic of an actor.
func (w *world) panicked(reason, stack string) {
	w.tellf("panic: %s", reason)
	if !strings.Contains(reason, onPurpose) && !strings.Contains(reason, "panic on request") {
		w.fail(fmt.Errorf("an actor panicked: %s\n%s", reason, stack))
	}
}

// hazard keeps what the hazard checker finds. A copy on write also takes along
// tokens that were appended and not computed, since they may be drafts that are
// written but not committed; where nothing has written them it copies nothing
// of worth, which does no harm.
func (w *world) hazard(problem string) {
	if !strings.Contains(problem, `copy "copy"`) || !strings.HasSuffix(problem,
		"reads what nothing has written") {
		w.hazards = append(w.hazards, problem)
	}
}

// fail keeps the first failure.
func (w *world) fail(err error) {
	if err != nil && w.failure == nil {
		w.failure = err
	}
}

func (w *world) failf(format string, args ...any) { w.fail(fmt.Errorf(format, args...)) }

// tellf adds a line to the history.
func (w *world) tellf(format string, args ...any) {
	if w.tell {
		w.history = append(w.history, fmt.Sprintf("%6d  ", w.step)+fmt.Sprintf(format, args...))
	}
}

// end stops the engine, whatever has become of it.
func (w *world) end() {
	patience := 5 * time.Second
	if w.failure != nil {
		patience = 10 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.store.endFetches()
	_, err := w.close(ctx)
	if w.failure == nil && !w.dead && !errors.Is(err, messages.ErrClosed) {
		w.fail(err)
	}
	w.fail(w.sim.Close())
	watched.Store(nil)
}

// close ends the engine while this goroutine runs its actors.
func (w *world) close(ctx context.Context) (leaked int, err error) {
	done := make(chan struct{})
	go func() {
		leaked, err = w.engine.Close(ctx)
		close(done)
	}()
	for {
		select {
		case <-done:
			return leaked, err
		default:
			if !w.sched.Step() {
				runtime.Gosched()
			}
		}
	}
}
