package actors

import (
	"context"
	"sync"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// gate bounds the calls in flight, and with them the queues of all actors. Calls over
// the bound get their places in the order in which they came, and a call whose context
// ends leaves the queue.
//
// Calls wait here and not in the coordinator's queue, so that a mailbox never holds more
// than limit requests, and a call that gives up costs the actors nothing.
type gate struct {
	mu      sync.Mutex
	limit   int  // of inside; 0: the engine does not come from Spawn
	refuse  bool // do not wait: WithBusyRefusal
	inside  int  // calls that have a place; below limit only if nothing waits
	waiting []chan struct{}
}

// acquire waits for a place, or refuses.
func (g *gate) acquire(ctx context.Context) error {
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
	// A channel for each call that waits, so that places are given in order: one for all
	// would wake whichever goroutine runs first.
	turn := make(chan struct{}, 1)
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return g.withdraw(turn, ctx.Err())
	}
}

// full is the refusal of a call over the bound; Spawn has seen to it that there is
// one.
func (g *gate) full() error {
	if g.limit == 0 {
		return refusals.New(messages.ErrClosed, "an engine that does not come from Spawn")
	}
	return refusals.New(messages.ErrBusy, "%d calls are in flight", g.limit)
}

// try takes a place if there is one now. A call that comes while others wait gets none,
// although one may be free in the next moment: it would pass those that came before.
func (g *gate) try() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.limit || len(g.waiting) > 0 {
		return g.full()
	}
	g.inside++
	return nil
}

// counts are the calls that have a place, and those that wait for one.
func (g *gate) counts() (inside, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, len(g.waiting)
}

// withdraw leaves the queue. A place that was given in the same moment is passed on:
// it would be lost otherwise, and the gate would be narrower for ever.
func (g *gate) withdraw(turn chan struct{}, err error) error {
	g.mu.Lock()
	for i, t := range g.waiting {
		if t == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.mu.Unlock()
			return err
		}
	}
	g.mu.Unlock()
	g.release()
	return err
}

// release gives the place to the first that waits. The place changes its caller without
// becoming free in between, so inside stays as it is.
func (g *gate) release() {
	g.mu.Lock()
	if len(g.waiting) > 0 {
		turn := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.mu.Unlock()
		turn <- struct{}{} // has capacity 1: the place is given even if its caller is leaving
		return
	}
	g.inside--
	g.mu.Unlock()
}
