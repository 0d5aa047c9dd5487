package coordinator

import "github.com/kvactor/kvactor/messages"

// regular rebalances by demand without being asked, every so many rounds. Page
// numbers change then under hosts that run, so it is done at a step boundary
// only: directly before an Append or an Admit is served, of which the answer
// has not been given. What a host has launched until then it has told of, by
// the After of its Commits and Releases; and it hears of the new numbers before
// that answer.
type regular struct {
	request messages.Rebalance
	next    int64 // the round from which on demand is looked at again
}

// rebalanceDue starts a rebalance if it is time, demand asks for one, and the
// request that comes next begins a step. A split that cannot be reached now,
// since too much is held, is looked for again later.
func (c *Coordinator) rebalanceDue() bool {
	if c.RebalanceEvery == 0 || c.stats.Rounds < c.regular.next || !c.stepComes() {
		return false
	}
	c.regular.next = c.stats.Rounds + int64(c.RebalanceEvery)
	fractions := c.demand()
	if fractions == nil {
		return false
	}
	r := &c.regular.request
	r.Fractions = fractions
	c.open(queued{request: r})
	c.rebalance(r)
	return true
}

// stepComes tells whether the next request of the line begins a step.
func (c *Coordinator) stepComes() bool {
	if c.line.len() == 0 {
		return false
	}
	switch c.line.items[c.line.head].request.(type) {
	case *messages.Append, *messages.Admit:
		return true
	default:
		return false
	}
}

// announce tells of a rebalance that nobody asked for.
func (c *Coordinator) announce(r *messages.Rebalance) {
	if r == &c.regular.request && len(r.Rebalanced.Pools) > 0 {
		c.OnRebalance(r.Rebalanced)
	}
}
