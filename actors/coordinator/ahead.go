package coordinator

import "github.com/kvactor/kvactor/messages"

// foresight is the state of offloading ahead of demand: when nothing waits, the
// pages that would be evicted next are copied to free host pages, so that an
// eviction finds a clean copy and nobody waits for the link.
type foresight struct {
	due   bool // pages have become cached since the last look
	ahead messages.Ahead
}

// The pages of a pool that are looked at: a sixteenth, within bounds that keep
// a look short.
const (
	foresightShare = 16
	minForesight   = 8
	maxForesight   = 256
)

// lookAhead starts a look if there is a reason for one. It is no request: it
// has no stamp, leaves no use and changes no answer.
func (c *Coordinator) lookAhead() bool {
	if !c.ahead.due || !c.Ahead {
		return false
	}
	c.ahead.due = false
	c.resetWork()
	asked := false
	for p := range c.Pools {
		n := min(max(c.pages[p].Total/foresightShare, minForesight), maxForesight)
		if c.host[p].Total == 0 || c.pages[p].Cached == 0 || c.pages[p].Free >= n {
			continue
		}
		c.add(p, messages.PoolOp{Kind: messages.Foresee, N: n - c.pages[p].Free})
		asked = true
	}
	if !asked {
		return false
	}
	c.sendPools((*Coordinator).foreseen)
	return true
}

// foreseen offers what was seen to the offloader.
func (c *Coordinator) foreseen() {
	c.pooled()
	c.ahead.due = false // what was seen has not gone: it is no reason to look again
	a := &c.ahead.ahead
	a.Epoch, a.Stamp, a.Busy = c.epoch, c.stamp, false
	a.Pools, a.Copied = a.Pools[:0], a.Copied[:0]
	for p := range c.work {
		var victims []messages.Victim
		if len(c.work[p].Ops) > 0 {
			victims = c.work[p].Victims
		}
		a.Pools = append(a.Pools, victims)
	}
	c.pending++
	c.next = (*Coordinator).copiedAhead
	c.port.Offloader(a)
}

// copiedAhead counts; a link that was busy is tried again after the next request.
func (c *Coordinator) copiedAhead() {
	a := &c.ahead.ahead
	for p, n := range a.Copied {
		count := &c.stats.Pools[p].PoolCounters
		count.AheadPages += int64(n)
		count.BytesOffloaded += int64(n) * c.Pools[p].PageBytes()
		c.ordered = c.ordered || n > 0
	}
}
