package actors

import (
	"context"
	"sync"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// gate bounds the calls in flight. Those over the bound get their places in order.
type gate struct {
	mu      sync.Mutex
	limit   int
	inside  int
	waiting []chan struct{}
	refuse  bool
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

// try takes a place if there is one now.
func (g *gate) try() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.limit || len(g.waiting) > 0 {
		return g.full()
	}
	g.inside++
	return nil
}

// withdraw leaves the queue; a turn that came in the same moment is passed on.
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

// release gives the place to the first that waits.
func (g *gate) release() {
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
