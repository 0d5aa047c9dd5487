package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A page that a fork holds may cache a block by the time the fork commits it: a
// fork that had computed less of it was released and left it as a partial block.
// A page caches at most one block, so such pages are not offered.

// shareCommitted is the range of blocks that a step stores and others may hold.
// Only forks have any.
func (c *Coordinator) shareCommitted(it *step) (from, to int) {
	s := it.sequence
	if !s.forked || it.computed <= s.computed {
		return 0, 0
	}
	return s.computed / c.TokensPerBlock, min(s.sealed, it.computed/c.TokensPerBlock)
}

// inspectCommits asks the pools about the pages that forks commit.
func (c *Coordinator) inspectCommits() bool {
	c.resetWork()
	asked := false
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		from, to := c.shareCommitted(it)
		if from >= to {
			continue
		}
		asked = true
		for p := range c.Pools {
			c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: it.sequence.pools[p].tables[0][from:to]})
		}
	}
	return asked
}

// commitsInspected leaves out what lies in pages that cache a block already.
func (c *Coordinator) commitsInspected() {
	c.pooled()
	next := 0
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		from, to := c.shareCommitted(it)
		if from >= to {
			continue
		}
		it.offered = make([][]messages.PageID, len(c.Pools))
		for p := range c.Pools {
			it.offered[p] = slices.Clone(it.sequence.pools[p].tables[0])
			copy(it.offered[p][from:to], unstored(&c.work[p].Ops[next]))
		}
		next++
	}
	c.commitPhase()
}
