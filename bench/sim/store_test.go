package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// badStore is a store that delays, fails, forgets, duplicates and lies: whatever a store
// may do to an engine, at the run's choice.
type badStore struct {
	world  *world
	bodies map[stores.Key][]byte
	keys   []stores.Key // in the order of their first Put

	fetches  []*fetching
	fetching *fetching // that runs now
}

var errBad = errors.New("simulated failure of the store")

// one is true once in so many calls.
func (s *badStore) one(in int) bool { return s.world.rng.IntN(in) == 0 }

// begin delays a call of a fetch, or makes it hang until its time is over, and fails some.
// The calls that save are delayed by the order in which the run takes turns.
func (s *badStore) begin(what string) error {
	w := s.world
	if f := s.fetching; f != nil {
		delay := 0
		switch {
		case s.one(20):
			w.counts.add("store calls that hang", 1)
			f.pause(60)
			return context.DeadlineExceeded
		case s.one(2):
			delay = w.rng.IntN(12)
		}
		f.pause(delay)
	}
	if s.one(10) {
		w.counts.add("store calls that fail", 1)
		w.tellf("  store: %s fails", what)
		return errBad
	}
	return nil
}

// Put keeps the objects, some of them under another key as well, and fails for some.
func (s *badStore) Put(_ context.Context, objects []stores.Object) error {
	if err := s.begin("put"); err != nil {
		return err
	}
	errs := make([]error, len(objects))
	for i, o := range objects {
		if s.one(15) {
			errs[i] = errBad
			continue
		}
		s.keep(o.Key, o.Body)
		if s.one(10) {
			s.keep(s.any(), o.Body)
			s.world.counts.add("objects under a wrong key", 1)
		}
	}
	return stores.Join(errs)
}

func (s *badStore) keep(k stores.Key, body []byte) {
	if s.bodies[k] == nil {
		s.keys = append(s.keys, k)
	}
	s.bodies[k] = bytes.Clone(body)
}

// any is one of the keys.
func (s *badStore) any() stores.Key { return s.keys[s.world.rng.IntN(len(s.keys))] }

// Has says the truth, mostly.
func (s *badStore) Has(_ context.Context, keys []stores.Key, found []bool) error {
	clear(found)
	if err := s.begin("has"); err != nil {
		return err
	}
	for i, k := range keys {
		found[i] = s.bodies[k] != nil != s.one(20)
	}
	return nil
}

// Get returns what was put, or something else.
func (s *badStore) Get(_ context.Context, keys []stores.Key, bodies [][]byte) error {
	clear(bodies)
	if err := s.begin("get"); err != nil {
		return err
	}
	errs := make([]error, len(keys))
	for i, k := range keys {
		bodies[i] = bytes.Clone(s.bodies[k])
		if s.one(8) {
			errs[i] = s.spoil(k, &bodies[i])
		}
	}
	return stores.Join(errs)
}

// spoil makes a body wrong in one of the ways in which it can be.
func (s *badStore) spoil(k stores.Key, body *[]byte) error {
	w := s.world
	w.counts.add("bodies that are wrong", 1)
	b := *body
	switch w.rng.IntN(8) {
	case 0: // forgotten
		delete(s.bodies, k)
		s.keys = slices.DeleteFunc(s.keys, func(other stores.Key) bool { return other == k })
		*body = nil
	case 1: // failed
		*body = nil
		return errBad
	case 2: // another object: other tokens, another parent, another pool
		if len(s.keys) > 0 {
			*body = bytes.Clone(s.bodies[s.any()])
		}
	case 3:
		*body = b[:w.rng.IntN(len(b)+1)]
	case 4:
		*body = append(b, b...)
	case 5: // an older format
		if len(b) > 4 {
			b[4]--
		}
	case 6:
		for i := range b {
			b[i] = byte(w.rng.Uint32())
		}
	default:
		if len(b) > 0 {
			b[w.rng.IntN(len(b))] ^= 1 << w.rng.IntN(8)
		}
	}
	return nil
}

// Delete removes objects.
func (s *badStore) Delete(_ context.Context, keys []stores.Key) error {
	for _, k := range keys {
		delete(s.bodies, k)
	}
	return nil
}

// Close does nothing.
func (s *badStore) Close() error { return nil }

// addStore gives a world a store if its seed has one.
func addStore(w *world) []actors.Option {
	if !stored(w.seed) {
		return nil
	}
	w.hasStore, w.save = true, actors.SavePolicy(w.rng.IntN(3))
	w.store = &badStore{world: w, bodies: map[stores.Key][]byte{}}
	c := actors.StoreConfig{
		Store: w.store, Model: "sim", Save: w.save, WaitForCopies: w.rng.IntN(2) == 0,
		BreakerFailures: -1, Timeout: time.Hour, BreakerPause: time.Hour,
	}
	if w.rng.IntN(8) == 0 {
		c.BreakerFailures = 6 // it opens, and stays open: its pause is of the real time
	}
	if w.rng.IntN(3) == 0 {
		c.SaveBytes = 1 + w.rng.Int64N(4096)
	}
	if w.rng.IntN(4) == 0 {
		c.FetchBytes = 1 + w.rng.Int64N(4096)
	}
	options := []actors.Option{actors.WithStore(c), enginetest.WithFetchHooks(w.store.serveFetch,
		w.store.awaitFetch)}
	if w.rng.IntN(2) == 0 {
		options = append(options, enginetest.WithFetchBatches(1+w.rng.Int64N(2048)))
	}
	return options
}

// fetching is a fetch under way. It runs as a coroutine: whenever it waits, for the engine,
// the store or another fetch, the run goes on.
type fetching struct {
	next func() (struct{}, bool)
	stop func()
	wait func() // ends the turn
}

// errStopped ends the fetches of a run that is over.
var errStopped = errors.New("the run is over")

// pause waits for some turns.
func (f *fetching) pause(turns int) {
	for range turns {
		f.wait()
	}
}

// fetch begins a fetch, or asks for a flush.
func (s *badStore) fetch() {
	w := s.world
	if !w.room() || len(s.fetches) >= 4 {
		return
	}
	if w.rng.IntN(6) == 0 {
		m := &protocol.Flush{}
		w.ask("flush", m, "", func(r *request) { w.expect(r, m.Err) })
		return
	}
	p := w.drawPrefix()
	f := &fetching{}
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if reason := recover(); reason != nil && reason != any(errStopped) {
				panic(reason)
			}
		}()
		f.wait = func() {
			if !yield(struct{}{}) {
				panic(errStopped)
			}
		}
		got, err := actors.StoreOf(w.engine).Fetch(context.Background(), p.Prefix)
		s.fetched(p, got, err)
	})
	w.tellf("fetch %s", p)
	s.fetches = append(s.fetches, f)
	w.counts.add("fetches", 1)
	s.resume(f)
}

// fetched looks at the end of a fetch.
func (s *badStore) fetched(p prompt, got actors.Fetched, err error) {
	w := s.world
	w.tellf("  fetched %+v, %v", got, err)
	w.counts.add("blocks fetched", got.Blocks)
	switch {
	case err != nil && w.injected == 0:
		w.failf("fetch of %s: %w", p, err)
	case got.LocalTokens < 0 || got.LocalTokens >= max(1, len(p.Tokens)):
		w.failf("fetch of %s: %+v", p, got)
	}
}

// resume gives a fetch its turn.
func (s *badStore) resume(f *fetching) {
	s.fetching = f
	_, goesOn := f.next()
	s.fetching = nil
	if !goesOn {
		s.fetches = slices.DeleteFunc(s.fetches, func(other *fetching) bool { return other == f })
	}
}

// fetchOn gives one of the fetches a turn; false if there is none.
func (s *badStore) fetchOn() bool {
	if s == nil || len(s.fetches) == 0 || s.world.failure != nil {
		return false
	}
	s.resume(s.fetches[s.world.rng.IntN(len(s.fetches))])
	return true
}

// serveFetch serves a request of the fetch that runs now.
func (s *badStore) serveFetch(record messages.Request) error {
	w, f := s.world, s.fetching
	for !w.room() && !w.dead {
		f.wait()
	}
	r := &request{kind: fmt.Sprintf("part of a fetch, %T", record), record: record}
	answered := false
	r.then = func(error) { answered = true }
	w.submit(r)
	for !answered {
		f.wait()
	}
	return r.err
}

// awaitFetch waits until another fetch is over.
func (s *badStore) awaitFetch(done <-chan struct{}) {
	for f := s.fetching; ; f.wait() {
		select {
		case <-done:
			return
		default:
		}
	}
}

// endFetches ends the fetches that are under way.
func (s *badStore) endFetches() {
	if s == nil {
		return
	}
	for _, f := range s.fetches {
		f.stop()
	}
	s.fetches = nil
}
