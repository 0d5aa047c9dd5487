package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/windows"
)

// instance is one engine with the memory of its pages.
//
// sessions and idleSince are guarded by the mutex of engines.
type instance struct {
	key         string
	serial      int    // of instances of the daemon
	name        string // for clients: of no other instance, of other daemons neither
	fingerprint string
	private     bool
	geometry    *geometry
	engine      *kvactor.Engine
	device      *host.Device
	pools       []kvactor.Pool
	exports     []*host.Export
	describe    []*wire.Pool
	places      []*wire.GroupPlaces
	stores      bool // there is a store
	// saveBytes are the part of the memory for bytes on their way to the store.
	saveBytes int64
	observer  *observer.Observer

	sessions  int
	idleSince time.Time
	broken    atomic.Bool // the engine has failed; nobody else gets it

	ctx    context.Context // ends with the instance
	cancel context.CancelFunc

	mu      sync.Mutex
	fetches map[uint64]*fetch
	seed    maphash.Seed
	tasks   sync.WaitGroup // fetches
}

// stagingPart is which part of the memory contents of a store come to, unless
// host_cache_size says it.
const stagingPart = 8

// openInstance opens an engine with so many bytes of memory.
func openInstance(
	ctx context.Context, c *Config, g *geometry, o *wire.Open, bytes int64,
) (*instance, *wire.Error) {
	in := &instance{geometry: g, private: o.GetPrivate(), fetches: map[uint64]*fetch{},
		seed: maphash.MakeSeed()}
	in.ctx, in.cancel = context.WithCancel(context.WithoutCancel(ctx))
	in.observer = newObserver(c, o)
	in.observer.Adjust(&g.cache)
	counts, wrong := in.split(c, bytes)
	if wrong != nil {
		return nil, wrong
	}
	var device int64
	memory := make([]kvactor.PoolMemory, len(counts))
	for p := range counts {
		device += int64(counts[p].Primary) * in.pools[p].PageBytes()
		memory[p].Shared = true
	}
	var err error
	// Twice as much address space: sizes of pools are rounded to pages of the system.
	if in.device, err = host.New(host.Config{MemoryBytes: 2*device + systemRoom,
		Trace: in.observer.Transfer}); err != nil {
		return nil, errorf(codeMemory, "%v", err)
	}
	options := append(in.observed(c), actors.WithLogger(c.Log))
	if c.Store != nil && !in.private {
		store := *c.Store
		store.Model = o.GetFingerprint()
		store.SaveBytes = max(1, min(in.saveBytes, actors.DefaultSaveBytes))
		options, in.stores = append(options, actors.WithStore(store)), true
	}
	in.engine, err = kvactor.Open(kvactor.Config{
		Model: g.model, Cache: g.cache, Pages: counts, Memory: memory, Device: in.device,
	}, options...)
	if err != nil {
		return nil, refusal(errors.Join(err, in.device.Close()))
	}
	if err = in.share(); err == nil {
		err = in.observer.Attach(in.ctx, in.engine.Actors(), in.engine, in.pools)
	}
	if err != nil {
		return nil, refusal(errors.Join(err, in.close(ctx)))
	}
	return in, nil
}

// systemRoom is what the device may take beside the pages.
const systemRoom = 64 << 20

// split divides the memory between the pools and the tiers.
func (in *instance) split(c *Config, bytes int64) ([]kvactor.PageCounts, *wire.Error) {
	g := in.geometry
	var err error
	if in.pools, err = windows.Pools(g.model, g.cache); err != nil {
		return nil, refusal(err)
	}
	staging := g.cache.HostCacheSize
	if staging == 0 && c.Store != nil && !in.private {
		staging = bytes / stagingPart
	}
	counts := make([]kvactor.PageCounts, len(in.pools))
	primary, err := windows.Divide(in.pools, g.model, g.cache, bytes-staging)
	if err != nil {
		return nil, errorf(codeMemory, "%d bytes of memory: %v", bytes-staging, err)
	}
	var secondary []int
	if staging > 0 {
		uncapped := g.cache
		uncapped.MaxTokens = 0
		if secondary, err = windows.Divide(in.pools, g.model, uncapped, staging); err != nil {
			return nil, errorf(codeMemory, "%d bytes beside the memory, for contents of the store: %v",
				staging, err)
		}
	}
	for p := range counts {
		counts[p].Primary = primary[p]
		if secondary == nil {
			continue
		}
		n, wanted := kvactor.PageCounts{Primary: primary[p], Secondary: secondary[p]}, 0
		if c.Store != nil && !in.private {
			wanted = windows.MaxPages
		}
		h := windows.DivideHost(n, g.cache.OffloadAhead, wanted)
		counts[p].Secondary = h.Contents
		in.saveBytes += int64(h.Save) * in.pools[p].PageBytes()
	}
	return counts, nil
}

// share opens the files of the pools for other processes.
func (in *instance) share() error {
	for p, handle := range in.engine.DevicePools() {
		e, err := in.device.Export(handle)
		if err != nil {
			return err
		}
		in.exports = append(in.exports, e)
		pool := &in.pools[p]
		entry := &wire.Pool{
			Name: pool.Name, PageBytes: uint64(e.PageBytes), Pages: uint32(e.DevicePages),
			Bytes: uint64(e.SpaceBytes),
			Path:  fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), e.Device.Fd()),
		}
		if pool.Kind == kvactor.KindState {
			entry.Kind = wire.Kind_STATE
		}
		if !pool.Full() && pool.Kind == kvactor.KindAttention {
			entry.Window = uint32(pool.Window)
		}
		in.describe = append(in.describe, entry)
	}
	in.places = in.geometry.places(in.pools)
	return nil
}

// close ends the engine and gives the memory back. Processes that have mapped it keep what
// they have mapped.
func (in *instance) close(ctx context.Context) error {
	in.cancel()
	in.tasks.Wait()
	in.observer.Close(ctx)
	_, err := in.engine.Close(ctx)
	for _, e := range in.exports {
		err = errors.Join(err, e.Close())
	}
	return errors.Join(err, in.device.Close())
}

// wait returns when the tickets of a sequence have passed: its pages may be read and written.
func (in *instance) wait(ctx context.Context, s *kvactor.Sequence) error {
	for _, t := range s.Ready() {
		if in.device.Done(t) {
			continue
		}
		if err := in.device.Sync(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// note notes an error of the engine that ends it.
func (in *instance) note(err error) error {
	if errors.Is(err, kvactor.ErrFailed) || errors.Is(err, kvactor.ErrClosed) {
		in.broken.Store(true)
	}
	return err
}
