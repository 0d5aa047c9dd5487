package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// An Append is taken back in two ways. When a copy on write fails, the steps that
// wanted it give the new pages back and get their old ones again, in the same round
// (takeBackFailed). When an actor fails, all pools are rebuilt from the tables, so
// only the tables have to be as they were (undo).

// takeBackFailed takes back every step of which a copy on write failed: the
// sequence gets its old pages again, the new ones are dropped. It tells whether
// there were any. The other steps of the request go on to their commit: a copy that the device
// refuses concerns only the steps that wanted it.
func (e *extension) takeBackFailed() bool {
	// All are found before any is taken back: taking one back changes the tables in which the next
	// is looked for.
	var undo, lost []*step
	for i := range e.batch.items {
		it := &e.batch.items[i]
		switch {
		case it.refused || !e.copyFailed(it):
		case it.sequence.Width() > 1 || e.passedOn(it):
			lost = append(lost, it)
		default:
			undo = append(undo, it)
		}
	}
	if len(undo)+len(lost) == 0 {
		return false
	}
	e.out.reset()
	// Pages are claimed again before lost sequences drop theirs: a page that both hold would be free
	// in between.
	for _, it := range undo {
		e.takeBack(it)
	}
	for _, it := range lost {
		e.dropLost(it)
	}
	return true
}

// copyFailed tells whether a copy on write of a step failed. Copies are known by the page that
// they are written to, which one copy alone has.
func (e *extension) copyFailed(it *step) bool {
	for p := range it.pools {
		if slices.ContainsFunc(it.pools[p].copies,
			func(w pageRewrite) bool { return e.out.move.copyFailed(p, w.to) }) {
			return true
		}
	}
	return false
}

// passedOn tells whether an old page of a step has gone to another step meanwhile, or is written to
// by another one that holds it alone now. Then its bytes are not this sequence's any more. Pages
// before the other step's first one are only read by it, and have the bytes that they had.
func (e *extension) passedOn(it *step) bool {
	for p := range it.pools {
		for _, w := range it.pools[p].copies {
			for i := range e.batch.items {
				other := &e.batch.items[i]
				if other.refused {
					continue
				}
				// Also this step itself may have taken it for a block that begins.
				if slices.Contains(other.result.NewPages[p], w.from) {
					return true
				}
				// One that is taken back, too, writes nothing.
				if other != it && !e.copyFailed(other) && slices.ContainsFunc(other.sequence.Tables(p),
					func(table []messages.PageID) bool {
						return slices.Contains(table[min(other.first, len(table)):], w.from)
					}) {
					return true
				}
			}
		}
	}
	return false
}

// giveUp refuses a step that is not served, so that the commit that follows leaves it out.
func (e *extension) giveUp(it *step, err error) {
	// A step that takes no page commits nothing, either: the host has not been told where
	// the tokens would have gone, and sends both again.
	it.refused, it.computed = true, 0
	it.result.Err = err
	e.stats.RefusedSteps.Note(err)
	it.result.Placed = it.result.Placed[:0]
}

// takeBack takes one step back, as a whole: also the pages of copies that succeeded.
func (e *extension) takeBack(it *step) {
	s := it.sequence
	e.giveUp(it, refusals.New(messages.ErrInternal, "a copy on write failed"))
	for p := range it.pools {
		e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop,
			Pages: slices.Clone(it.result.NewPages[p]), Use: s.Use})
		it.result.NewPages[p] = it.result.NewPages[p][:0]
		// The step has dropped its references to the old pages, and no step has taken one of
		// them since: they can be claimed like any cached or shared page.
		var old []messages.PageID
		for _, w := range it.pools[p].copies {
			old = append(old, w.from)
		}
		e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: old})
	}
	e.restore(it)
}

// restore gives a sequence the tokens and tables that it had before its step.
func (e *extension) restore(it *step) {
	s := it.sequence
	for p := range it.pools {
		s.SetTables(p, it.oldTables(p))
	}
	s.Shorten(len(it.request.Tokens))
	// The step may have noted pages as the sequence's own, which others hold as before.
	s.ShareAll()
	s.Use = it.use
}

// dropLost gives a sequence up whose step cannot be taken back: it holds nothing
// from then on. Should the round break off before its host is told, it gets the old
// tables back. The pages leave with the round, so its host must not use them once it has the
// answer.
func (e *extension) dropLost(it *step) {
	s := it.sequence
	s.MarkLost(sequence.LostCopy)
	e.giveUp(it, refusals.New(messages.ErrSequenceLost, "sequence %v was lost%v", s.ID(),
		sequence.LostCopy))
	// The old tables are kept first: what they are made from is cleared below.
	for p := range it.pools {
		it.pools[p].old = it.oldTables(p)
		it.result.NewPages[p] = it.result.NewPages[p][:0]
		for _, table := range s.Tables(p) {
			// Kernels that the host has named before may still read the pages.
			pages := slices.Clone(table)
			e.out.move.markRead(s, p, pages)
			e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: s.Use})
		}
	}
	// Its references go in this round. Sequences that are lost in other ways hold their pages
	// until they are released.
	s.Clear()
}

// oldTables are the tables of a sequence in one pool before its step. They are
// clones: pools may still have to read messages that point into what they were. With beam width
// 1 the tables are made from copies and before; fillBeams and dropLost, which replace or empty
// the tables, keep the old ones.
func (it *step) oldTables(p int) [][]messages.PageID {
	pages := &it.pools[p]
	switch tables := it.sequence.Tables(p); {
	case pages.old != nil:
		return slices.Clone(pages.old)
	case len(tables) > 1: // they have not followed yet
		return tables
	}
	table := slices.Clone(it.sequence.Table(p)[:pages.before])
	for _, w := range pages.copies {
		table[w.block] = w.from
	}
	return [][]messages.PageID{table}
}

// undo takes back the tokens and pages of steps that were not committed. A
// sequence that is lost over it, too, holds what it held before: its host knows no
// other pages and may launch kernels on them until it is told of the loss. Pages are not given
// back, because the pools are rebuilt from these tables.
func (e *extension) undo() {
	for i := range e.batch.items {
		it := &e.batch.items[i]
		s := it.sequence
		// Steps that were refused, or that did not come to their tokens, have changed nothing.
		// A lost one has: it gets its tables back, too.
		if !it.extended || it.refused && !s.IsLost() {
			continue
		}
		// Beams have followed their parents; or an old page may hold another step's
		// bytes.
		if s.Width() > 1 || e.copiedOver(it) {
			s.MarkLost(sequence.LostActor)
		}
		e.restore(it)
	}
}

// copiedOver tells whether a page that a step copied and dropped is one that
// another step's copy on write was to be written to. Whether the device has made that copy is
// not known, so the bytes of the old page are in doubt.
func (e *extension) copiedOver(it *step) bool {
	for p := range it.pools {
		for _, w := range it.pools[p].copies {
			for i := range e.batch.items {
				if slices.ContainsFunc(e.batch.items[i].pools[p].copies,
					func(other pageRewrite) bool { return other.to == w.from }) {
					return true
				}
			}
		}
	}
	return false
}
