package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// undoFailedCopies takes back every step of which a copy on write failed: the
// sequence gets its old pages again, the new ones are dropped.
func (c *Coordinator) undoFailedCopies() bool {
	failed := false
	for p := range c.move.Pools {
		for k := range c.move.Pools[p].Copies {
			failed = failed || c.move.Pools[p].Copies[k].Failed
		}
	}
	if !failed {
		return false
	}
	taken := c.takenPages()
	var undo []*step
	for i := range c.stepping.items {
		if it := &c.stepping.items[i]; !it.refused && c.copyFailed(it) {
			undo = append(undo, it)
		}
	}
	c.resetWork()
	c.resetMove()
	for _, it := range undo {
		c.undoStep(it, taken)
	}
	return true
}

// takenPages are, by pool, all pages that the steps have taken.
func (c *Coordinator) takenPages() []map[messages.PageID]bool {
	taken := make([]map[messages.PageID]bool, len(c.Pools))
	for p := range taken {
		taken[p] = map[messages.PageID]bool{}
		for i := range c.stepping.items {
			if it := &c.stepping.items[i]; !it.refused {
				for _, page := range it.result.NewPages[p] {
					taken[p][page] = true
				}
			}
		}
	}
	return taken
}

// copyFailed tells whether a copy on write of a step failed.
func (c *Coordinator) copyFailed(it *step) bool {
	for p := range it.pools {
		for _, w := range it.pools[p].copies {
			for k := range c.move.Pools[p].Copies {
				if m := &c.move.Pools[p].Copies[k]; m.Failed && m.To == w.to {
					return true
				}
			}
		}
	}
	return false
}

// undoStep takes one step back. A sequence whose old page has gone to another
// step meanwhile, or is another's alone now, or whose beams have followed their
// parents, is lost.
func (c *Coordinator) undoStep(it *step, taken []map[messages.PageID]bool) {
	s := it.sequence
	it.refused, it.computed = true, 0
	it.result.Err = messages.Refuse(messages.Internal, "a copy on write failed")
	lost := s.width() > 1
	for p := range it.pools {
		for _, w := range it.pools[p].copies {
			lost = lost || taken[p][w.from] || c.writtenByOthers(it, p, w.from)
		}
	}
	if lost {
		c.lose(s, it)
		return
	}
	for p := range it.pools {
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: slices.Clone(it.result.NewPages[p]), Use: s.use})
		it.result.NewPages[p] = it.result.NewPages[p][:0]
	}
	s.tokens[0] = s.tokens[0][:s.length()-len(it.request.Tokens)]
	for p := range it.pools {
		var old []messages.PageID
		table := s.pools[p].tables[0][:it.pools[p].before]
		for _, w := range it.pools[p].copies {
			table[w.block] = w.from
			old = append(old, w.from)
		}
		s.pools[p].tables[0] = table
		c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: old})
	}
	s.sealed = len(s.pools[0].tables[0])
	s.use = it.use
}

// writtenByOthers tells whether another step has the page for itself since this
// one let it go, and will write to it.
func (c *Coordinator) writtenByOthers(it *step, p int, page messages.PageID) bool {
	for i := range c.stepping.items {
		other := &c.stepping.items[i]
		if other == it || other.refused {
			continue
		}
		for _, table := range other.sequence.pools[p].tables {
			if slices.Contains(table[min(other.first, len(table)):], page) {
				return true
			}
		}
	}
	return false
}

// lose gives up a sequence: it holds nothing from then on.
func (c *Coordinator) lose(s *sequence, it *step) {
	s.lost = true
	it.result.Err = messages.Refuse(messages.SequenceLost, "sequence %v was lost: a copy on write failed", s.id)
	for p := range s.pools {
		it.pools[p].old = it.oldTables(p) // should its host never hear of it
		it.result.NewPages[p] = it.result.NewPages[p][:0]
		for b, table := range s.pools[p].tables {
			pages := slices.Clone(table)
			c.markRead(s, p, pages)
			c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: s.use})
			s.pools[p].tables[b] = table[:0]
		}
	}
}

// undo takes back what the request under way has changed in the sequences.
func (c *Coordinator) undo() {
	c.sealOffered()
	switch c.round.request.(type) {
	case *messages.Admit, *protocol.DryRunAdmit, *messages.Lookup, *messages.PinPrefix, *messages.Prefetch:
		if !c.settled {
			c.undoAdmission()
		}
	case *messages.Append:
		if !c.settled {
			c.undoAppend()
		}
	case *messages.Rebalance:
		if !c.settled {
			c.undoRebalance()
		}
	}
}

// undoAdmission ends the sequences of a batch that was not answered.
func (c *Coordinator) undoAdmission() {
	for i := range c.admitting.items {
		it := &c.admitting.items[i]
		if it.sequence != nil && it.sequence.running {
			it.sequence.symbols = nil // the symbols stay in the tree, unused
			c.sequences.end(it.sequence)
		}
	}
	for _, s := range c.admitting.served {
		if s.running {
			s.symbols = nil
			c.sequences.end(s)
		}
	}
	c.admitting.items, c.admitting.served = c.admitting.items[:0], c.admitting.served[:0]
}

// oldTables are the tables of a sequence in one pool before its step. They are
// clones: pools may still have to read messages that point into what they were.
func (it *step) oldTables(p int) [][]messages.PageID {
	pages := &it.pools[p]
	switch tables := it.sequence.pools[p].tables; {
	case pages.old != nil:
		return slices.Clone(pages.old)
	case len(tables) > 1: // they have not followed yet
		return tables
	}
	table := slices.Clone(it.sequence.pools[p].tables[0][:pages.before])
	for _, w := range pages.copies {
		table[w.block] = w.from
	}
	return [][]messages.PageID{table}
}

// undoAppend takes back the tokens and pages of a step that was not finished. A
// sequence that is lost over it, too, holds what it held before: its host knows no
// other pages and may launch kernels on them until it hears of the loss.
func (c *Coordinator) undoAppend() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		s := it.sequence
		if !it.extended || it.refused && !s.lost {
			continue
		}
		// Beams have followed their parents; or an old page may hold another step's
		// bytes.
		lost := s.lost || s.width() > 1 || c.copiedOver(it)
		for p := range s.pools {
			s.pools[p].tables = it.oldTables(p)
		}
		if lost {
			s.lose()
			continue
		}
		s.tokens[0] = s.tokens[0][:s.length()-len(it.request.Tokens)]
		s.sealed = max(s.sealed, len(s.pools[0].tables[0]))
		s.use = it.use
	}
	c.stepping.items = c.stepping.items[:0] // another failure must not undo it again
}

// copiedOver tells whether a page that a step copied and let go is one that
// another step's copy on write was to be written to.
func (c *Coordinator) copiedOver(it *step) bool {
	for p := range it.pools {
		for _, w := range it.pools[p].copies {
			for i := range c.stepping.items {
				if slices.ContainsFunc(c.stepping.items[i].pools[p].copies, func(other rewrite) bool { return other.to == w.from }) {
					return true
				}
			}
		}
	}
	return false
}
