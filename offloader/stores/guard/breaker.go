package guard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader/stores"
)

// The functions of this file call the store. A breaker keeps calls from a store that has failed
// BreakerFailures times, one after the other:
//
//	closed ──failures──▶ open: calls fail at once ──a probe succeeds──▶ closed
//	                      └─ pause, probe, twice the pause, probe …
//
// Probes are calls of their own, so that no request is one.

// errBreaker is the error of calls while the breaker is open.
var errBreaker = errors.New("store: too many failures, not asked")

// maxStuck is how many calls may be out that have not ended with their time.
// Each of them holds a goroutine and the bytes that it was given, so the number bounds what
// a store that ignores its context can cost.
const maxStuck = 16

// errStuck is the error of calls while so many are out.
var errStuck = errors.New("store: calls do not end with their time, not asked")

// ask makes one call of the store, unless the breaker is open.
func (s *Store) ask(ctx context.Context, do func(context.Context) error) error {
	if s.Refuses() {
		return errBreaker
	}
	return s.call(ctx, do)
}

// call makes one call of the store, within its time. A call that does not end with its time is
// left behind on its goroutine: the error is that of the context then, and nothing else may touch
// what the call was given.
func (s *Store) call(ctx context.Context, do func(context.Context) error) (err error) {
	if s.stuck.Load() >= maxStuck {
		return errStuck // which says nothing of the store
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	start := time.Now()
	// A simulation decides itself when a call ends, so it needs no goroutine and no clock.
	if s.config.Inline {
		err = do(ctx)
	} else {
		err = s.leaveBehind(ctx, do)
	}
	s.ended(time.Since(start), err)
	return err
}

// leaveBehind waits for a call no longer than its time. A call that goes on is counted as stuck
// until it ends.
func (s *Store) leaveBehind(ctx context.Context, do func(context.Context) error) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = do(ctx)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.stuck.Add(1)
	go func() {
		<-done
		s.stuck.Add(-1)
	}()
	return ctx.Err()
}

// Refuses tells whether the breaker is open. An actor asks before it makes copies that would
// be thrown away.
func (s *Store) Refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.BreakerOpen
}

// ended counts a call, and closes or opens the breaker. A caller that has given up says nothing of
// the store.
func (s *Store) ended(d time.Duration, err error) {
	bounds := inspect.StoreLatencyBounds()
	bound, _ := slices.BinarySearch(bounds[:], d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Calls++
	s.stats.CallTime += d
	s.stats.Latency[bound]++
	if err != nil {
		s.stats.Errors++
	}
	switch {
	case answered(err):
		s.failures = 0
		if s.stats.BreakerOpen {
			s.stats.BreakerOpen = false
			s.config.Log.Warn("kvactor: the store answers again", "dropped_pages", s.stats.Dropped)
		}
	case errors.Is(err, context.Canceled) || s.stats.BreakerOpen:
	default:
		if s.failures++; s.failures == s.config.BreakerFailures {
			s.open(err)
		}
	}
}

// open opens the breaker. It is called with the lock held.
func (s *Store) open(err error) {
	s.stats.BreakerOpen = true
	s.stats.BreakerOpened++
	s.pause = s.config.BreakerPause
	s.config.Log.Warn(
		"kvactor: the store is not asked for a while: too many calls failed one after the other",
		"failures", s.failures, "pause", s.pause, "err", err)
	if !s.config.Inline {
		s.probes.Reset(s.pause)
	}
}

// answered tells whether a call shows that the store works: some of its items succeeded, or
// there was nothing to fail.
func answered(err error) bool {
	var batch *stores.BatchError
	return err == nil || errors.As(err, &batch) && slices.Contains(batch.Errs, nil)
}

// maxPauses bounds the pause between two probes, in pauses of the configuration.
const maxPauses = 32

// probe asks the store for a key that no object has, and again after a pause if it fails. Pauses
// double up to maxPauses of them.
func (s *Store) probe() {
	if !s.Refuses() || s.ctx.Err() != nil {
		return
	}
	_ = s.call(s.ctx, func(ctx context.Context) error { // whose end may close the breaker
		return s.config.Store.Has(ctx, []stores.Key{{}}, []bool{false})
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.BreakerOpen {
		s.pause = min(2*s.pause, maxPauses*s.config.BreakerPause)
		s.probes.Reset(s.pause)
	}
}
