package actors

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader/stores"
)

// StoreStats counts what an engine and its store have exchanged.
type StoreStats = inspect.StoreStats

// storeClient is the engine's access to its store: it bounds each call in time, counts
// and stops calling a store that fails again and again. It is safe for concurrent use.
//
// The store is the host's code and may be slow, broken or blocked for ever. Nothing of
// that may reach an actor: calls run on tasks and on the goroutines of fetches only.
type storeClient struct {
	config      *StoreConfig
	geometry    stores.Geometry
	fingerprint stores.Fingerprint
	compressors sync.Pool

	mu     sync.Mutex // of stats, failures and the sets of keys
	stats  StoreStats // while stats.BreakerOpen is set the store is not asked
	log    *slog.Logger
	engine string // its name in the log
	inline bool   // calls are made on the goroutine of their caller, in simulations
	// readBytes bounds the bytes of one call of a fetch.
	readBytes int64
	stuck     atomic.Int64 // calls that have not ended with their time

	encoders chan struct{}  // has a value for each job that is encoded now
	unused   []atomic.Int32 // how many save pages of each pool are unused
	awaited  atomic.Bool    // pages may wait for save pages
	// savePages is how many there are in each pool.
	savePages []int

	failures int           // one after the other
	tripped  chan struct{} // wakes probe; one place
	// unusable has the keys of objects that were not what was asked for, up to maxUnusable.
	// For this engine the store does not have them: they are not read again, and the next
	// save of such a block replaces its object.
	unusable map[stores.Key]struct{}
	// usable has the keys of objects that an engine that only saves has read or written, up to
	// maxUnusable: they are not read again.
	usable map[stores.Key]struct{}

	// reading has the objects that fetches read now, until the engine has them: a second one
	// waits for the first.
	reading map[stores.Key]chan struct{}
}

// newStoreClient makes the client of one engine. The fingerprint is computed once: it is
// part of every key, so that engines of another geometry find none of these objects.
func newStoreClient(c *StoreConfig, g stores.Geometry) *storeClient {
	return &storeClient{
		config: c, geometry: g, fingerprint: g.Fingerprint(), encoders: newEncoders(),
		unused: make([]atomic.Int32, len(g.Pools)), savePages: make([]int, len(g.Pools)),
		tripped: make(chan struct{}, 1), unusable: map[stores.Key]struct{}{},
		usable:  map[stores.Key]struct{}{},
		reading: map[stores.Key]chan struct{}{},
	}
}

// evicts tells whether there is a store that gets what host memory drops.
func (c *storeClient) evicts() bool { return c != nil && c.config.Save == SaveHostEvict }

// pageBytes is the size of a page in an object: the shares of all ranks.
func (c *storeClient) pageBytes(pool int) int64 {
	return c.geometry.Pools[pool].PageBytes * int64(max(1, c.geometry.Ranks))
}

// space makes the keys and bodies of a namespace; done gives its compressor back.
//
// A compressor has state and serves one goroutine at a time, so each space borrows one
// from a pool.
func (c *storeClient) space(n messages.Namespace) (space *stores.Space, done func()) {
	if c.config.Compressor == nil {
		return stores.NewSpace(c.fingerprint, n, nil), func() {}
	}
	compressor, ok := c.compressors.Get().(stores.Compressor)
	if !ok {
		compressor = c.config.Compressor()
	}
	return stores.NewSpace(c.fingerprint, n, compressor), func() { c.compressors.Put(compressor) }
}

// has asks which objects the store has that can be used.
func (c *storeClient) has(ctx context.Context, keys []stores.Key) ([]bool, error) {
	found := make([]bool, len(keys))
	err := c.ask(ctx, func(ctx context.Context) error { return c.config.Store.Has(ctx, keys, found) })
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range keys {
		if _, unusable := c.unusable[k]; unusable {
			found[i] = false
		}
	}
	return found, nil
}

// get reads objects; bodies is empty if nothing was read, and has nil for what was not.
func (c *storeClient) get(ctx context.Context, keys []stores.Key) ([][]byte, error) {
	bodies := make([][]byte, len(keys))
	err := c.ask(ctx, func(ctx context.Context) error { return c.config.Store.Get(ctx, keys, bodies) })
	if partial := (*stores.BatchError)(nil); err != nil && !errors.As(err, &partial) {
		return nil, err // a call that was left behind may still write to bodies
	}
	return bodies, err
}

// Room implements coordinator.SaveGate: there is room for as many pages as there are save pages
// that are not in use. A pool without save pages takes none, and no pool does while the breaker
// is open.
func (c *storeClient) Room(room []int) {
	c.awaited.Store(true) // before the counts are read: who adds to them looks at it afterwards
	refuses := c.refuses()
	for p := range room {
		room[p] = int(c.unused[p].Load())
		if refuses || c.savePages[p] == 0 {
			room[p] = -1
		}
	}
}

// Dropped implements coordinator.SaveGate: it counts pages that were not saved.
func (c *storeClient) Dropped(pages int) {
	if n := c.count(&c.stats.Dropped, pages); passesPower(n, int64(pages)) {
		c.log.Warn("kvactor: pages were not saved to the store: no room, or it has failed",
			"engine", c.engine, "dropped_pages", n)
	}
}

// count adds to a counter of stats, and returns what it is now.
func (c *storeClient) count(counter *int64, n int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	*counter += int64(n)
	return *counter
}

// maxUnusable bounds the keys of objects that cannot be used, and of those that can, at some 50
// bytes each. Beyond it all are forgotten, which costs reading these objects once more.
const maxUnusable = 1 << 16

// reject counts a body that is not what was asked for, and remembers its key.
func (c *storeClient) reject(key stores.Key, err error) {
	c.avoid(key)
	if n := c.count(&c.stats.Rejected, 1); passesPower(n, 1) {
		c.log.Warn(
			"kvactor: the store has an object that is not what was asked for; the next save replaces it",
			"engine", c.engine, "rejected_objects", n, "err", err)
	}
}

// avoid remembers that the store has no object of a key that can be used, whatever it says.
func (c *storeClient) avoid(key stores.Key) { c.remember(c.unusable, key) }

// markUsable remembers that the store has an object of a key that can be used.
func (c *storeClient) markUsable(key stores.Key) { c.remember(c.usable, key) }

// remember adds a key to one of the two sets, which is emptied when it is full.
func (c *storeClient) remember(keys map[stores.Key]struct{}, key stores.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(keys) >= maxUnusable {
		clear(keys)
	}
	keys[key] = struct{}{}
}

// isUsable tells whether an object was read or written before.
func (c *storeClient) isUsable(key stores.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.usable[key]
	return is
}

// saved counts an object that was written.
func (c *storeClient) saved(o *stores.Object) {
	if c.config.WriteOnly {
		c.markUsable(o.Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.SavedObjects++
	c.stats.SavedBytes += int64(len(o.Body))
	if _, unusable := c.unusable[o.Key]; unusable {
		delete(c.unusable, o.Key)
		c.stats.Replaced++
	}
}

// passesPower tells whether a count that has grown has reached a power of two. The log has
// losses then: the first, and no more than 63 others, however many there are.
func passesPower(n, grown int64) bool {
	return bits.Len64(uint64(n)) != bits.Len64(uint64(n-grown))
}

// claim marks objects as being read by the only fetch that may. If another one reads any of
// them, claim marks none and returns what is closed when that is over: the engine has to be asked
// again. A fetch that was told of an object before another one brought it in reads it once more,
// which costs a read.
//
// All or none: two fetches that each held a part of what both want would wait for each
// other for ever.
func (c *storeClient) claim(keys []stores.Key) (done func(), wait <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		if busy := c.reading[k]; busy != nil {
			return nil, busy
		}
	}
	over := make(chan struct{})
	for _, k := range keys {
		c.reading[k] = over
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range keys {
			delete(c.reading, k)
		}
		close(over)
	}, nil
}

// Stats returns what the engine and its store have exchanged; zeros without a store.
func (s Store) Stats() StoreStats {
	c := s.engine.store
	if c == nil {
		return StoreStats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}
