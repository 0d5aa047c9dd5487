package coordinator

import (
	"maps"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Copies on write of an extension: which pages others hold, the pages that take their places,
// and the copies of what has been written.

// pageRewrite is a page that is copied because others hold it, too. With beam width 1 from is
// what takeBack and undo put back into the table.
type pageRewrite struct {
	beam, block int
	from, to    messages.PageID // to: NoPage until the pages are taken
}

// inspect asks the pools about every page that a step may write to and that others
// may hold. Most steps have none.
func (e *extension) inspect() {
	e.out.pools.reset()
	// All steps are asked about in one message: what one step is about to do must not be seen
	// in the answer about another one.
	for i := range e.batch.items {
		it := &e.batch.items[i]
		s := it.sequence
		// Pages from first on may be written to: they hold tokens that are not computed. Those
		// from SharedBlocks on are known to be the sequence's own, so they are not asked about.
		blocks := int(s.Blocks())
		it.first = min(int(s.Computed())/e.config.TokensPerBlock, blocks)
		it.countChosen()
		first, last := it.first, min(int(s.SharedBlocks()), blocks)
		if s.Width() > 1 {
			// Beams exchange whole tables when they follow their parents.
			first, last = it.firstExchanged(), blocks
		}
		if first >= last {
			continue
		}
		for p := range e.self.end {
			for _, table := range s.Tables(p) {
				e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[first:last]})
			}
		}
	}
}

// inspected remembers what the pools said of each page. The answers stand for the state before
// the request; takePages carries them on from step to step.
func (e *extension) inspected() {
	e.out.pools.received()
	for p := range e.self.end {
		for k := range e.out.pools.ops(p) {
			op := e.out.pools.op(p, k)
			for j, page := range op.Pages {
				// A page that two steps of the request hold was asked about twice; both answers are the
				// same, for no page has been taken or dropped yet.
				if page != messages.NoPage {
					e.batch.shares[p][page] = op.Shares[j]
				}
			}
		}
	}
	e.take()
}

// findRewrites lists the pages that the beams of a step must copy in a pool, in order of beams, and
// returns their number: those that others hold, from the first block that is not computed to its
// end. Blocks before it are only read.
func (e *extension) findRewrites(it *step, p int) int {
	pages, now := &it.pools[p], e.batch.after[p]
	pages.copies = pages.copies[:0]
	if len(now) == 0 {
		return 0
	}
	for beam := range it.sequence.Width() {
		table := it.sequence.Tables(p)[it.parent(beam)]
		for block := it.first; block < len(table); block++ {
			page := table[block]
			// Pages that were not asked about are the sequence's own.
			share := now[page]
			if heldByOthers(share) {
				pages.copies = append(pages.copies, pageRewrite{beam: beam, block: block, from: page,
					to: messages.NoPage})
				// The one that copies gives its reference up: the last holder, a beam or the next step of
				// the batch, keeps the page and copies nothing.
				share.References--
				now[page] = share
			}
		}
	}
	return len(pages.copies)
}

// heldByOthers tells whether a page that a sequence holds is held by others, too. A page that
// caches a block counts as held by others even if no other sequence has it: the tree would go
// on to find the block there.
func heldByOthers(s protocol.Share) bool { return s.References > 1 || s.Pins > 0 || s.Stored }

// takePages adds the operations of a step in one pool: references of the parents that were chosen
// more than once, the ends of those that were not chosen, copies on write, blocks that begin.
func (e *extension) takePages(it *step, p int) {
	s, pages := it.sequence, &it.pools[p]
	tables := s.Tables(p)
	for j, n := range it.chosen {
		// Claims before drops, so that no page of a chosen parent is free in between.
		e.out.pools.claimBeams(p, tables[j], n)
	}
	// Behind the claims of all parents: two parents may share a page, and a page that no one
	// holds for a moment would be evictable.
	for j, n := range it.chosen {
		if n == 0 {
			e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: tables[j], Use: s.Use})
		}
	}
	if n := len(pages.copies); n > 0 {
		// The new pages are taken before the old ones are dropped, so they cannot be the old ones. What
		// the copies drop can be evicted for the new blocks of this very step.
		pages.copyOp = e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.Tenant})
		old := make([]messages.PageID, 0, n)
		for _, w := range pages.copies {
			old = append(old, w.from)
		}
		e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: old, Use: s.Use.Early()})
	}
	if n := e.begun(it, p); n > 0 {
		pages.fresh = e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.Tenant,
			Pages: pages.begun[:0]})
	}
	// The steps behind this one see the holders as they are then. What no one holds any more is
	// cached or free, and they may take it.
	now := e.batch.after[p]
	e.batch.taken[p] += len(pages.copies) + e.begun(it, p) - countUnheld(now)
	maps.Copy(e.batch.shares[p], now)
}

// placePages puts the pages that a step has taken in one pool into the tables: copies first, then
// new blocks, one beam after the other. It tells whether there are any.
func (e *extension) placePages(it *step, p int) bool {
	s, pages := it.sequence, &it.pools[p]
	var copied, begun []messages.PageID
	if pages.copyOp >= 0 {
		copied = e.out.pools.op(p, pages.copyOp).Pages
	}
	if pages.fresh >= 0 {
		begun = e.out.pools.op(p, pages.fresh).Pages
		pages.begun = begun
	}
	n := len(copied) + len(begun)
	if e.states.has(p) {
		e.stats.allocated(p, n)
	} else {
		e.stats.appended(p, n)
	}
	tables, k := s.Tables(p), 0
	for beam := range tables {
		for ; k < len(copied) && pages.copies[k].beam == beam; k++ {
			e.rewrite(it, p, &pages.copies[k], copied[k])
		}
		each := len(begun) / (len(tables) - beam)
		it.noteNew(p, beam, pages.before, begun[:each])
		tables[beam] = append(tables[beam], begun[:each]...)
		begun = begun[each:]
	}
	return n > 0
}

// rewrite puts a page in the place of one that others hold, and copies what the
// sequence has written there.
func (e *extension) rewrite(it *step, p int, w *pageRewrite, page messages.PageID) {
	s := it.sequence
	// Kernels of the sequence may still write the old page, which the copy reads.
	if after := s.After; !after.IsZero() {
		e.out.move.mark(p, []messages.PageID{w.from}, true, after)
	}
	w.to = page
	s.Tables(p)[w.beam][w.block] = page
	// Replaced is the page that the host's table has for the block until now.
	it.notePage(messages.PlacedPage{Pool: messages.PoolID(p), Beam: w.beam, Block: w.block, Page: page,
		Replaced: w.from})
	tpb := e.config.TokensPerBlock
	// Only what has been written is copied. A page that begins with the step has nothing
	// to copy, but it must not be written to by two sequences.
	if tokens := min(tpb, it.written()-w.block*tpb); tokens > 0 {
		e.out.move.copy(p, protocol.PageCopy{From: protocol.OnDevice(w.from), Block: protocol.NoBlock,
			To: page, Tokens: tokens})
	}
}
