package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Copies on write of an extension: which pages others hold, the pages that take their places,
// and the copies of what has been written.

// pageRewrite is a page that is copied because others hold it, too. With beam width 1 from is
// what takeBack and undoTables put back into the table.
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
// the request; takeRewrites and takeBeams carry them on from step to step.
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

// findRewrites lists the pages of a step that others hold.
func (e *extension) findRewrites(it *step, p int) {
	s, pages := it.sequence, &it.pools[p]
	pages.copies = pages.copies[:0]
	table := s.Table(p)
	for b := it.first; b < min(int(s.SharedBlocks()), len(table)); b++ {
		if share, known := e.batch.shares[p][table[b]]; known && heldByOthers(share) {
			pages.copies = append(pages.copies, pageRewrite{block: b, from: table[b], to: messages.NoPage})
		}
	}
}

// heldByOthers tells whether a page that a sequence holds is held by others, too. A page that
// caches a block counts as held by others even if no other sequence has it: the tree would go
// on to find the block there.
func heldByOthers(s protocol.Share) bool { return s.References > 1 || s.Pins > 0 || s.Stored }

// takeRewrites takes pages for copies on write, then drops the old ones.
func (e *extension) takeRewrites(it *step, p int) {
	pages := &it.pools[p]
	// The new page is taken before the old one is dropped, so it cannot be the old one.
	n := len(pages.copies)
	if n == 0 {
		return
	}
	pages.copyOp = e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: n,
		Tenant: it.sequence.Tenant})
	e.batch.taken[p] += n
	old := make([]messages.PageID, 0, n)
	for _, w := range pages.copies {
		old = append(old, w.from)
		// The page that is dropped has a holder less. When the next step of the batch looks at
		// it, it may have it for itself and need no copy.
		share := e.batch.shares[p][w.from]
		share.References--
		e.batch.shares[p][w.from] = share
		if share.References == 0 && share.Pins == 0 {
			e.batch.taken[p]-- // cached from now on: a later step may take it
		}
	}
	e.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: old,
		Use: it.sequence.Usage.Use().Early()})
}

// fillRewrites gives copies on write their pages.
func (e *extension) fillRewrites(it *step, p int) {
	pages := &it.pools[p]
	taken := e.out.pools.op(p, pages.copyOp).Pages
	for k := range pages.copies {
		e.rewrite(it, p, &pages.copies[k], taken[k])
		e.stats.appended(p, 1)
	}
}

// rewrite puts a page in the place of one that others hold, and copies what the
// sequence has written there.
func (e *extension) rewrite(it *step, p int, w *pageRewrite, page messages.PageID) {
	s := it.sequence
	// Kernels of the sequence may still write the old page, which the copy reads.
	if after := s.Usage.After(); !after.IsZero() {
		e.out.move.mark(p, []messages.PageID{w.from}, true, after)
	}
	w.to = page
	s.Tables(p)[w.beam][w.block] = page
	it.noteRewrite(p, w)
	tpb := e.config.TokensPerBlock
	// Only what has been written is copied. A page that begins with the step has nothing
	// to copy, but it must not be written to by two sequences.
	if tokens := min(tpb, it.written()-w.block*tpb); tokens > 0 {
		e.out.move.copy(p, protocol.PageCopy{From: protocol.OnDevice(w.from), Block: protocol.NoBlock,
			To: page, Tokens: tokens})
	}
}
