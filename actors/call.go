package actors

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/actors/mailbox"
	"github.com/kvactor/kvactor/messages"
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
// for the answer, or to hear that the request would have to wait for pages.
type call struct {
	request any
	engine  *Engine
	stage   atomic.Uint32
	answer  atomic.Uint32
	wake    chan struct{} // capacity 1
	err     error         // set by Abort alone
	done    func(error)   // of Submit; nil: a caller waits
}

const (
	callQueued uint32 = iota
	callBegun
	callCancelled
	callParked
	callLeaving
)

const (
	answerPending uint32 = iota
	answerFinished
	answerAwaited
)

// newCall takes a record that nobody uses. Records are the engine's own: one
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

// begin tells the caller that its request is being served; false if the caller
// has gone.
func (c *call) begin() bool {
	return c.stage.CompareAndSwap(callQueued, callBegun) || c.stage.CompareAndSwap(callParked, callBegun)
}

// park tells the caller that its request waits for pages; false if the caller
// is leaving, which it is told then.
func (c *call) park() bool {
	if c.stage.CompareAndSwap(callBegun, callParked) {
		return true
	}
	c.stage.Store(callCancelled)
	c.finish()
	return false
}

// departed tells the coordinator that a caller waits for pages no longer.
type departed struct{}

// Abort has nobody to tell.
func (*departed) Abort(error) {}

// finish wakes the caller. The record is the caller's again.
func (c *call) finish() {
	switch before := c.answer.Swap(answerFinished); {
	case c.done != nil && before != answerFinished: // else it has been told, and has panicked over it
		c.engine.gate.leave()
		c.done(c.err)
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
// ends before anything has begun or while it waits for pages. What has begun ends
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
	if c.leave() {
		return ctx.Err() // the engine drops the record
	}
	<-c.wake
	if gone := c.stage.Load() == callCancelled; gone {
		_ = c.end()
		return ctx.Err()
	}
	return c.end()
}

// leave tells whether the caller may go at once: its request is not being
// served.
func (c *call) leave() bool {
	for {
		switch {
		case c.stage.CompareAndSwap(callQueued, callCancelled):
			return true
		case c.stage.CompareAndSwap(callParked, callCancelled):
			c.engine.coordinator.PostUserMessage(&departed{})
			return true
		case c.stage.CompareAndSwap(callBegun, callLeaving):
			return false
		}
	}
}

// end gives the record back.
func (c *call) end() error {
	err, e := c.err, c.engine
	c.request, c.engine, c.err = nil, nil, nil
	e.calls.Put(c)
	return err
}

// gate bounds the calls in flight. Those over the bound enter in order.
type gate struct {
	mu      sync.Mutex
	limit   int
	inside  int
	waiting []chan struct{}
	refuse  bool
}

// enter waits for a place, or refuses.
func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	if g.inside < g.limit && len(g.waiting) == 0 {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	if g.refuse || g.limit == 0 {
		g.mu.Unlock()
		return g.full()
	}
	turn := make(chan struct{}, 1)
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return g.giveUp(turn, ctx.Err())
	}
}

// full is the refusal of a call over the bound; Spawn has seen to it that there is
// one.
func (g *gate) full() error {
	if g.limit == 0 {
		return messages.Refuse(messages.Closed, "an engine that does not come from Spawn")
	}
	return messages.Refuse(messages.Busy, "%d calls are in flight", g.limit)
}

// try enters if there is a place now.
func (g *gate) try() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.limit || len(g.waiting) > 0 {
		return g.full()
	}
	g.inside++
	return nil
}

// giveUp leaves the queue; a turn that came in the same moment is passed on.
func (g *gate) giveUp(turn chan struct{}, err error) error {
	g.mu.Lock()
	for i, t := range g.waiting {
		if t == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.mu.Unlock()
			return err
		}
	}
	g.mu.Unlock()
	g.leave()
	return err
}

// leave gives the place to the first that waits.
func (g *gate) leave() {
	g.mu.Lock()
	if len(g.waiting) > 0 {
		turn := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.mu.Unlock()
		turn <- struct{}{}
		return
	}
	g.inside--
	g.mu.Unlock()
}
