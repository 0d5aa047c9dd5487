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
// How far it looks follows demand: as many pages as two of the largest of the
// last steps between looks have taken, so that a burst like the last ones finds
// copies even if the link has not been idle since the one before.
//
// It is no request: it has no stamp, leaves no use and changes no answer.
type lookAhead struct {
	*shared
	stages[lookAhead]
	offer protocol.OffloadAhead

	lookDue  bool // enough has changed since the last look
	busy     bool // the link was in use at the last look, in round at
	at       int64
	turnover []int  // by pool: pages taken or newly cached since the last look
	taken    []int  // by pool: pages taken since the last look that found the link idle
	peak     []int  // by pool: the most that was taken so, fading
	open     []bool // of one pool at a time, by page: those that may be written to
}

// The pages of a pool that a look considers. An eighth is the least, before demand is
// known: as many as there are spare pages when host memory is full. Half is the most,
// because the walk of a pool takes some microseconds for each hundred pages. One in 64
// of them has to change before there is another look.
const (
	lookShare     = 8
	minLook       = 8
	maxLook       = 4096
	turnoverShare = 64
	peakFades     = 16 // a sixteenth of the peak is forgotten with each look
)

func newLookAhead(parts *shared) *lookAhead {
	n := len(parts.config.Pools)
	return &lookAhead{shared: parts, turnover: make([]int, n), taken: make([]int, n),
		peak: make([]int, n)}
}

// reach is how many pages of a pool should be free or copied.
func (a *lookAhead) reach(p int) int {
	total := a.counts.device[p].Total
	n := max(total/lookShare, minLook, 2*a.peak[p])
	return min(n, max(total/2, minLook), maxLook)
}

// noteDemand counts the pages that a pool was asked for and those that became cached in
// it. The counts are still those before the work. A page for a checkpoint counts if it was
// found: a pool that had none to give gains nothing from copies made ahead.
func (a *lookAhead) noteDemand(p int, work *protocol.PoolWork) {
	for i := range work.Ops {
		op, taken := &work.Ops[i], 0
		switch op.Kind {
		case protocol.Take:
			taken = op.N
		case protocol.TakeForCheckpoint:
			taken = len(op.Pages)
		}
		a.taken[p] += taken
		a.turnover[p] += taken
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
		// The peak fades with looks and not with time: a pause does not make the engine forget
		// its bursts.
		a.peak[p] = max(a.peak[p]-ceilDiv(a.peak[p], peakFades), a.taken[p])
		n := a.reach(p)
		if !a.counts.hasHost(p) || a.counts.device[p].Free >= n {
			continue
		}
		a.out.pools.add(p, protocol.PoolOp{Kind: protocol.PeekVictims, N: n - a.counts.device[p].Free})
		asked = true
	}
	// Every pool has enough free pages: a burst would find them.
	if !asked {
		clear(a.taken)
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
	// With a busy link nothing was copied, so the demand of this time counts for the next look.
	if a.busy = o.Busy; !o.Busy {
		clear(a.taken)
	}
	for p, n := range o.Copied {
		a.stats.copiedAhead(p, n)
	}
	a.kernel.active = nil
}
