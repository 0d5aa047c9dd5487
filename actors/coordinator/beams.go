package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// A step of beams first follows the parents: each beam becomes a copy of its parent, and
// parents that no one chose drop their pages. Then it goes on as every step does.

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

// parent is the beam that a beam of a step goes on from: itself with beam width 1.
func (it *step) parent(beam int) int {
	if it.sequence.Width() == 1 {
		return beam
	}
	return it.request.Beams[beam].Parent
}

// countChosen counts the beams that go on from each one. One that none goes on from ends here.
func (it *step) countChosen() {
	it.chosen = append(it.chosen[:0], make([]int, it.sequence.Width())...)
	for beam := range it.chosen {
		it.chosen[it.parent(beam)]++
	}
}

// firstExchanged is the first block whose pages get other holders when beams follow
// their parents: a parent that no one chose drops all its pages, others only those
// that their beams will write to.
func (it *step) firstExchanged() int {
	if slices.Contains(it.chosen, 0) {
		return 0
	}
	return it.first
}

// followParents works out who holds the pages of a step after its beams followed their parents, and
// how many pages no one holds then.
func (e *extension) followParents(it *step, p int) (freed int) {
	// Apart from the shares: if a later pool lacks pages, the step is refused and what the others of
	// the batch see has not changed.
	now := e.batch.after[p]
	clear(now)
	if len(e.batch.shares[p]) == 0 {
		return 0 // the common step reads no table
	}
	for j, table := range it.sequence.Tables(p) {
		for _, page := range table[min(it.firstExchanged(), len(table)):] {
			// A page may be in the tables of several parents: its references change once for each.
			share, known := now[page]
			if !known {
				share, known = e.batch.shares[p][page]
			}
			// The pools have said how many references there are; each chosen child adds one, and
			// the parent's own goes when the children have theirs.
			if known {
				share.References += int32(it.chosen[j]) - 1
				now[page] = share
			}
		}
	}
	return countUnheld(now)
}

// countUnheld counts the pages that no one holds.
func countUnheld(shares map[messages.PageID]protocol.Share) (n int) {
	for _, share := range shares {
		if unheld(share) {
			n++
		}
	}
	return n
}

// exchangeTables gives each beam the table of its parent in one pool. The old tables stay in the
// step: a failure gives a sequence of beams, which is lost then, the pages back that its host
// knows.
func (e *extension) exchangeTables(it *step, p int) {
	s := it.sequence
	old := s.Tables(p)
	it.pools[p].old = old
	// The kernels of the last step read the tables as they were, all of them.
	for _, table := range old { // some of them are dropped
		e.out.move.markRead(s, p, table[it.firstExchanged():])
	}
	// New tables, not the old ones changed: undo may need the old ones, and two beams may
	// come from one parent.
	tables := make([][]messages.PageID, len(old))
	for beam := range tables {
		tables[beam] = slices.Clone(old[it.parent(beam)])
	}
	s.SetTables(p, tables)
}
