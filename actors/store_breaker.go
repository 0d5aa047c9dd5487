package actors

import (
	"context"
	"errors"
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
// Probes are made by a task of their own, so that no request is one.

// errBreaker is the error of calls while the breaker is open.
var errBreaker = errors.New("store: too many failures, not asked")

// maxStuck is how many calls may be out that have not ended with their time.
// Each of them holds a goroutine and the bytes that it was given, so the number bounds what
// a store that ignores its context can cost.
const maxStuck = 16

// errStuck is the error of calls while so many are out.
var errStuck = errors.New("store: calls do not end with their time, not asked")

// ask makes one call of the store, unless the breaker is open.
func (c *storeClient) ask(ctx context.Context, do func(context.Context) error) error {
	if c.refuses() {
		return errBreaker
	}
	err := c.call(ctx, do)
	c.note(err)
	return err
}

// call makes one call of the store, within its time. A call that does not end with its time is
// left behind on its goroutine: the error is that of the context then, and nothing else may touch
// what the call was given.
func (c *storeClient) call(ctx context.Context, do func(context.Context) error) (err error) {
	if c.stuck.Load() >= maxStuck {
		return errStuck
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	start := time.Now()
	// A simulation decides itself when a call ends, so it needs no goroutine and no clock.
	if c.inline {
		err = do(ctx)
	} else {
		err = c.leaveBehind(ctx, do)
	}
	c.took(time.Since(start), err)
	return err
}

// leaveBehind waits for a call no longer than its time. A call that goes on is counted as stuck
// until it ends.
func (c *storeClient) leaveBehind(ctx context.Context, do func(context.Context) error) error {
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
	c.stuck.Add(1)
	go func() {
		<-done
		c.stuck.Add(-1)
	}()
	return ctx.Err()
}

// took counts a call and its time.
func (c *storeClient) took(d time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Calls++
	c.stats.CallTime += d
	if err != nil {
		c.stats.Errors++
	}
	bounds := inspect.StoreLatencyBounds()
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	c.stats.Latency[i]++
}

// refuses tells whether the breaker is open. An actor asks before it makes copies that would
// be thrown away.
func (c *storeClient) refuses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats.BreakerOpen
}

// note notes the end of a call. A caller that has given up, and calls beyond maxStuck, say
// nothing of the store.
func (c *storeClient) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case answered(err):
		c.failures = 0
		if c.stats.BreakerOpen {
			c.stats.BreakerOpen = false
			c.log.Warn("kvactor: the store answers again",
				"engine", c.engine, "dropped_pages", c.stats.Dropped)
		}
	case errors.Is(err, context.Canceled) || errors.Is(err, errStuck) || c.stats.BreakerOpen:
	default:
		if c.failures++; c.config.BreakerFailures < 0 || c.failures < c.config.BreakerFailures {
			return
		}
		c.stats.BreakerOpen = true
		c.stats.BreakerOpened++
		c.log.Warn(
			"kvactor: the store is not asked for a while: too many calls failed one after the other",
			"engine", c.engine, "failures", c.failures, "pause", c.config.BreakerPause, "err", err)
		select {
		case c.tripped <- struct{}{}:
		default: // probe has not taken the last one yet
		}
	}
}

// answered tells whether a call shows that the store works: some of its items succeeded, or
// there was nothing to fail.
func answered(err error) bool {
	var batch *stores.BatchError
	if err == nil || !errors.As(err, &batch) {
		return err == nil
	}
	for _, of := range batch.Errs {
		if of == nil {
			return true
		}
	}
	return false
}

// maxPauses bounds the pause between two probes, in pauses of the configuration.
const maxPauses = 32

// probe is a task that lasts as long as the engine. While the breaker is open it asks the store
// for a key that no object has, with pauses that double up to maxPauses of them.
func (c *storeClient) probe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.tripped:
		}
		for pause := c.config.BreakerPause; c.refuses(); pause = min(2*pause,
			maxPauses*c.config.BreakerPause) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			c.note(c.call(ctx, func(ctx context.Context) error {
				return c.config.Store.Has(ctx, []stores.Key{{}}, []bool{false})
			}))
		}
	}
}
