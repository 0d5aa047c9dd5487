package actors

import (
	"context"
	"sync/atomic"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// gate bounds the calls in flight, and with them the queues of all actors. Calls over
// the bound get their places in the order in which they came, and a call whose context
// ends leaves the queue.
//
// Calls wait here and not in the coordinator's queue, so that a mailbox never holds more
// than the bound, and a call that gives up costs the actors nothing.
type gate struct {
	// places has a value for each call that has a place. Those that send to a full channel are
	// served in order, and a call that comes while others wait does not pass them. Its capacity
	// is 0 in an engine that does not come from Spawn.
	places  chan struct{}
	refuse  bool // do not wait: WithBusyRefusal
	waiting atomic.Int64
}

// acquire waits for a place, or refuses.
func (g *gate) acquire(ctx context.Context) error {
	err := g.try()
	if err == nil || g.refuse || cap(g.places) == 0 {
		return err
	}
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case g.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try takes a place if there is one now.
func (g *gate) try() error {
	select {
	case g.places <- struct{}{}:
		return nil
	default:
	}
	if cap(g.places) == 0 {
		return refusals.New(messages.ErrClosed, "an engine that does not come from Spawn")
	}
	return refusals.New(messages.ErrBusy, "%d calls are in flight", cap(g.places))
}

// counts are the calls that have a place, and those that wait for one.
func (g *gate) counts() (inside, waiting int) { return len(g.places), int(g.waiting.Load()) }

// release gives the place to the first that waits.
func (g *gate) release() { <-g.places }
