package actors

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/kvactor/kvactor/actors/mailbox"
)

// call is one request of the facade on its way through the engine and back.
// The engine owns the request from begun to finished.
//
//	queued ──▶ begun ──▶ finished
//	   │        │  ▲        ▲
//	   │        ▼  │        │ the engine ends
//	   │       parked ──────┘
//	   └─────▶ cancelled ◀── parked, or leaving when it would be parked: the
//	           caller's context ended, and nothing has been changed
//
// A caller whose context ends while its request is served is leaving: it waits
// for the answer, or to hear that the request would have to wait.
type call struct {
	request any
	engine  *Engine
	// stage says who owns the request; the engine and the caller change it by
	// compare and swap, so that exactly one of them wins when a context ends.
	stage atomic.Uint32
	// answer says whether the caller must be woken: most calls are answered before
	// their caller begins to wait, and cost no channel operation.
	answer atomic.Uint32
	wake   chan struct{} // capacity 1: finish never blocks
	err    error         // set by Abort alone
	done   func(error)   // of Submit; nil: a caller waits
	stages *stages       // that the call goes through; nil: no one asks
}

// The stages, as in the picture.
const (
	callQueued uint32 = iota
	callBegun
	callCancelled
	callParked
	callLeaving
)

// The states of the answer: it may come before the caller waits for it, or after.
const (
	answerPending  uint32 = iota
	answerFinished        // the request is the caller's again
	answerAwaited         // the caller waits on wake
)

// newCall takes a record that is not in use. Records are the engine's own: one
// that was made in a bubble of testing/synctest may not leave it.
func newCall(e *Engine, request any) *call {
	c, reused := e.calls.Get().(*call)
	if !reused {
		c = &call{wake: make(chan struct{}, 1)}
	}
	c.request, c.engine, c.err = request, e, nil
	c.stage.Store(callQueued)
	c.answer.Store(answerPending)
	return c
}

// serveOwn serves a request of the engine's own, which passes the gate by.
func serveOwn(ctx context.Context, e *Engine, request any) error {
	c := newCall(e, request)
	e.coordinator.PostUserMessage(c)
	return c.wait(ctx)
}

// begin tells the caller that its request is being served; false if the caller
// has gone. A call begins again when the coordinator has failed before it was answered or parked.
func (c *call) begin() bool {
	if c.stage.CompareAndSwap(callQueued, callBegun) || c.stage.CompareAndSwap(callParked, callBegun) {
		return true
	}
	return c.stage.Load() != callCancelled
}

// park tells the caller that its request waits for pages; false if the caller is leaving, which it
// is told then.
func (c *call) park() bool {
	if c.stage.CompareAndSwap(callBegun, callParked) {
		return true
	}
	c.stage.Store(callCancelled)
	c.finish()
	return false
}

// callerGone tells the coordinator that a caller no longer waits, perhaps for pages.
type callerGone struct{}

// Abort does nothing: the caller has gone.
func (*callerGone) Abort(error) {}

// finish wakes the caller. The record is the caller's again.
func (c *call) finish() {
	switch before := c.answer.Swap(answerFinished); {
	case c.done != nil && before != answerFinished:
		c.engine.gate.release()
		c.engine.callHost("Submit", func() { c.done(c.err) })
	case before == answerAwaited:
		c.wake <- struct{}{}
	}
}

// Abort answers a call that no actor will serve. When the coordinator panicked
// the call is still in its line or its round, and the recovery sees to it.
func (c *call) Abort(err error) {
	if errors.Is(err, mailbox.ErrPanicked) {
		return
	}
	c.abandon(err)
}

// abandon answers a call with an error if it has no answer yet.
func (c *call) abandon(err error) {
	if c.stage.Load() == callCancelled || c.answer.Load() == answerFinished {
		return
	}
	c.err = c.engine.failure(err)
	c.finish()
}

// wait returns when the call is finished, or with the context's error if that
// ends before anything has begun or while it is parked. What has begun ends
// soon or is parked: no stage of it waits for anything outside the engine.
func (c *call) wait(ctx context.Context) error {
	if c.answer.Load() == answerFinished || !c.answer.CompareAndSwap(answerPending, answerAwaited) {
		return c.end()
	}
	select {
	case <-c.wake:
		return c.end()
	case <-ctx.Done():
	}
	if c.giveUp() {
		// The engine drops the record when it comes to it. The call is not put back into
		// the pool: the engine still has it in its queue.
		return ctx.Err()
	}
	// The request is being served, which ends soon. To return now would leave the
	// caller without the pages that it may have been given.
	<-c.wake
	if gone := c.stage.Load() == callCancelled; gone {
		_ = c.end()
		return ctx.Err()
	}
	return c.end()
}

// giveUp tells whether the caller may return at once: its request is not being
// served. The loop ends because a stage that changes between two cases is one of
// the others at the next try.
func (c *call) giveUp() bool {
	for {
		switch {
		case c.stage.CompareAndSwap(callQueued, callCancelled):
			return true
		case c.stage.CompareAndSwap(callParked, callCancelled):
			c.engine.coordinator.PostUserMessage(&callerGone{})
			return true
		case c.stage.CompareAndSwap(callBegun, callLeaving):
			return false
		}
	}
}

// end gives the record back.
func (c *call) end() error {
	err, e := c.err, c.engine
	c.request, c.engine, c.err, c.stages = nil, nil, nil, nil
	e.calls.Put(c)
	return err
}
