package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Options say which engine to open.
type Options struct {
	Model windows.Model
	Cache windows.Config
	// Pages are the page counts of each pool, by PoolID.
	Pages []windows.Counts
	// Profile names the timing of the simulated device; "" is its default.
	Profile string
	// Spawn starts the engine; nil starts the real one.
	Spawn Spawn
}

// Setup is what an engine is started on.
type Setup struct {
	Model  windows.Model
	Cache  windows.Config
	Pages  []windows.Counts
	Pools  []windows.Pool
	Device gpu.Device
	Clock  func() time.Duration
}

// Spawn starts an engine; stop ends what the engine itself does not end when it
// is closed.
type Spawn func(Setup) (e Engine, stop func(), err error)

// Rig is an engine with the device under it and the meter around it.
type Rig struct {
	*Meter
	Device         gpu.Device
	Launcher       gpu.Launcher
	Sim            *sim.Device
	Pools          []windows.Pool
	Layouts        []host.Layout // by PoolID
	DevicePools    []gpu.Pool    // by PoolID
	TokensPerBlock int
	// Door and Running tell servers that share the engine when one is alone:
	// admissions hold Door for reading and count what they admit in Running;
	// whoever holds it for writing with Running 0 has the engine to itself.
	Door    sync.RWMutex
	Running atomic.Int64
	stop    func()
}

// Open starts an engine on a simulated device.
func Open(o Options) (*Rig, error) {
	pools, err := windows.Pools(o.Model, o.Cache)
	if err != nil {
		return nil, err
	}
	if len(pools) != len(o.Pages) {
		panic(fmt.Sprintf("engine: page counts for %d pools, the model has %d", len(o.Pages), len(pools)))
	}
	device, err := sim.New(sim.Config{
		MemoryBytes: deviceMemory(pools, o.Pages), Profile: o.Profile, Poison: sim.PoisonOff,
	})
	if err != nil {
		return nil, err
	}
	watched := &creations{Device: device, handles: map[string]gpu.Pool{}}
	spawn := o.Spawn
	if spawn == nil {
		spawn = spawnActors
	}
	e, stop, err := spawn(Setup{
		Model: o.Model, Cache: o.Cache, Pages: o.Pages, Pools: pools, Device: watched, Clock: device.Now,
	})
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	r := &Rig{
		Meter: NewMeter(e), Device: device, Launcher: device, Sim: device,
		Pools: pools, TokensPerBlock: o.Cache.TokensPerBlock, stop: stop,
	}
	for _, p := range pools {
		r.Layouts = append(r.Layouts, host.NewLayout(p, host.Whole))
		r.DevicePools = append(r.DevicePools, watched.handles[p.Name])
	}
	return r, nil
}

// deviceMemory is twice what the pages need, so that memory is never what an
// engine that was given page counts runs out of.
func deviceMemory(pools []windows.Pool, pages []windows.Counts) int64 {
	bytes := int64(1 << 20)
	for i, p := range pools {
		bytes += 2 * p.PageBytes() * int64(pages[i].Primary)
	}
	return bytes
}

// Now is the device's time.
func (r *Rig) Now() time.Duration { return r.Sim.Now() }

// Shutdown closes the engine and the device and tells what the engine leaked.
func (r *Rig) Shutdown(ctx context.Context) (leakedPages int, err error) {
	leakedPages, err = r.Close(ctx)
	if r.stop != nil {
		r.stop()
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
	read, err := r.reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	v := host.Verifier{Layouts: r.Layouts, Read: read}
	checkedPages, problems = v.Verify(host.Claims{Blocks: blocks})
	if err := r.Check(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return checkedPages, problems, nil
}

// reader gives the bytes of pages at rest. Device pages are seen by a kernel
// only; on this device their memory stays valid after it.
func (r *Rig) reader(ctx context.Context) (host.Read, error) {
	stream, err := r.Device.NewStream("verify")
	if err != nil {
		return nil, err
	}
	var device gpu.PageBytes
	ticket, err := r.Launcher.Launch(stream, gpu.Kernel{Label: "verify", Run: func(b gpu.PageBytes) { device = b }})
	if err != nil {
		return nil, err
	}
	if err := r.Device.Sync(ctx, ticket); err != nil {
		return nil, err
	}
	return func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
		return device(gpu.Slot{Pool: r.DevicePools[pool], Tier: tier, Page: page})
	}, nil
}

// creations watches which handles the pools of a device got, by name.
type creations struct {
	gpu.Device
	mu      sync.Mutex
	handles map[string]gpu.Pool
}

// CreatePool passes on and remembers.
func (c *creations) CreatePool(s gpu.PoolSpec) (gpu.Pool, error) {
	handle, err := c.Device.CreatePool(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.handles[s.Name] = handle
	}
	return handle, err
}

// Launch passes kernels on.
func (c *creations) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	return c.Device.(gpu.Launcher).Launch(s, k)
}
