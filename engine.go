package kvactor

import (
	"context"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Config is what an engine is made of.
type Config struct {
	Model Model
	// Cache starts from DefaultCache, or has the fields alone that differ from it.
	Cache CacheConfig
	// Pages are the numbers of pages of each pool, in device and in host memory, in the
	// order of windows.Pools(Model, Cache); Cache.HostCacheSize then has no effect. With
	// nil the engine divides the device's free memory, and Cache.HostCacheSize, as Cache
	// says. If Cache sets neither ExpectedSeqLen nor PoolFractions, a model with limited
	// windows or recurrent states gets memory for long and for many short sequences: see
	// CacheConfig.ForMixedLengths.
	Pages []PageCounts
	// Memory says for each pool, in the same order, where its pages lie: in memory of the
	// host's, such as its own KV tensors, or in memory that other processes can map. With
	// nil, or a zero PoolMemory, the pool lies in memory that the engine takes from the
	// device. Memory needs Pages, and pools in tensors are not resized.
	Memory []PoolMemory
	// Device holds the pages and outlives the engine: gpu/host is the machine's memory,
	// gpu/cuda drives NVIDIA's devices, and gpu/sim simulates one.
	Device gpu.Device
	// Weights names the weights of the model that the engine begins with; SetWeights changes
	// it. Engines that share a store reuse only what was computed under the same name. A host
	// whose weights never change while the engine runs leaves it empty, and names them in
	// actors.StoreConfig and actors.HandoverConfig.
	Weights string
	// Parent starts the engine under an actor system of the host's, by its root context, or as
	// the child of an actor, by that actor's context. With nil the engine has a system of its own,
	// which Close ends.
	Parent actor.SpawnerContext
}

// Option sets a collaborator or a bound of an engine. Package actors makes them: WithLogger,
// WithStore, WithClock, WithWaitingRoom, WithAutoRebalance, WithCallObserver and others;
// package actors/enginetest has more, for tests. An engine of this package tells its sequences of
// pages that WithAutoRebalance has moved, so its function may be nil.
type Option = actors.Option

// Engine is a running cache. Its methods may be called from any number of goroutines,
// but a Sequence is in one call at a time.
type Engine struct {
	below  *actors.Engine
	system *actor.ActorSystem // the engine's own; nil with Config.Parent
	ended  sync.Once          // of system
	pools  []Pool
	events bool // are kept

	appends, commits sync.Pool // of records that are not in use
	prompts          sync.Pool // of prompts that no sequence has

	mu      sync.Mutex
	running map[SequenceID]*Sequence
	slots   int32   // that sequences have had
	free    []int32 // those of them that none has
}

// enter makes a sequence known. It is called under mu.
func (e *Engine) enter(s *Sequence) {
	if n := len(e.free); n > 0 {
		s.slot, e.free = e.free[n-1], e.free[:n-1]
	} else {
		s.slot = e.slots
		e.slots++
	}
	e.running[s.id] = s
}

// leave forgets a sequence that has ended. It is called under mu.
func (e *Engine) leave(s *Sequence) {
	if e.running[s.id] == s {
		delete(e.running, s.id)
		e.free = append(e.free, s.slot)
		if s.tokens.holders--; s.tokens.holders == 0 {
			e.prompts.Put(s.tokens)
		}
		s.tokens = nil
	}
}

// Open starts an engine. It takes the device memory of the pools before it returns;
// Close gives it back. ErrConfigInvalid names all fields of the configuration that are
// wrong, and ErrNotSupported what the engine cannot serve.
func Open(config Config, list ...Option) (*Engine, error) {
	config.Cache = config.Cache.WithDefaults()
	if err := config.useless(); err != nil {
		return nil, err
	}
	e, parent := &Engine{running: map[SequenceID]*Sequence{}}, config.Parent
	if parent == nil {
		e.system = actors.NewSystem(actors.LoggerOf(list))
		parent = e.system.Root
	}
	// The last, so that the tables have followed when the host's function is called.
	follow := actors.WithRenumbering(func(r Rebalanced) { e.renumber(r.Moved) })
	list = append(slices.Clip(list), follow)
	var err error
	e.below, err = actors.Spawn(parent, actors.Config{
		Model: config.Model, Cache: config.Cache, Pages: config.Pages, Memory: config.Memory,
		Device: config.Device, Weights: config.Weights,
	}, list...)
	if err != nil {
		e.endSystem()
		return nil, err
	}
	e.pools, e.events = e.below.Shapes(), config.Cache.EventBufferMaxSize > 0
	return e, nil
}

// useless refuses what cannot do what it asks for.
func (c *Config) useless() error {
	if reason := c.Cache.UnusedHostCache(); reason != "" && c.Pages == nil {
		return refusals.New(ErrConfigInvalid, "%s", reason)
	}
	return nil
}

func (e *Engine) endSystem() {
	if e.system != nil {
		e.ended.Do(e.system.Shutdown)
	}
}

// Close serves the calls that were accepted, waits for every ticket that the engine was
// given, and gives the device memory back. It returns the number of device pages that
// sequences still held. If ctx ends before, Close returns its error within a tenth of a
// second and keeps memory that may still be in use; another Close goes on from there.
func (e *Engine) Close(ctx context.Context) (leakedPages int, err error) {
	leakedPages, err = e.below.Close(ctx)
	if err == nil {
		e.endSystem()
	}
	return leakedPages, err
}

// Actors returns the engine of package actors that this one is made of.
func (e *Engine) Actors() *actors.Engine { return e.below }

// Pools describes the pools, by PoolID: windows, layers, and where rows lie in a page.
// Stats has their page counts. The slice is the caller's.
func (e *Engine) Pools() []Pool { return e.below.Shapes() }

// View locates a part of a layer, by its number in the model: the pool whose pages have it, and
// where it lies in a page. It returns false if no page has it. For a layer with both self attention
// and cross attention it locates the part of self attention; Pool.View of the last pool locates the
// other.
func (e *Engine) View(layer int, part Part) (PoolID, View, bool) {
	for p := range e.pools {
		pool := &e.pools[p]
		if v, ok := pool.View(slices.Index(pool.Layers, layer), part); ok {
			return PoolID(p), v, true
		}
	}
	return 0, View{}, false
}

// DevicePools returns the device's handles of the pools, by PoolID, for kernels.
func (e *Engine) DevicePools() []gpu.Pool { return e.below.DevicePools() }

// Validate checks the values of an admission, and nothing that depends on what the cache
// holds. Its errors are ErrBadRequest and ErrNotSupported, and name the field. Lengths
// are left to Admit (ErrTooLong).
func (e *Engine) Validate(r AdmitRequest) error { return e.below.Validate(r) }

// Lookup returns how many tokens of a prefix an admission would reuse now, and on which
// tier they are. It changes nothing, not even when a block was last used.
func (e *Engine) Lookup(ctx context.Context, p Prefix) (Found, error) {
	return e.below.Lookup(ctx, p)
}

// Prefetch copies the blocks of a prefix to the device that are only in host memory, all
// or none (ErrOutOfPages), and returns the number of pages, over all pools. It does not
// wait for the copies: an admission that reuses the blocks gets their tickets. With the
// eviction policy forecast the blocks of the prefix are evicted after all others of their
// priority, until they are used.
func (e *Engine) Prefetch(ctx context.Context, p Prefix) (pages int, err error) {
	return e.below.Prefetch(ctx, p)
}

// Pin protects the stored whole blocks of a prefix from eviction until Unpin, on the tier where
// each is. It returns the number of tokens that are protected, which may be 0. Pinned pages do not
// count as available: a pin of pages that chunked prefills have reserved is refused
// (ErrOutOfPages).
func (e *Engine) Pin(ctx context.Context, p Prefix) (Pinned, error) { return e.below.Pin(ctx, p) }

// Unpin ends a pin. The blocks stay until they are evicted. ErrUnknownPin: it has ended.
func (e *Engine) Unpin(ctx context.Context, pin PinID) error { return e.below.Unpin(ctx, pin) }

// Invalidate forgets the stored blocks that match a selector, and returns their number. Running
// sequences that match keep their pages, and store nothing from now on. A store keeps what it has:
// see messages.Invalidate. A selector with no field set, or with several, is ErrBadRequest.
func (e *Engine) Invalidate(ctx context.Context, s Selector) (blocks int, err error) {
	return e.below.Invalidate(ctx, s)
}

// Reset forgets every stored block that no sequence holds.
func (e *Engine) Reset(ctx context.Context) error { return e.below.Reset(ctx) }

// ResetRunning forgets every stored block. Running sequences go on with their pages, and store
// nothing from now on.
func (e *Engine) ResetRunning(ctx context.Context) error { return e.below.ResetRunning(ctx) }

// SetWeights says that the weights of the model have changed, and names them. All that is stored is
// forgotten as by ResetRunning, and nothing that was computed under another name is reused: from no
// tier, no store and no other engine. A store keeps it, and finds it again under its name. Setting
// the present name again changes nothing.
func (e *Engine) SetWeights(ctx context.Context, epoch string) error {
	return e.below.SetWeights(ctx, epoch)
}

// Stats returns counters and page counts.
func (e *Engine) Stats(ctx context.Context) (Stats, error) { return e.below.Stats(ctx) }

// Check verifies the invariants of the engine and joins everything that is wrong.
func (e *Engine) Check(ctx context.Context) error { return e.below.Check(ctx) }

// Events returns what has changed in the cache since the last Events or Snapshot of the reader. The
// zero ReaderID is open from the start; OpenReader adds others. The engine keeps the latest
// CacheConfig.EventBufferMaxSize events. A reader that has missed some finds their number in Lost,
// and starts again from a Snapshot. With an EventBufferMaxSize of 0, the default, no events are
// kept, and the error is ErrNotSupported.
func (e *Engine) Events(ctx context.Context, reader ReaderID) (EventBatch, error) {
	if err := e.noEvents(); err != nil {
		return EventBatch{}, err
	}
	return e.below.EventsOf(ctx, reader)
}

// Snapshot returns all stored blocks, to start a mirror; the reader's next Events go on from there.
// If the engine keeps no events the error is ErrNotSupported.
func (e *Engine) Snapshot(ctx context.Context, reader ReaderID) (EventBatch, error) {
	if err := e.noEvents(); err != nil {
		return EventBatch{}, err
	}
	return e.below.SnapshotOf(ctx, reader)
}

// OpenReader adds a reader of events, with a position and a count of lost events of its own. It
// gets the events from now on, so a mirror begins with a Snapshot. If the engine keeps no events
// the error is ErrNotSupported.
func (e *Engine) OpenReader(ctx context.Context) (ReaderID, error) {
	if err := e.noEvents(); err != nil {
		return 0, err
	}
	return e.below.OpenReader(ctx)
}

// noEvents refuses readers of an engine that keeps no events: one would take the cache for empty.
func (e *Engine) noEvents() error {
	if e.events {
		return nil
	}
	return refusals.New(ErrNotSupported, "event_buffer_max_size is 0: no events are kept")
}

// CloseReader removes a reader of events.
func (e *Engine) CloseReader(ctx context.Context, reader ReaderID) error {
	return e.below.CloseReader(ctx, reader)
}

// Rebalance moves device memory between pools: to the given shares, by the names of the pools, or
// with nil by demand. Held pages may get other numbers; the tables of all sequences follow. Call it
// between steps: no other call may be under way, and every kernel that uses the old numbers must
// have been launched and its ticket passed on by a Commit or a Release. If a copy fails
// (ErrInternal), nothing moves, and the pools keep their sizes. Moved lists what has moved, also
// when there is an error.
func (e *Engine) Rebalance(ctx context.Context, fractions map[string]float64) (Rebalanced, error) {
	r, err := e.below.Rebalance(ctx, fractions)
	e.renumber(r.Moved) // also with an error: pages may have moved
	return r, err
}

// Resize gives each pool a number of device pages, by PoolID, under the rules of Rebalance. A pool
// with fewer pages than are held is ErrOutOfPages. Memory of the host's own (Config.Memory) cannot
// be resized.
func (e *Engine) Resize(ctx context.Context, pages []int) (Rebalanced, error) {
	r, err := e.below.Resize(ctx, pages)
	e.renumber(r.Moved)
	return r, err
}

// SetScales sets what the keys and values of layers with 8-bit elements are divided by, all or
// none of the layers. Scales belong to the bytes that were divided by them: if one changes, blocks
// computed with the former scales are never matched again, neither here nor in a store.
// ErrNotSupported: a layer has no 8-bit elements, or sequences run.
func (e *Engine) SetScales(ctx context.Context, scales []LayerScale) error {
	return e.below.SetScales(ctx, scales)
}

// Scales returns the scales of all layers with 8-bit elements: of self attention by layer,
// then of cross attention by layer. Those that were never set are 1.
func (e *Engine) Scales(ctx context.Context) ([]LayerScale, error) { return e.below.Scales(ctx) }

// renumber follows the pages of all sequences to their new numbers.
func (e *Engine) renumber(moved [][]messages.PageMove) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p, moves := range moved {
		if len(moves) == 0 {
			continue
		}
		to := make(map[PageID]PageID, len(moves))
		for _, m := range moves {
			to[m.Old] = m.New
		}
		for _, s := range e.running {
			for _, table := range s.tables[p] {
				for b, page := range table {
					if n, ok := to[page]; ok {
						table[b] = n
					}
				}
			}
		}
	}
}
