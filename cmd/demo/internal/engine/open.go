package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Options say which engine to open.
type Options struct {
	Model windows.Model
	Cache windows.Config
	Pages windows.PageCounts // of each pool
	Limit int64              // of the bytes of all pages; 0: none
	Watch Watch
	// Ranks is the number of devices of a tensor-parallel group that the model is divided
	// between; 0: one device, which is no group. Pages are then those of each.
	Ranks int
	// Clock is the engine's time; nil: the device's.
	Clock func() time.Duration
	// Observer watches the engine and the copies of its device until the rig stops; nil: none.
	Observer *observer.Observer
	More     []actors.Option // of the engine
}

// Watch says whether the device looks for mistakes of ordering.
type Watch int

// Unwatched is for measuring. Watched marks memory that no one has written and
// reports every access that nothing orders.
const (
	Unwatched Watch = iota
	Watched
)

// Rig is an engine with the device under it and the meter of its calls.
type Rig struct {
	Engine         // of Facade; tests and fleets put others before it
	Facade         *kvactor.Engine
	Meter          Meter
	Device         gpu.Device
	Launcher       gpu.Launcher
	Sim            simgroup.Simulated
	Pools          []windows.Pool
	Layouts        [][]host.Layout // by rank and PoolID
	TokensPerBlock int
	// Door and Running tell servers that share the engine when one is alone:
	// admissions hold Door for reading and count what they admit in Running;
	// whoever holds it for writing with Running 0 has the engine to itself.
	Door    sync.RWMutex
	Running atomic.Int64
	hazards *check.Device // nil: unwatched

	observer *observer.Observer // nil: none
}

// link is the profile of the simulated device: that of the GPU whose arithmetic
// package cost models.
const link = "h100-pcie5"

// Open starts an engine on a simulated device.
func Open(o Options) (*Rig, error) {
	var err error
	if o.Model, err = o.Model.OfRank(max(1, o.Ranks)); err != nil {
		return nil, err
	}
	pools, err := windows.Pools(o.Model, o.Cache)
	if err != nil {
		return nil, err
	}
	block := int64(0) // bytes of a page in each pool
	for _, p := range pools {
		block += p.PageBytes()
	}
	o.Cache.HostCacheSize = int64(o.Pages.Secondary) * block
	bytes := float64(block) * (float64(o.Pages.Primary) + float64(o.Pages.Secondary))
	if o.Limit > 0 && bytes > float64(o.Limit) {
		return nil, fmt.Errorf("%d + %d pages of each pool are %.0f GiB, which is over the limit of %d",
			o.Pages.Primary, o.Pages.Secondary, bytes/(1<<30), o.Limit>>30)
	}
	poison := sim.PoisonOff
	if o.Watch == Watched {
		poison = sim.PoisonOn
	}
	// Memory is twice what the pages need, so that it is never what an engine that was given page
	// counts runs out of.
	config := sim.Config{
		MemoryBytes: 1<<20 + 2*int64(o.Pages.Primary)*block, Profile: link, Poison: poison,
	}
	if o.Observer != nil {
		o.Observer.Adjust(&o.Cache)
		config.Trace = func(op sim.Operation) { transferred(o.Observer, op) }
	}
	device, err := simulate(config, o.Ranks)
	if err != nil {
		return nil, err
	}
	r := &Rig{Device: device, Launcher: device, Sim: device, Pools: pools,
		TokensPerBlock: o.Cache.TokensPerBlock, observer: o.Observer}
	if o.Watch == Watched {
		r.hazards = check.Wrap(device, check.Options{})
		r.Device, r.Launcher = r.hazards, r.hazards
	}
	if err := r.start(o); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return r, nil
}

// simulate makes the device, or the group of devices.
func simulate(c sim.Config, ranks int) (simgroup.Simulated, error) {
	if ranks == 0 {
		return sim.New(c)
	}
	return simgroup.New(simgroup.Config{Config: c, Ranks: ranks})
}

// transferred tells an observer of a copy of the simulated device.
func transferred(o *observer.Observer, op sim.Operation) {
	if op.Kind == "copy" {
		o.Transfer(gpu.Transfer{
			Stream: op.Stream, Label: op.Label, Copies: op.Copies, Bytes: op.Bytes, Submit: op.Submit,
			Start: op.Start, End: op.End,
		})
	}
}

// start starts the engine on the rig's device.
func (r *Rig) start(o Options) (err error) {
	clock, calls, options := r.Now, r.Meter.Observe, slices.Clip(o.More)
	if o.Clock != nil {
		clock = o.Clock
	}
	if w := o.Observer; w != nil {
		options = append(options, w.EngineOptions()...)
		calls = func(ctx context.Context, request messages.Request, began time.Time, err error) {
			w.Call(ctx, request, began, err)
			r.Meter.Observe(ctx, request, began, err)
		}
	}
	r.Facade, err = kvactor.Open(kvactor.Config{
		Model: o.Model, Cache: o.Cache, Device: r.Device,
		Pages: slices.Repeat([]windows.PageCounts{o.Pages}, len(r.Pools)),
	}, append(options, actors.WithClock(clock), actors.WithCallObserver(calls))...)
	if err != nil {
		return err
	}
	r.Engine = r.Facade.Actors()
	if w := o.Observer; w != nil {
		if err := w.Attach(context.Background(), r.Facade.Actors(), r.Facade, r.Pools); err != nil {
			_, closed := r.Facade.Close(context.Background())
			return errors.Join(err, closed)
		}
	}
	var layouts []host.Layout
	for _, p := range r.Pools {
		layouts = append(layouts, host.NewLayout(p))
	}
	for rank := range gpu.Ranks(r.Device) {
		r.Layouts = append(r.Layouts, host.OfRank(layouts, rank))
	}
	return nil
}

// Hazards are the accesses that nothing orders, found so far; none on a rig
// that is not watched.
func (r *Rig) Hazards() []string {
	if r.hazards == nil {
		return nil
	}
	return r.hazards.Problems()
}

// Now is the device's time.
func (r *Rig) Now() time.Duration { return r.Sim.Now() }

// Shutdown closes the engine and the device and tells what the engine leaked.
func (r *Rig) Shutdown(ctx context.Context) (leakedPages int, err error) {
	leakedPages, err = r.Facade.Close(ctx)
	if r.observer != nil {
		r.observer.Close(ctx)
	}
	return leakedPages, errors.Join(err, r.Device.Close())
}

// Verify waits for all transfers and checks every byte of every page that the
// tree claims to hold, in both tiers, and the engine's own invariants.
func (r *Rig) Verify(ctx context.Context) (checkedPages int, problems []string, err error) {
	r.Sim.Drain()
	blocks, err := r.Contents(ctx)
	if err != nil {
		return 0, nil, err
	}
	bytes, err := r.pageBytes(ctx)
	if err != nil {
		return 0, nil, err
	}
	handles := r.DevicePools()
	for rank, layouts := range r.Layouts {
		read := func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
			return bytes[rank](gpu.Slot{Pool: handles[pool], Tier: tier, Page: page})
		}
		v := host.Verifier{Layouts: layouts, Read: read}
		checked, wrong := v.Verify(host.Claims{Blocks: blocks})
		checkedPages, problems = checkedPages+checked, append(problems, wrong...)
	}
	if err := r.Check(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return checkedPages, problems, nil
}

// pageBytes gives the bytes of pages at rest, by rank. Device pages are shown to kernels
// only; on the simulated device what one has been shown stays valid.
func (r *Rig) pageBytes(ctx context.Context) ([]gpu.PageBytes, error) {
	stream, err := r.Sim.NewStream("look")
	if err != nil {
		return nil, err
	}
	bytes := make([]gpu.PageBytes, gpu.Ranks(r.Sim))
	ticket, err := r.Sim.Launch(stream, gpu.Kernel{Label: "look",
		RunRank: func(rank int, b gpu.PageBytes) { bytes[rank] = b }})
	if err != nil {
		return nil, err
	}
	err = r.Sim.Sync(ctx, ticket)
	return bytes, err
}

// Preset is a model as the engine sees it, and what computing it costs.
type Preset struct {
	Model   windows.Model
	Windows []int // max_attention_window; nil: full attention
	Costs   cost.Model
}

// longest is no limit: a sequence of replays may be as long as a trace says. A
// window as long is full attention.
const longest = 1 << 26

// Tiny is one layer with one head of two bytes: pages small enough for replays
// of whole traces, whose bytes still tell every token apart from others. Time
// is that of an 8B model.
func Tiny() Preset {
	return Preset{
		Model: windows.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 2, DType: windows.FP8,
			MaxSeqLen: longest},
		Costs: cost.Llama8B(),
	}
}

// Hybrid is shaped like Gemma-3: every sixth layer has full attention, the
// others a window, and query heads share KV heads. It is scaled down, in layers,
// heads and window, so that its pages fit a laptop; time is that of Gemma-3-12B.
func Hybrid() Preset {
	return Preset{
		Model: windows.Model{
			Layers: 12, KVHeads: []int{2}, HeadDim: 16, DType: windows.BFloat16, MaxSeqLen: 16384,
		},
		Windows: []int{512, 512, 512, 512, 512, longest},
		Costs:   cost.Gemma12B(),
	}
}
