package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

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

	lookDue  bool   // enough has changed since the last look
	busy     bool   // the link was in use at the last look: any demand makes another one due
	turnover []int  // by pool: pages taken or newly cached since the last look
	open     []bool // of one pool at a time, by page: those that may be written to
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
	a.lookDue = a.lookDue || a.busy ||
		a.turnover[p] > 0 && a.turnover[p] >= a.reach(p)/turnoverShare
}

// due tells whether there is a reason for a look.
func (a *lookAhead) due() bool { return a.config.Ahead && a.lookDue }

// begin asks the pools what would be evicted next. It returns false if no pool has
// too few free pages.
func (a *lookAhead) begin() bool {
	a.lookDue, a.busy = false, false
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
	o.Epoch, o.Busy = a.kernel.epoch, false
	o.Pools, o.Copied = o.Pools[:0], o.Copied[:0]
	for p := range a.config.Pools {
		var candidates protocol.EvictionCandidates
		if w := &a.out.pools.work[p]; len(w.Ops) > 0 {
			evictable := w.Ops[0].Count
			w.Victims = a.withoutOpen(p, w.Victims, evictable)
			candidates = protocol.EvictionCandidates{Victims: w.Victims, Evictable: evictable}
		}
		o.Pools = append(o.Pools, candidates)
	}
	a.wait(a, "look ahead: copying", (*lookAhead).copied)
	a.kernel.toOffloader(o)
}

// withoutOpen leaves out, of the candidates from the given index on, which are held,
// those that a sequence may write to: a page may cache the beginning of a block
// of which a host writes the rest without asking again, and would have to wait
// for the copy. It costs a look at each running sequence and at its blocks that
// are not computed.
func (a *lookAhead) withoutOpen(p int, candidates []protocol.Victim, held int) []protocol.Victim {
	// Candidates that no one holds are written to by no sequence.
	if held == len(candidates) {
		return candidates
	}
	a.open = append(a.open[:0], make([]bool, a.counts.device[p].Total)...)
	a.sequences.Each(func(s *sequence.Sequence) {
		for _, table := range s.Tables(p) {
			for _, page := range s.Uncomputed(p, table) {
				if page != messages.NoPage {
					a.open[page] = true
				}
			}
		}
	})
	closed := slices.DeleteFunc(candidates[held:],
		func(v protocol.Victim) bool { return a.open[v.Page] })
	return candidates[:held+len(closed)]
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
