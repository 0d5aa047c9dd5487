package actors

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

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

	savedObjects, savedBytes, fetchedObjects, fetchedBytes atomic.Int64
	misses, rejected, dropped, calls, errors, nanos        atomic.Int64
	opened                                                 atomic.Int64
	latency                                                [inspect.StoreLatencies]atomic.Int64

	mu     sync.Mutex
	log    *slog.Logger
	engine string // its name in the log
	inline bool   // calls are made on the goroutine of their caller, in simulations
	// readBytes bounds the bytes of one call of a fetch.
	readBytes int64
	stuck     atomic.Int64 // calls that have not ended with their time

	encoders chan struct{} // has a value for each job that is encoded now
	bodies   bodyBuffers
	unused   []atomic.Int32 // how many save pages of each pool are unused, or on their way back

	failures int       // one after the other
	until    time.Time // the breaker is open
	probing  bool      // one call tries whether the store is back

	// reading has the objects that fetches read now, until the engine has them: a second one
	// waits for the first. released has those that were read while any of the fetches under
	// way has run, with the count of claims that had ended then.
	reading  map[stores.Key]chan struct{}
	released map[stores.Key]uint64
	ended    uint64
	fetches  int
}

// errBreaker is the error of calls while the breaker is open.
var errBreaker = errors.New("store: too many failures, not asked")

// newStoreClient makes the client of one engine. The fingerprint is computed once: it is
// part of every key, so that engines of another geometry find none of these objects.
func newStoreClient(c *StoreConfig, g stores.Geometry) *storeClient {
	return &storeClient{
		config: c, geometry: g, fingerprint: g.Fingerprint(), encoders: newEncoders(), unused: make([]atomic.Int32, len(g.Pools)),
		bodies:  bodyBuffers{limit: c.Concurrency * (jobBytes + jobBytes/4)},
		reading: map[stores.Key]chan struct{}{}, released: map[stores.Key]uint64{},
	}
}

// follows tells whether the store's actor gets all changes of the tree: there is a store, and
// it gets pages whose blocks have left the tree.
func (c *storeClient) follows() bool { return c != nil && c.config.Save == SaveHostEvict }

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

// maxStuck is how many calls may be out that have not ended with their time.
// Each of them holds a goroutine and the bytes that it was given, so the number bounds what
// a store that ignores its context can cost.
const maxStuck = 16

// errStuck is the error of calls while so many are out.
var errStuck = errors.New("store: calls do not end with their time, not asked")

// ask makes one call of the store and returns what it answers. A call that does not end
// with its time is left behind on its goroutine, which alone may touch what it was given.
//
// The order of the two refusals matters: enter may make this call the probe of an open
// breaker, and a probe must end with leave.
func ask[T any](ctx context.Context, c *storeClient, do func(context.Context) (T, error)) (answer T, err error) {
	if c.stuck.Load() >= maxStuck {
		return answer, errStuck
	}
	if !c.acquire() {
		return answer, errBreaker
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	start := time.Now()
	// A simulation decides itself when a call ends, so it needs no goroutine and no clock.
	if c.inline {
		answer, err = do(ctx)
	} else {
		answer, err = leaveBehind(ctx, c, do)
	}
	c.took(time.Since(start))
	if err != nil {
		c.errors.Add(1)
	}
	c.release(err)
	return answer, err
}

// leaveBehind waits for a call no longer than its time.
//
// The caller and the goroutine agree by late who counts: whichever comes second finds the
// flag set. So stuck falls once for each time that it rises, also when the call ends in the
// moment in which its time does. The channel has room for one result, so the goroutine ends
// although no one reads it.
func leaveBehind[T any](ctx context.Context, c *storeClient, do func(context.Context) (T, error)) (T, error) {
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	var late atomic.Bool
	go func() {
		answer, err := do(ctx)
		done <- result{answer, err}
		if !late.CompareAndSwap(false, true) {
			c.stuck.Add(-1)
		}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
	}
	c.stuck.Add(1)
	if !late.CompareAndSwap(false, true) {
		c.stuck.Add(-1) // it has just ended
		r := <-done
		return r.answer, r.err
	}
	var none T
	return none, ctx.Err()
}

// has asks which objects the store has.
//
// The result is made inside the call: after a call that was left behind, no other
// goroutine has the slice. get does the same.
func (c *storeClient) has(ctx context.Context, keys []stores.Key) ([]bool, error) {
	return ask(ctx, c, func(ctx context.Context) ([]bool, error) {
		found := make([]bool, len(keys))
		return found, c.config.Store.Has(ctx, keys, found)
	})
}

// get reads objects; bodies is empty if nothing was read.
func (c *storeClient) get(ctx context.Context, keys []stores.Key) ([][]byte, error) {
	return ask(ctx, c, func(ctx context.Context) ([][]byte, error) {
		bodies := make([][]byte, len(keys))
		return bodies, c.config.Store.Get(ctx, keys, bodies)
	})
}

// acquire tells whether the breaker allows a call.
//
// Once the pause is over, one caller at a time probes the store; the others go on without
// it, so a store that is still down costs one timeout and not one for each.
func (c *storeClient) acquire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.until.IsZero():
		return true
	case c.probing || time.Now().Before(c.until):
		return false
	}
	c.probing = true
	return true
}

// refuses tells whether a call would be refused now.
//
// Unlike enter it takes no probe, so it needs no leave: an actor asks before it makes
// copies that would be thrown away.
func (c *storeClient) refuses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero() && (c.probing || time.Now().Before(c.until))
}

// Room implements coordinator.SaveGate: there is room in pools with a save page that is not
// in use, unless the breaker is open.
func (c *storeClient) Room(room []bool) {
	refuses := c.refuses()
	for p := range room {
		room[p] = !refuses && c.unused[p].Load() > 0
	}
}

// Dropped implements coordinator.SaveGate: it counts pages that were not saved, because there
// is no room or the store has failed.
func (c *storeClient) Dropped(pages int) {
	if n := c.dropped.Add(int64(pages)); passesPower(n, int64(pages)) {
		c.log.Warn("kvactor: pages were not saved to the store: no room, or it has failed", "engine", c.engine, "dropped_pages", n)
	}
}

// reject counts a body that is not what was asked for.
func (c *storeClient) reject(err error) {
	if n := c.rejected.Add(1); passesPower(n, 1) {
		c.log.Warn("kvactor: the store has an object that is not what was asked for; it is not used", "engine", c.engine, "rejected_objects", n, "err", err)
	}
}

// passesPower tells whether a count that has grown has reached a power of two. The log has
// losses then: the first, and no more than 63 others, however many there are.
func passesPower(n, grown int64) bool { return bits.Len64(uint64(n)) != bits.Len64(uint64(n-grown)) }

// release notes the end of a call. A caller that has given up says nothing of the store.
func (c *storeClient) release(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	switch {
	case err == nil:
		if !c.until.IsZero() {
			c.log.Info("kvactor: the store answers again", "engine", c.engine, "dropped_pages", c.dropped.Load())
		}
		c.failures, c.until = 0, time.Time{}
	case errors.Is(err, context.Canceled):
	default:
		if c.failures++; c.config.BreakerFailures > 0 && c.failures >= c.config.BreakerFailures {
			if c.until.IsZero() {
				c.opened.Add(1)
				c.log.Warn("kvactor: the store is not asked for a while: too many calls failed one after the other",
					"engine", c.engine, "failures", c.failures, "pause", c.config.BreakerPause, "err", err)
			}
			c.until = time.Now().Add(c.config.BreakerPause)
		}
	}
}

// enterFetch counts a fetch that is under way; leaveFetch ends that.
func (c *storeClient) enterFetch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetches++
}

// leaveFetch forgets what was released when no fetch is under way: a fetch that begins later
// asks the engine what is missing after those objects have come in. That bounds the map.
func (c *storeClient) leaveFetch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetches--; c.fetches == 0 {
		clear(c.released)
	}
}

// readsBefore is how many claims have ended, to be passed to a later claim.
func (c *storeClient) readsBefore() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// claim marks objects as being read by the only fetch that may. If another one reads any of
// them, or has done so since the engine was asked what is missing, claim marks none and
// returns what is closed when that is over: the engine has to be asked again.
//
// All or none: two fetches that each held a part of what both want would wait for each
// other for ever.
func (c *storeClient) claim(keys []stores.Key, since uint64) (done func(), wait <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		if busy := c.reading[k]; busy != nil {
			return nil, busy
		}
		if c.released[k] > since {
			return nil, overAlready
		}
	}
	over := make(chan struct{})
	for _, k := range keys {
		c.reading[k] = over
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended++
		for _, k := range keys {
			delete(c.reading, k)
			c.released[k] = c.ended
		}
		close(over)
	}, nil
}

// overAlready is closed.
var overAlready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Stats returns what the engine and its store have exchanged; zeros without a store.
func (s Store) Stats() StoreStats {
	c := s.engine.store
	if c == nil {
		return StoreStats{}
	}
	c.mu.Lock()
	open := !c.until.IsZero()
	c.mu.Unlock()
	stats := StoreStats{
		SavedObjects: c.savedObjects.Load(), SavedBytes: c.savedBytes.Load(),
		FetchedObjects: c.fetchedObjects.Load(), FetchedBytes: c.fetchedBytes.Load(),
		Misses: c.misses.Load(), Rejected: c.rejected.Load(), Dropped: c.dropped.Load(),
		Calls: c.calls.Load(), Errors: c.errors.Load(), CallTime: time.Duration(c.nanos.Load()),
		BreakerOpen: open, BreakerOpened: c.opened.Load(),
	}
	for i := range c.latency {
		stats.Latency[i] = c.latency[i].Load()
	}
	return stats
}

// took counts the time of a call.
func (c *storeClient) took(d time.Duration) {
	c.calls.Add(1)
	c.nanos.Add(int64(d))
	bounds := inspect.StoreLatencyBounds()
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	c.latency[i].Add(1)
}
