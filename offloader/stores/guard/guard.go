package guard

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

// Config says what is guarded, and within which bounds.
type Config struct {
	Store      stores.Store
	Geometry   stores.Geometry
	Compressor func() stores.Compressor // nil: pages are not compressed
	// WriteOnly says that an engine verifies objects before it saves others in their place, and
	// that each is to be read once.
	WriteOnly bool
	Timeout   time.Duration // of a call
	// BreakerFailures is how many calls must fail one after the other for the breaker to open;
	// below 0 never. BreakerPause is the time to the first probe.
	BreakerFailures int
	BreakerPause    time.Duration
	// Inline makes each call on the goroutine of its caller, and no probes: for simulations.
	Inline bool
	Log    *slog.Logger
}

// Store is the guarded store of one engine. It is safe for concurrent use.
type Store struct {
	config      Config
	fingerprint stores.Fingerprint
	compressors sync.Pool

	ctx    context.Context // of probes
	probes *time.Timer     // runs while the breaker is open
	stuck  atomic.Int64    // calls that have not ended with their time

	mu       sync.Mutex         // of what follows
	stats    inspect.StoreStats // while BreakerOpen is set the store is not asked
	failures int                // one after the other
	pause    time.Duration      // before the next probe
	// usable has what is known of objects, up to maxKnown of them. One that is not usable was not
	// what was asked for: the store does not have it for this engine, so it is not read again, and
	// the next save of its block replaces it. Usable ones are kept of a WriteOnly store alone.
	usable map[stores.Key]bool
	// reading has the objects that are being read by the one who has claimed them.
	reading map[stores.Key]chan struct{}
}

// New guards a store. The fingerprint is computed once: it is part of every key, so that engines
// of another geometry find none of these objects. ctx ends with the engine, and probes with it.
func New(ctx context.Context, c Config) *Store {
	s := &Store{
		config: c, fingerprint: c.Geometry.Fingerprint(), ctx: ctx, usable: map[stores.Key]bool{},
		reading: map[stores.Key]chan struct{}{},
	}
	s.probes = time.AfterFunc(c.BreakerPause, s.probe)
	s.probes.Stop() // until the breaker opens
	context.AfterFunc(ctx, func() { s.probes.Stop() })
	return s
}

// Fingerprint is that of the geometry.
func (s *Store) Fingerprint() stores.Fingerprint { return s.fingerprint }

// PageBytes is the size of a page in an object: the shares of all ranks.
func (s *Store) PageBytes(p messages.PoolID) int64 {
	return s.config.Geometry.Pools[p].PageBytes * int64(max(1, s.config.Geometry.Ranks))
}

// Space makes the keys and bodies of a namespace, for one goroutine. done gives its compressor
// back, which the next space borrows.
func (s *Store) Space(n messages.Namespace) (space *stores.Space, done func()) {
	if s.config.Compressor == nil {
		return stores.NewSpace(s.fingerprint, n, nil), func() {}
	}
	compressor, ok := s.compressors.Get().(stores.Compressor)
	if !ok {
		compressor = s.config.Compressor()
	}
	return stores.NewSpace(s.fingerprint, n, compressor), func() { s.compressors.Put(compressor) }
}

// Has asks which objects the store has that can be used.
func (s *Store) Has(ctx context.Context, keys []stores.Key) ([]bool, error) {
	found := make([]bool, len(keys))
	err := s.ask(ctx, func(ctx context.Context) error { return s.config.Store.Has(ctx, keys, found) })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		if usable, known := s.usable[k]; known && !usable {
			found[i] = false
		}
	}
	return found, nil
}

// Get reads objects; bodies is empty if nothing was read, and has nil for what was not.
func (s *Store) Get(ctx context.Context, keys []stores.Key) ([][]byte, error) {
	bodies := make([][]byte, len(keys))
	err := s.ask(ctx, func(ctx context.Context) error { return s.config.Store.Get(ctx, keys, bodies) })
	if err != nil && !Partial(err) {
		return nil, err // a call that was left behind may still write to bodies
	}
	return bodies, err
}

// Put writes objects, and counts those that were written.
func (s *Store) Put(ctx context.Context, objects []stores.Object) error {
	err := s.ask(ctx, func(ctx context.Context) error { return s.config.Store.Put(ctx, objects) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range objects {
		if stores.Failed(err, i) != nil {
			continue
		}
		key := objects[i].Key
		s.stats.SavedObjects++
		s.stats.SavedBytes += int64(len(objects[i].Body))
		if usable, known := s.usable[key]; known && !usable {
			delete(s.usable, key)
			s.stats.Replaced++
		}
		if s.config.WriteOnly {
			s.remember(key, true)
		}
	}
	return err
}

// Partial tells whether an error is one of some items of a batch: the others have succeeded.
func Partial(err error) bool {
	var batch *stores.BatchError
	return errors.As(err, &batch)
}

// Open returns the page in the body of a block's object, nil if it cannot be used: if it is not
// what was asked for, or not there although the store has said so. The page may be a part of body.
func (s *Store) Open(space *stores.Space, key stores.Key, b stores.Block, body []byte) []byte {
	if body == nil {
		s.note(key, false)
		return nil
	}
	page, err := space.Page(body, b, int(s.PageBytes(b.Pool)))
	if err == nil {
		if s.config.WriteOnly {
			s.note(key, true)
		}
		return page
	}
	s.note(key, false)
	var rejected int64
	s.Count(func(c *inspect.StoreStats) { c.Rejected++; rejected = c.Rejected })
	if passesPower(rejected, 1) {
		s.config.Log.Warn(
			"kvactor: the store has an object that is not what was asked for; the next save replaces it",
			"rejected_objects", rejected, "err", err)
	}
	return nil
}

// Usable tells whether an object of a WriteOnly store was read or written before.
func (s *Store) Usable(key stores.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable[key]
}

// note remembers whether an object can be used.
func (s *Store) note(key stores.Key, usable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(key, usable)
}

// maxKnown bounds the keys of known objects, at some 50 bytes each. Beyond it all are forgotten,
// which costs reading these objects once more.
const maxKnown = 1 << 16

// remember is note under the lock.
func (s *Store) remember(key stores.Key, usable bool) {
	if len(s.usable) >= maxKnown {
		clear(s.usable)
	}
	s.usable[key] = usable
}

// Claim marks objects as being read by the only reader that may. If another one reads any of
// them, Claim marks none and returns what is closed when that is over: the engine has to be asked
// again. A reader that was told of an object before another one brought it in reads it once more,
// which costs a read.
//
// All or none: two readers that each held a part of what both want would wait for each other for
// ever.
func (s *Store) Claim(keys []stores.Key) (done func(), wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if busy := s.reading[k]; busy != nil {
			return nil, busy
		}
	}
	over := make(chan struct{})
	for _, k := range keys {
		s.reading[k] = over
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range keys {
			delete(s.reading, k)
		}
		close(over)
	}, nil
}

// Dropped counts pages that were not saved.
func (s *Store) Dropped(pages int) {
	var dropped int64
	s.Count(func(c *inspect.StoreStats) { c.Dropped += int64(pages); dropped = c.Dropped })
	if passesPower(dropped, int64(pages)) {
		s.config.Log.Warn("kvactor: pages were not saved to the store: no room, or it has failed",
			"dropped_pages", dropped)
	}
}

// passesPower tells whether a count that has grown has reached a power of two. The log has
// losses then: the first, and no more than 63 others, however many there are.
func passesPower(n, grown int64) bool {
	return bits.Len64(uint64(n)) != bits.Len64(uint64(n-grown))
}

// Count changes counters.
func (s *Store) Count(change func(*inspect.StoreStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// Stats returns what the engine and its store have exchanged.
func (s *Store) Stats() inspect.StoreStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
