package coordinator

import "github.com/kvactor/kvactor/internal/protocol"

// lookAhead offloads ahead of demand: when nothing waits, the pages that would be
// evicted next are copied to unused host pages, so that an eviction finds a clean
// copy and no request waits for the link.
//
//	due ─▶ peeking ─▶ copying ─▶ done
//	       pools name  the offloader copies what it can, if the
//	       candidates  link is idle
//
// It looks a quarter of a pool far.
//
// It is no request: it has no stamp, leaves no use and changes no answer.
type lookAhead struct {
	*shared
	stages[lookAhead]
	offer protocol.OffloadAhead

	lookDue  bool // enough has changed since the last look
	busy     bool // the link was in use at the last look, in round at
	at       int64
	turnover []int // by pool: pages taken or newly cached since the last look
}

// The pages of a pool that a look considers. No more than maxLook, because the walk of a pool takes
// some microseconds for each hundred pages. One in 64 of them has to change before there is another
// look.
const (
	lookShare     = 4
	minLook       = 8
	maxLook       = 4096
	turnoverShare = 64
)

func newLookAhead(parts *shared) *lookAhead {
	return &lookAhead{shared: parts, turnover: make([]int, len(parts.config.Pools))}
}

// reach is how many pages of a pool should be free or copied.
func (a *lookAhead) reach(p int) int {
	return min(max(a.counts.device[p].Total/lookShare, minLook), maxLook)
}

// noteDemand counts the pages that a pool was asked for and those that became cached in
// it. The counts are still those before the work. A page for a checkpoint counts if it was
// found: a pool that had none to give gains nothing from copies made ahead.
func (a *lookAhead) noteDemand(p int, work *protocol.PoolWork) {
	for i := range work.Ops {
		switch op := &work.Ops[i]; op.Kind {
		case protocol.Take:
			a.turnover[p] += op.N
		case protocol.TakeForCheckpoint:
			a.turnover[p] += len(op.Pages)
		}
	}
	a.turnover[p] += max(0, work.Counts.Cached-a.counts.device[p].Cached)
	a.lookDue = a.lookDue || a.turnover[p] > 0 && a.turnover[p] >= a.reach(p)/turnoverShare
}

// due tells whether there is a reason for a look. A link that was busy is tried
// again after the next request.
func (a *lookAhead) due() bool {
	return a.config.Ahead && (a.lookDue || a.busy && a.stats.Rounds > a.at)
}

// begin asks the pools what would be evicted next. It returns false if no pool has
// too few free pages.
func (a *lookAhead) begin() bool {
	a.lookDue, a.busy, a.at = false, false, a.stats.Rounds
	clear(a.turnover)
	a.out.pools.reset()
	asked := false
	for p := range a.config.Pools {
		n := a.reach(p)
		if !a.counts.hasHost(p) || a.counts.device[p].Free >= n {
			continue
		}
		a.out.pools.add(p, protocol.PoolOp{Kind: protocol.PeekVictims, N: n - a.counts.device[p].Free})
		asked = true
	}
	// Every pool has enough free pages: a burst would find them.
	if !asked {
		return false
	}
	// A task without a round: requests that come now queue until the offloader has answered,
	// which it does without waiting for its copies.
	a.kernel.active = a
	a.wait(a, "look ahead: peeking", (*lookAhead).offerCandidates)
	a.out.pools.send()
	return true
}

// offerCandidates offers what the pools have named to the offloader.
func (a *lookAhead) offerCandidates() {
	a.out.pools.received()
	o := &a.offer
	o.Epoch, o.Stamp, o.Busy = a.kernel.epoch, a.kernel.stamp, false
	o.Pools, o.Copied = o.Pools[:0], o.Copied[:0]
	for p := range a.config.Pools {
		var candidates []protocol.Victim
		if w := &a.out.pools.work[p]; len(w.Ops) > 0 {
			candidates = w.Victims
		}
		o.Pools = append(o.Pools, candidates)
	}
	a.wait(a, "look ahead: copying", (*lookAhead).copied)
	a.kernel.toOffloader(o)
}

// copied counts.
func (a *lookAhead) copied() {
	o := &a.offer
	a.busy = o.Busy
	for p, n := range o.Copied {
		a.stats.copiedAhead(p, n)
	}
	a.kernel.active = nil
}
