package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/watch"
	"github.com/kvactor/kvactor/cmd/demo/internal/workload"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// conversationFlags are the flags of `demo` alone.
type conversationFlags struct {
	conversations, hosts int
	chats                int // with a real model
	pages, hostPages     int // of each pool
	ranks                int // devices of a group; 0: one device
	seed                 uint64
	ahead                bool // offload_ahead
	store                storeFlag
	serve                string // address of the page; empty: none
	watcher              *watch.Watcher
}

func (f *conversationFlags) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.IntVar(&f.conversations, "conversations", workload.Default().Conversations,
		"`conversations` to play")
	flags.IntVar(&f.chats, "chats", 150, "`chats` to play with the real model afterwards; 0: none")
	flags.IntVar(&f.hosts, "hosts", 4, "`hosts` that share the engine, a goroutine each")
	flags.BoolVar(&f.ahead, "offload-ahead", true, "copy pages to host memory before they are needed")
	flags.IntVar(&f.ranks, "ranks", 0,
		"simulated `devices` that the model is divided between, under one engine (default: one)")
	flags.IntVar(&f.pages, "pages", 3000, "device `pages` of each pool")
	flags.IntVar(&f.hostPages, "host-pages", 4000, "host `pages` of each pool; 0: no offloading")
	flags.Uint64Var(&f.seed, "seed", workload.Default().Seed, "`seed` of the conversations")
	f.store.add(flags)
	flags.StringVar(&f.serve, "serve", "",
		"serve a page, metrics and events of the engine at an `address`, such as :8080, while it runs")
}

// maxRanks bounds the devices of a group: a machine has as many.
const maxRanks = 16

// check refuses counts that would take all memory by a slip of the finger.
func (f *conversationFlags) check() error {
	return cmp.Or(
		within("conversations", f.conversations, 1, 100_000), within("chats", f.chats, 0, 100_000),
		within("hosts", f.hosts, 1, 64), within("pages", f.pages, 256, 100_000),
		within("host-pages", f.hostPages, 0, 100_000), within("ranks", cmp.Or(f.ranks, 1), 1, maxRanks),
	)
}

// Sizes of the hosts' batches.
const (
	tokensPerBlock = 32
	hostRunning    = 16
	hostStepTokens = 1024
	hostChunk      = 512
)

// play is one run of the demo.
type play struct {
	rig     *engine.Rig
	preset  engine.Preset
	users   []*workload.Users
	servers []*serve.Server
	start   time.Time
	// closeStore closes the store, if there is one, behind the engine.
	closeStore func() error

	occupied [][]float64 // by pool: used and cached share of pages, over time
	used     [][]float64 // by pool: used share
}

func converse(c *cobra.Command, f *conversationFlags) (failed error) {
	if err := cmp.Or(notZero(c.Flags(), "ranks"), f.check()); err != nil {
		return statusError{err, statusUsage}
	}
	if f.serve != "" {
		w, err := watch.Start(f.serve, "demo", c.ErrOrStderr())
		if err != nil {
			return statusError{err, statusUsage}
		}
		defer w.Close()
		f.watcher = w
	}
	f.store.notes = c.ErrOrStderr()
	p, err := openPlay(c.Context(), f)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, p.closeStore()) }()
	requests := workload.Requests(p.users)
	fmt.Fprintf(c.ErrOrStderr(),
		"%d conversations, %d requests, %d hosts,\non a %s with %s of pages\n",
		f.conversations, requests, f.hosts, p.rig.Device.Info().Name, report.Bytes(p.pageMemory()))
	err = p.run(c.Context(), report.NewProgress(c.ErrOrStderr(), "demo", requests))
	if stopped := c.Context().Err(); stopped != nil && errors.Is(err, stopped) {
		return errors.Join(err, p.finish(c)) // shows what there is
	}
	if err != nil {
		_, shut := p.rig.Shutdown(context.WithoutCancel(c.Context()))
		return errors.Join(err, shut)
	}
	if err := p.finish(c); err != nil || f.chats == 0 {
		return err
	}
	return converseReally(c, f)
}

// openPlay starts the engine and the hosts.
func openPlay(ctx context.Context, f *conversationFlags) (*play, error) {
	preset := engine.Hybrid()
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = tokensPerBlock
	cache.MaxAttentionWindow = preset.Windows
	cache.OffloadAhead = f.ahead
	options := engine.Options{Model: preset.Model, Cache: cache, Ranks: f.ranks,
		Pages: windows.PageCounts{Primary: f.pages, Secondary: f.hostPages}}
	fetch, closeStore, err := f.attach(ctx, &options)
	if err != nil {
		return nil, err
	}
	if f.watcher != nil {
		options.Observer = f.watcher.Observer()
	}
	rig, err := engine.Open(options)
	if err != nil {
		return nil, errors.Join(err, closeStore())
	}
	plan := workload.Default()
	plan.Conversations, plan.Seed = f.conversations, f.seed
	p := &play{
		rig: rig, preset: preset, closeStore: closeStore, users: workload.Share(plan, f.hosts),
		start:    time.Now(),
		occupied: make([][]float64, len(rig.Pools)), used: make([][]float64, len(rig.Pools)),
	}
	for i, users := range p.users {
		server, err := serve.New(serve.Config{
			Rig: rig, Name: fmt.Sprintf("host %d", i), Model: preset.Costs, GPU: cost.H100(),
			MaxRunning: hostRunning, StepTokens: hostStepTokens, ChunkTokens: hostChunk, Fetch: fetch,
		}, users)
		if err != nil {
			return nil, err
		}
		p.servers = append(p.servers, server)
	}
	return p, nil
}

// simulatedModel names the simulated model in a store. Its pages are a function of the
// tokens, so engines of other processes may have them.
const simulatedModel = "demo converse, simulated"

// saveBytes bounds what waits to be written. The simulated hosts compute much faster than
// a GPU would, so that a store that keeps up with one does not with them.
const saveBytes = 2 << 30

// attach makes the engine use the store, if there is one. What is fetched comes to host
// pages first, so there must be some. fetch is how long admissions wait for it.
func (f *conversationFlags) attach(
	ctx context.Context, o *engine.Options,
) (fetch time.Duration, done func() error, err error) {
	if f.store.URL == "" {
		return 0, func() error { return nil }, nil
	}
	if f.hostPages == 0 {
		return 0, nil,
			statusError{errors.New("--store goes with --host-pages: what is fetched comes there first"),
				statusUsage}
	}
	config, err := f.store.open(ctx, simulatedModel)
	if err != nil {
		return 0, nil, statusError{err, statusUsage}
	}
	config.SaveBytes = saveBytes
	o.More = []actors.Option{actors.WithStore(config), f.store.logger()}
	return fetchTime, config.Store.Close, nil
}

// pageMemory is the device memory of all pools.
func (p *play) pageMemory() int64 {
	bytes := int64(0)
	for _, pool := range p.rig.Engine.Pools() {
		bytes += pool.PageBytes * int64(pool.PrimaryPages)
	}
	return bytes
}

// run starts the hosts and watches them.
func (p *play) run(ctx context.Context, progress *report.Progress) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(p.servers))
	for _, server := range p.servers {
		go func() { ended <- server.Run(ctx) }()
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var failed error
	for left := len(p.servers); left > 0; {
		select {
		case err := <-ended:
			left--
			if err != nil && failed == nil {
				failed = err
				cancel() // the others have nothing to wait for
			}
		case <-tick.C:
			if failed == nil && ctx.Err() == nil {
				failed = p.watch(ctx, progress)
			}
		}
	}
	progress.Done(p.answered(), "")
	return failed
}

func (p *play) answered() int {
	n := 0
	for _, u := range p.users {
		n += u.Answered()
	}
	return n
}

// watch takes a sample of the pools.
func (p *play) watch(ctx context.Context, progress *report.Progress) error {
	stats, err := p.rig.Stats(ctx)
	if err != nil {
		return err
	}
	for i, pool := range stats.Pools {
		total := float64(pool.Primary.Total)
		p.used[i] = append(p.used[i], float64(pool.Primary.Used)/total)
		p.occupied[i] = append(p.occupied[i], float64(pool.Primary.Used+pool.Primary.Cached)/total)
	}
	progress.Set(p.answered(), fmt.Sprintf("%d running, %s of tokens reused", stats.Sequences,
		report.Percent(stats.ReusedTokens, stats.PromptTokens)))
	return nil
}

var errProblems = errors.New("wrong bytes or broken invariants were found")

// stored waits until all is written and gives what the engine and its store have
// exchanged; nil without a store.
func (p *play) stored(ctx context.Context) (*actors.StoreStats, error) {
	store := actors.StoreOf(p.rig.Facade.Actors())
	if _, err := store.Flush(ctx, 0); errors.Is(err, messages.ErrNotSupported) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	stats := store.Stats()
	return &stats, nil
}

// finish prints the tables, checks everything and shuts the engine down.
func (p *play) finish(c *cobra.Command) error {
	wall := time.Since(p.start)
	stopped := c.Context().Err() != nil
	ctx := context.WithoutCancel(c.Context())
	stored, err := p.stored(ctx)
	if err != nil {
		return err
	}
	stats, err := p.rig.Stats(ctx)
	if err != nil {
		return err
	}
	checked, problems, err := p.rig.Verify(ctx)
	if err != nil {
		return err
	}
	device := p.rig.Now()
	leaked, err := p.rig.Shutdown(ctx)
	if err != nil {
		return err
	}
	if leaked > 0 && !stopped { // then what ran has its pages
		problems = append(problems, fmt.Sprintf("%d pages are still held by sequences", leaked))
	}
	var total serve.Totals
	for _, s := range p.servers {
		total.Add(s.Totals())
		problems = append(problems, s.Compute().Problems()...)
	}
	r := tables{command: c, play: p, stats: &stats, stored: stored, total: &total, device: device,
		checked: checked, problems: problems}
	if err := r.print(wall); err != nil {
		return err
	}
	if len(problems) > 0 {
		return errProblems
	}
	return nil
}
