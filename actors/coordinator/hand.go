package coordinator

import "github.com/kvactor/kvactor/internal/protocol"

// hand is the request that the coordinator has taken from one place and not yet
// put into another: should it fail then, the request is neither in the line nor
// in the round, and its caller would wait for ever.
type hand struct {
	queued
	to    place
	cause error            // to be aborted with
	keys  []protocol.Event // with passedOn: those of a snapshot
}

// place is where a request in hand goes.
type place uint8

const (
	served   place = iota // back to the line, if it fails on the way
	answered              // its answer is complete
	aborted
	passedOn // to the events actor
)

// abort ends the round with an error.
func (c *Coordinator) abort(cause error) {
	c.hand, c.round = hand{queued: c.round, to: aborted, cause: cause}, queued{}
	c.port.Abort(c.hand.request, c.hand.sender, cause)
	c.hand = hand{}
}

// passOn ends the round: the events actor answers, a snapshot from these keys.
func (c *Coordinator) passOn(keys []protocol.Event) {
	c.hand, c.round = hand{queued: c.round, to: passedOn, keys: keys}, queued{}
	c.port.Events(c.hand.request, c.hand.sender, keys)
	c.hand = hand{}
}

// putDown finishes what was in hand when the coordinator failed. It stays in hand
// until that is done: should it fail again, it is tried again, until the engine is
// given up and Stop answers.
func (c *Coordinator) putDown() {
	h := c.hand
	switch {
	case h.request == nil:
	case h.to == answered:
		c.port.Reply(h.request, h.sender)
	case h.to == aborted:
		c.port.Abort(h.request, h.sender, h.cause)
	case h.to == passedOn:
		c.port.Events(h.request, h.sender, h.keys)
	default:
		c.line.pushFirst(h.queued)
	}
	c.hand = hand{}
}
