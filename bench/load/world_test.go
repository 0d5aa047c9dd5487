package load

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/offloader/stores"
)

// tally counts by name.
type tally map[string]int

// String lists the counts, one a line.
func (t tally) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "  %-28s %d\n", name, t[name])
	}
	return b.String()
}

// world is one engine with its hosts.
type world struct {
	plan
	sims    []*sim.Device
	device  gpu.Device // of the engine and the hosts
	checker *check.Device
	points  enginetest.Failpoints
	engine  *kvactor.Engine
	pools   []kvactor.Pool
	handles []gpu.Pool
	places  [][]place
	store   *stores.Memory

	gate sync.RWMutex // a rebalance that a host asks for waits until no other is in a step

	mu       sync.Mutex // of what follows
	problems []string
	counts   tally
	prompts  []prompt // what has been stored, for prompts that share its beginning
}

// play plays a world from its opening to its end and returns what has happened and what was wrong.
func play(p plan) (tally, []string) {
	before := runtime.NumGoroutine()
	w := &world{plan: p, counts: tally{}}
	if p.withStore() {
		w.store = &stores.Memory{}
	}
	if err := w.open(); err != nil {
		w.problem("open: %v", err)
		return w.counts, w.problems
	}
	var wait sync.WaitGroup
	for i := range p.hosts {
		wait.Go(func() { newHost(w, i).play() })
	}
	wait.Wait()
	w.end()
	if w.store != nil && !w.stopped() {
		w.reopen()
	}
	w.settle(before)
	return w.counts, w.problems
}

// withStore tells whether the world has a store, for which it needs host memory.
func (p *plan) withStore() bool {
	tiers := func(c kvactor.PageCounts) bool { return c.Secondary > 0 }
	return p.store && slices.ContainsFunc(p.pages, tiers)
}

// open makes the devices and opens the engine.
func (w *world) open() error {
	w.sims = nil
	var ranks []gpu.Device
	for range w.ranks {
		d, err := sim.New(sim.Config{MemoryBytes: 16 << 20, Seed: w.schedule})
		if err != nil {
			return err
		}
		w.sims, ranks = append(w.sims, d), append(ranks, d)
	}
	w.device = ranks[0]
	if w.ranks > 1 {
		g, err := group.New(ranks...)
		if err != nil {
			return err
		}
		w.device = g
	}
	if w.checked {
		w.checker = check.Wrap(w.device, check.Options{})
		w.device = w.checker
	}
	config := kvactor.Config{Model: w.model, Cache: w.cache, Pages: w.pages, Device: w.device}
	engine, err := kvactor.Open(config, w.options()...)
	if err != nil {
		return err
	}
	w.engine, w.pools, w.handles, w.places = engine, engine.Pools(), engine.DevicePools(), nil
	for i := range w.pools {
		w.places = append(w.places, placesOf(&w.pools[i]))
	}
	return nil
}

// options are those of the engine.
func (w *world) options() []kvactor.Option {
	options := []kvactor.Option{
		enginetest.WithFailpoints(&w.points), actors.WithRestartLimit(1<<20, time.Second),
		actors.WithWaitingRoom(w.room),
	}
	if w.store != nil {
		options = append(options, actors.WithStore(actors.StoreConfig{
			Store: w.store, Model: "load", Save: actors.SavePolicy(w.seed % 3), SaveBytes: 1 << 20,
			BreakerFailures: -1,
		}))
	}
	if w.auto > 0 {
		options = append(options, actors.WithAutoRebalance(w.auto, func(r kvactor.Rebalanced) {
			w.count("moved by demand", 1)
			for _, moved := range r.Moved {
				w.count("pages moved by demand", len(moved))
			}
		}))
	}
	return options
}

// problem notes something that is wrong; the world stops soon.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 12 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// stopped tells whether something is wrong already.
func (w *world) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.problems) > 0
}

// count adds to a counter.
func (w *world) count(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name] += n
}

// remember keeps a prompt for others to begin with.
func (w *world) remember(p prompt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.prompts) < 64 {
		w.prompts = append(w.prompts, p)
		return
	}
	w.prompts[w.counts["remembered"]%64] = p
	w.counts["remembered"]++
}

// remembered draws one of the prompts that are remembered.
func (w *world) remembered(r *rand.Rand) (prompt, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.prompts) == 0 {
		return prompt{}, false
	}
	return w.prompts[r.IntN(len(w.prompts))], true
}

// drain lets the device do all that is queued.
func (w *world) drain() {
	for _, d := range w.sims {
		d.Drain()
	}
}

// watch ends the program when a world hangs, with the stacks of all goroutines.
func watch(p plan, b bounds, after time.Duration) *time.Timer {
	return time.AfterFunc(after, func() {
		fmt.Println(report(p, b, []string{fmt.Sprintf("hangs for %v", after)}))
		_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 2)
		os.Exit(3)
	})
}

// settle waits until the goroutines of the world are gone.
func (w *world) settle(before int) {
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			var b strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			w.problem("%d goroutines are left, there were %d before:\n%s",
				runtime.NumGoroutine(), before, b.String())
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// retried sends a call again while actors that were told to fail still do.
func (w *world) retried(call func(ctx context.Context) error) (err error) {
	for range 8 {
		if err = call(context.Background()); !transient(err) {
			return err
		}
	}
	return err
}
