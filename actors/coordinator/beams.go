package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// A beam step first follows the parents: beam i becomes a copy of its parent, and
// parents that no one chose drop their pages. Then every page that holds positions
// from the first uncomputed one on becomes the beam's own, and new blocks get their
// pages, one beam after the other.

// validateBeams checks the beams of a step. All beams grow by one token in each step, so that
// their tables keep one length.
func validateBeams(s *sequence.Sequence, r *messages.AppendStep) error {
	width := s.Width()
	if len(r.Tokens) > 0 {
		return refusals.New(messages.ErrBadRequest, "tokens for a sequence of beam width %d", width)
	}
	if len(r.Beams) != width {
		return refusals.New(messages.ErrBadRequest, "%d beams for a sequence of beam width %d",
			len(r.Beams), width)
	}
	for _, b := range r.Beams {
		if b.Parent < 0 || b.Parent >= width {
			return refusals.New(messages.ErrBadRequest, "beam parent %d of beam width %d", b.Parent, width)
		}
		if b.Token < 0 {
			return refusals.New(messages.ErrBadRequest, "token %d is not in 0 … 2³¹−1", b.Token)
		}
	}
	return nil
}

// takeBeams decides about one step of a sequence with beams. It tells whether the tables
// change: they do for every step that is not refused, since beams follow their parents.
func (e *extension) takeBeams(it *step) bool {
	s := it.sequence
	blocks := e.config.blocks(int(s.Length()) + 1)
	// How many beams go on from each parent. One that none goes on from ends here; the
	// pages that only it held are free for the step.
	chosen := make([]int, s.Width())
	// A parent that k beams go on from gets k−1 further references, one that none goes on from
	// loses its own.
	for _, b := range it.request.Beams {
		chosen[b.Parent]++
	}
	pools := e.self.end
	// The holders are worked out on copies: if a later pool lacks pages, the step is refused
	// and what the others of the batch see has not changed.
	shares := make([]map[messages.PageID]protocol.Share, pools)
	freed := make([]int, pools)
	for p := range e.self.end {
		shares[p], freed[p] = e.followParents(it, p, chosen)
		// Every beam writes its own token, so each needs a page of its own for a block that
		// begins, and a copy of a block that it shares with another beam.
		need := e.findBeamRewrites(it, p, shares[p]) + s.Width()*(blocks-it.pools[p].before)
		if refusal := e.pressure.lack(p, need, e.counts.available(p)-e.batch.taken[p]+freed[p],
			need); refusal != nil {
			e.refuse(it, refusal)
			return false
		}
	}
	// All pools have the pages, so from here on nothing is refused: operations are added, and
	// what later steps of the batch see changes.
	for p := range e.self.end {
		e.takeBeamPages(it, p, chosen, blocks)
		// What ended beams alone held counts as available for the steps behind this one.
		e.batch.taken[p] -= freed[p]
		// Steps behind this one see the holders as they are then: a page of the prompt may be in
		// the tables of other sequences, too.
		for page, share := range shares[p] {
			e.batch.shares[p][page] = share
		}
	}
	return true
}

// firstExchanged is the first block whose pages get other holders when beams follow
// their parents: a parent that no one chose drops all its pages, others only those
// that their beams will write to.
func (it *step) firstExchanged() int {
	for parent := range it.sequence.Width() {
		if !slices.ContainsFunc(it.request.Beams,
			func(b messages.BeamStep) bool { return b.Parent == parent }) {
			return 0
		}
	}
	return it.first
}

// followParents works out who holds these pages after the beams followed their
// parents, and how many pages no one holds then.
func (e *extension) followParents(
	it *step, p int, chosen []int,
) (now map[messages.PageID]protocol.Share, freed int) {
	// A page may be in the tables of several parents: its references change once for each.
	now = map[messages.PageID]protocol.Share{}
	for j, table := range it.sequence.Tables(p) {
		for _, page := range table[it.firstExchanged():] {
			if page == messages.NoPage {
				continue
			}
			// The pools have said how many references there are; each chosen child adds one, and
			// the parent's own goes when the children have theirs.
			share, seen := now[page]
			if !seen {
				share = e.batch.shares[p][page]
			}
			share.References += int32(chosen[j]) - 1
			now[page] = share
		}
	}
	for _, share := range now {
		if share.References == 0 && share.Pins == 0 {
			freed++
		}
	}
	return now, freed
}

// findBeamRewrites lists the pages that beams must copy, in order of beams, and
// returns their number.
func (e *extension) findBeamRewrites(
	it *step, p int, shares map[messages.PageID]protocol.Share,
) int {
	s, pages := it.sequence, &it.pools[p]
	pages.copies = pages.copies[:0]
	// In the order of the beams: fillBeams gives the pages out in the same order.
	for i, b := range it.request.Beams {
		table := s.Tables(p)[b.Parent]
		// From the first block that is not computed to its end; blocks before it are only read,
		// and beams go on sharing those.
		for block := it.first; block < len(table); block++ {
			page := table[block]
			share := shares[page]
			if heldByOthers(share) {
				pages.copies = append(pages.copies, pageRewrite{beam: i, block: block, from: page,
					to: messages.NoPage})
				// The beam that copies gives its reference up: the last holder keeps the page and
				// copies nothing.
				share.References--
				shares[page] = share
			}
		}
	}
	return len(pages.copies)
}

// takeBeamPages adds the operations of one pool: references of the parents that
// were chosen more than once, those that were not chosen, copies, blocks. The old pages of
// copies are dropped last, so that the take before gets none of them.
func (e *extension) takeBeamPages(it *step, p int, chosen []int, blocks int) {
	s, pages := it.sequence, &it.pools[p]
	tables := s.Tables(p)
	for j, n := range chosen {
		// Claims before drops, so that no page of a chosen parent is free in between.
		e.out.pools.claimBeams(p, tables[j], n)
	}
	// Behind the claims of all parents: two parents may share a page, and a page that no one
	// holds for a moment would be evictable.
	for j, n := range chosen {
		if n == 0 {
			e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: tables[j], Use: s.Usage.Use()})
		}
	}
	// One operation takes all pages of the step in this pool; fillBeams gives them out in
	// the order in which they were counted.
	n := len(pages.copies) + s.Width()*(blocks-pages.before)
	e.batch.taken[p] += n
	if n > 0 {
		pages.copyOp = e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.Tenant})
	}
	if len(pages.copies) > 0 {
		old := make([]messages.PageID, 0, len(pages.copies))
		for _, w := range pages.copies {
			old = append(old, w.from)
		}
		e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: old, Use: s.Usage.Use().Early()})
	}
}

// fillBeams rebuilds the tables of one pool: parents' tables, copies, new blocks,
// in the order in which the pages were counted. It tells whether pages were taken. The old
// tables stay in the step: a failure gives a sequence of beams, which is lost then, the pages
// back that its host knows.
func (e *extension) fillBeams(it *step, p int) bool {
	s, pages := it.sequence, &it.pools[p]
	old := s.Tables(p)
	pages.old = old
	// The kernels of the last step read the tables as they were, all of them.
	for _, table := range old { // some of them are dropped
		e.out.move.markRead(s, p, table[it.firstExchanged():])
	}
	// New tables, not the old ones changed: undo may need the old ones, and two beams may
	// come from one parent.
	tables := make([][]messages.PageID, len(old))
	for i, b := range it.request.Beams {
		tables[i] = slices.Clone(old[b.Parent])
	}
	s.SetTables(p, tables)
	if pages.copyOp < 0 {
		return false
	}
	taken := e.out.pools.op(p, pages.copyOp).Pages
	fresh := e.config.blocks(int(s.Length())) - pages.before
	next, k := 0, 0
	for i := range tables {
		for ; k < len(pages.copies) && pages.copies[k].beam == i; k++ {
			e.rewrite(it, p, &pages.copies[k], taken[next])
			next++
		}
		it.noteNew(p, i, len(tables[i]), taken[next:next+fresh])
		tables[i] = append(tables[i], taken[next:next+fresh]...)
		next += fresh
	}
	e.stats.appended(p, len(taken))
	return true
}
