package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// foresight is the state of offloading ahead of demand: when nothing waits, the
// pages that would be evicted next are copied to unused host pages, so that an
// eviction finds a clean copy and nobody waits for the link.
//
// How far it looks follows demand: as many pages as two of the largest of the
// last steps between looks have taken, so that a burst like the last ones finds
// copies even if the link has not been idle since the one before.
type foresight struct {
	due   bool // enough has changed since the last look
	busy  bool // the link was in use at the last look, in round at
	at    int64
	churn []int    // by pool: pages taken or newly cached since the last look
	taken []int    // by pool: pages taken since the last look that found the link idle
	peak  []int    // by pool: the most that was taken so, fading
	open  []uint64 // of one pool at a time, a bit a page: those that may be written to
}

// The pages of a pool that are looked at: at least an eighth, so that there is
// something before demand is known, and no more than there are spare pages for
// when host memory is full; at most half of them, of which a walk takes
// microseconds a hundred. One in 64 of them has to change before it is worth
// another look.
const (
	foresightShare = 8
	minForesight   = 8
	maxForesight   = 4096
	churnShare     = 64
	peakFades      = 16 // a sixteenth of the peak is forgotten with each look
)

// foreseeable is how many pages of a pool should be free or copied.
func (c *Coordinator) foreseeable(p int) int {
	total := c.pages[p].Total
	n := max(total/foresightShare, minForesight, 2*c.ahead.peak[p])
	return min(n, max(total/2, minForesight), maxForesight)
}

// noteChurn counts what a pool was asked for and what became cached in it.
func (c *Coordinator) noteChurn(p int) {
	a := &c.ahead
	for i := range c.work[p].Ops {
		if op := &c.work[p].Ops[i]; op.Kind == protocol.Take {
			a.taken[p] += op.N
			a.churn[p] += op.N
		}
	}
	a.churn[p] += max(0, c.work[p].Counts.Cached-c.pages[p].Cached)
	a.due = a.due || a.churn[p] > 0 && a.churn[p] >= c.foreseeable(p)/churnShare
}

// lookAhead starts a look if there is a reason for one. It is no request: it
// has no stamp, leaves no use and changes no answer. A link that was busy is
// tried again after the next request.
func (c *Coordinator) lookAhead() bool {
	a := &c.ahead
	if !c.Ahead || !a.due && !(a.busy && c.stats.Rounds > a.at) {
		return false
	}
	a.due, a.busy, a.at = false, false, c.stats.Rounds
	clear(a.churn)
	c.resetWork()
	asked := false
	for p := range c.Pools {
		a.peak[p] = max(a.peak[p]-ceilDiv(a.peak[p], peakFades), a.taken[p])
		n := c.foreseeable(p)
		if c.host[p].Total == 0 || c.pages[p].Free >= n {
			continue
		}
		c.add(p, protocol.PoolOp{Kind: protocol.PeekVictims, N: n - c.pages[p].Free})
		asked = true
	}
	if !asked {
		clear(a.taken)
		return false
	}
	c.sendPools((*Coordinator).foreseen)
	return true
}

// foreseen offers what was seen to the offloader.
func (c *Coordinator) foreseen() {
	c.pooled()
	a := &c.offer
	a.Epoch, a.Stamp, a.Busy = c.epoch, c.stamp, false
	a.Pools, a.Copied = a.Pools[:0], a.Copied[:0]
	for p := range c.work {
		var seen protocol.EvictionCandidates
		if w := &c.work[p]; len(w.Ops) > 0 {
			w.Victims = c.withoutOpen(p, w.Victims, w.Ops[0].Count)
			seen = protocol.EvictionCandidates{Victims: w.Victims, Evictable: w.Ops[0].Count}
		}
		a.Pools = append(a.Pools, seen)
	}
	c.pending++
	c.next = (*Coordinator).copiedAhead
	c.port.Offloader(a)
}

// withoutOpen leaves out, of the candidates from index near on, which are held,
// those that a sequence may write to: a page may cache the beginning of a block
// of which a host writes the rest without asking again, and would have to wait
// for the copy. It costs a look at each running sequence and at its blocks that
// are not computed.
func (c *Coordinator) withoutOpen(p int, candidates []protocol.Victim, near int) []protocol.Victim {
	if near == len(candidates) {
		return candidates
	}
	c.markOpen(p)
	held := slices.DeleteFunc(candidates[near:], func(v protocol.Victim) bool {
		return c.ahead.open[v.Page/64]&(1<<(v.Page%64)) != 0
	})
	return candidates[:near+len(held)]
}

// markOpen marks the pages of a pool that sequences may write to.
func (c *Coordinator) markOpen(p int) {
	a := &c.ahead
	a.open = append(a.open[:0], make([]uint64, c.pages[p].Total/64+1)...)
	c.sequences.each(func(s *sequence) {
		for _, table := range s.pools[p].tables {
			for _, page := range table[min(s.computed/c.TokensPerBlock, len(table)):] {
				if page != messages.NoPage {
					a.open[page/64] |= 1 << (page % 64)
				}
			}
		}
	})
}

// copiedAhead counts.
func (c *Coordinator) copiedAhead() {
	a := &c.offer
	if c.ahead.busy = a.Busy; !a.Busy {
		clear(c.ahead.taken)
	}
	for p, n := range a.Copied {
		count := &c.stats.Pools[p].PoolCounters
		count.AheadPages += int64(n)
		count.BytesOffloaded += int64(n) * c.Pools[p].PageBytes()
		c.ordered = c.ordered || n > 0
	}
}
