package pool

import (
	"math"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// claim adds a reference to each page. A page keeps its use, so that unclaim puts it
// back exactly where it was in the eviction order.
//
// claimRun does the pages that need nothing special; this loop does the others and reports
// what is wrong. Count is the growth of held pages, which the caller cannot know: a page
// that another sequence holds too was held before.
func (p *Pool) claim(op *protocol.PoolOp) {
	before := p.held
	done, claimed := p.cache.claimRun(op)
	p.held += claimed
	for _, id := range op.Pages[done:] {
		if id == messages.NoPage {
			continue
		}
		g := p.markUsed(int32(id), op.Kind)
		// A page that markUsed has taken out of the order has no holders and is not held, so
		// the comparison is right for cached and for used pages.
		was := g.held()
		if g.references() == math.MaxInt32 {
			p.fail("claim of page %d, which has %d references", id, g.references())
		}
		g.hold(1, 0, 0)
		if op.CoveredByReservation {
			p.cover(g, id)
		}
		p.countHeld(g, was)
	}
	op.Count = p.held - before
}

// unclaim ends references without a use, as if they had never been.
//
// The record keeps its use, so a page returns to its old place: before the tail of the list
// and therefore into the heap, unless it was the last. The last page goes first, as in drop.
func (p *Pool) unclaim(op *protocol.PoolOp) {
	for i := len(op.Pages) - 1; i >= 0; i-- {
		if id := op.Pages[i]; id != messages.NoPage {
			p.endReference(id, op)
		}
	}
	if op.Awaited && p.cache.pieces != nil {
		p.cache.pieces.await(op.Pages)
	}
}

// drop ends references and leaves the use. It starts with the last page, so that the
// pages of a prefix arrive in the order in which they will be evicted, the deepest
// first, and can be appended to a list.
func (p *Pool) drop(op *protocol.PoolOp) {
	// Pieces are formed while the pages are still used: a cached page is linked to the piece
	// that it belongs to.
	if p.cache.pieces != nil {
		p.cache.pieces.form(op, p.cache.now)
	}
	left, unheld := p.cache.dropRun(op, &p.free)
	p.held -= unheld
	for i := left - 1; i >= 0; i-- {
		id := op.Pages[i]
		if id == messages.NoPage {
			continue
		}
		g := &p.pages[id]
		if g.references() > 0 {
			// The use is set before the page is linked, since the order compares it. The latest
			// one counts: sequences that share a page may end in another order than they began.
			g.use = max(g.use, op.Use)
		}
		p.endReference(id, op)
	}
	p.cache.compareDue(op)
}

// endReference ends one reference: a covered one if the operation says so.
//
// The sequence that drops a page says whether its reference is covered; the pool cannot
// know, since it counts references and does not list them. A reference that is dropped as
// the wrong kind would leave Held wrong for ever, so both mismatches panic.
func (p *Pool) endReference(id messages.PageID, op *protocol.PoolOp) {
	g := &p.pages[id]
	if g.references() == 0 {
		p.fail("%s of page %d, which has no holder", opName(op.Kind), id)
	}
	was := g.held()
	switch {
	case op.CoveredByReservation && g.coveredReferences() == 0:
		p.fail("%s of page %d, which no reservation covers", opName(op.Kind), id)
	case op.CoveredByReservation:
		g.hold(0, 0, -1)
	case g.coveredReferences() == g.references():
		p.fail("%s of page %d, whose %d references are all covered by reservations", opName(op.Kind), id, g.references())
	}
	g.hold(-1, 0, 0)
	p.countHeld(g, was)
	if g.unheld() {
		p.linkUnheld(int32(id))
	}
}

// take takes pages for new contents: free pages, then victims. A request for more
// pages than there are changes nothing.
func (p *Pool) take(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	// The engine admits requests by these counts, so this is a bug and not a shortage. It is
	// checked first, because a take that fails in the middle could not be undone.
	if op.N > p.free.n+p.cache.n {
		p.fail("take of %d pages, %d are free and %d cached", op.N, p.free.n, p.cache.n)
	}
	// Taken pages have one reference, so they are held unless that one is covered.
	if !op.CoveredByReservation {
		p.held += op.N
	}
	record := taken(op)
	if p.cache.accounts != nil {
		return p.takeWithQuotas(op, record, victims)
	}
	before := len(op.Pages)
	op.Pages = p.free.take(op.N, record, op.Pages)
	if n := op.N - (len(op.Pages) - before); n > 0 {
		victims = p.cache.take(op, n, record, victims)
	}
	return victims
}

// takeWithQuotas is take for a pool with quotas: the victim of each page depends on
// what the tenant has after the page before.
//
// It has no runs, because each page that is taken may make the tenant full, or end the
// surplus of the tenant that lost it.
func (p *Pool) takeWithQuotas(op *protocol.PoolOp, record page, victims []protocol.Victim) []protocol.Victim {
	for range op.N {
		if p.free.n > 0 {
			p.give(op, p.free.pop(), record)
			continue
		}
		i := p.cache.next(op.Tenant)
		victims = append(victims, p.cache.victim(i))
		p.cache.noteVictim(i, len(victims))
		p.replace(op, i, record)
	}
	return victims
}

// replace evicts a cached page and gives it to an operation.
//
// The page leaves the old tenant's account before it joins the other, since accounts.of
// has room for one tenant.
func (p *Pool) replace(op *protocol.PoolOp, i int32, record page) {
	p.cache.evict(i)
	p.cache.leaveAccount(i)
	p.give(op, i, record)
}

// give gives a page, which is in no list, a record and a tenant and adds it to the pages of
// an operation.
func (p *Pool) give(op *protocol.PoolOp, i int32, record page) {
	p.pages[i] = record
	p.cache.joinAccount(i, op.Tenant)
	op.Pages = append(op.Pages, messages.PageID(i))
}

// takeForCheckpoint takes one page, if it can without evicting what is worth more
// than the checkpoint. The victim is chosen by the usual rule among the pages whose
// contents have at most the priority of the operation.
//
// It either appends one page to op.Pages or nothing, and a caller that gets none makes no
// checkpoint. A checkpoint only saves computation, so it must never cost more than it saves.
func (p *Pool) takeForCheckpoint(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	if p.free.n > 0 {
		op.N = 1
		return p.take(op, victims)
	}
	i := p.cache.forCheckpoint(op.Tenant, op.Priority)
	if i == none {
		return victims
	}
	p.held++
	victims = append(victims, p.cache.victim(i))
	p.cache.noteVictim(i, len(victims))
	p.replace(op, i, taken(op))
	return victims
}

// attach makes used pages cache blocks. A page caches at most one.
func (p *Pool) attach(op *protocol.PoolOp) {
	for i := p.attachRun(op); i < len(op.Pages); i++ {
		id := op.Pages[i]
		if id == messages.NoPage {
			continue
		}
		g := &p.pages[id]
		switch {
		case g.stored():
			p.fail("attachment of block %d to page %d, which caches block %d", op.Blocks[i], id, g.block)
		case g.unheld():
			p.fail("attachment of block %d to page %d, which has no holder", op.Blocks[i], id)
		case op.Blocks[i] < 0:
			p.fail("attachment of no block to page %d", id)
		}
		// NoPage entries count for the depth: the index of an entry is the index of its block
		// in the prefix.
		g.block, g.depth = op.Blocks[i], op.Depth+int32(i)
		p.cache.assignPriority(int32(id), op.Priority, op.Until)
	}
}

// detach makes pages cache nothing and ends their pins. Pages without holders become
// free.
//
// The tree detaches blocks that it has forgotten, whether sequences hold their pages or not.
// A page that is held becomes private to its holders and is free when they are done.
func (p *Pool) detach(op *protocol.PoolOp) {
	for i := len(op.Pages) - 1; i >= 0; i-- {
		id := op.Pages[i]
		if id == messages.NoPage {
			continue
		}
		g := p.mustStore(op, i)
		was := g.held()
		// The order finds the page by its priority, which may be that of its term, so the page
		// leaves the order first, then the term, then its contents end.
		if g.cached() {
			p.cache.unlink(int32(id))
		}
		p.cache.forget(int32(id))
		// Pins end here as well, and a page whose only holder was a pin is free: held must be
		// compared after this.
		g.clearContents()
		p.countHeld(g, was)
		if g.unheld() {
			p.linkUnheld(int32(id))
		}
	}
}

// setPriority changes the priority of contents. A cached page moves to the level or
// the term of the new one, to the place that its use gives it.
//
// An operation that changes nothing returns early, since a move would put the page into the
// heap of its level, where it costs more to evict.
func (p *Pool) setPriority(op *protocol.PoolOp) {
	for k, id := range op.Pages {
		if id == messages.NoPage {
			continue
		}
		g, i := p.mustStore(op, k), int32(id)
		if p.cache.priority(i) == op.Priority && p.cache.until(i) == op.Until {
			continue
		}
		cached := g.cached()
		if cached {
			p.cache.unlink(i)
		}
		p.cache.removeTerm(i)
		p.cache.assignPriority(i, op.Priority, op.Until)
		if cached {
			p.cache.link(i)
		}
	}
}

// mustStore returns the page at index i of the operation. The page must cache a
// block, and the right one if the operation names blocks.
//
// The tree and the pool must agree on which block a page caches. Naming the block finds a
// disagreement here, before contents of another prefix are lost.
func (p *Pool) mustStore(op *protocol.PoolOp, i int) *page {
	id := op.Pages[i]
	g := &p.pages[id]
	if !g.stored() {
		p.fail("%s of page %d, which caches nothing", opName(op.Kind), id)
	}
	if len(op.Blocks) > 0 && op.Blocks[i] != g.block {
		p.fail("%s of page %d for block %d, it caches block %d", opName(op.Kind), id, op.Blocks[i], g.block)
	}
	return g
}

// addPins adds pins. A pin protects contents, so a page that caches nothing has none.
func (p *Pool) addPins(op *protocol.PoolOp) {
	// Otherwise markUsed would take a cached page out of the order and leave it without a
	// holder.
	if op.N == 0 {
		return
	}
	for _, id := range op.Pages {
		if id == messages.NoPage {
			continue
		}
		if !p.pages[id].stored() {
			p.fail("pin of page %d, which caches nothing", id)
		}
		if int(p.pages[id].pins()) > math.MaxInt32-op.N {
			p.fail("%d pins of page %d, which has %d", op.N, id, p.pages[id].pins())
		}
		g := p.markUsed(int32(id), op.Kind)
		was := g.held()
		g.hold(0, int32(op.N), 0)
		p.countHeld(g, was)
	}
}

// endPin ends one pin of each page and leaves the use, as drop does.
//
// It goes from the last page to the first for the same reason as drop: a prefix that was
// only pinned arrives deepest first.
func (p *Pool) endPin(op *protocol.PoolOp) {
	for i := len(op.Pages) - 1; i >= 0; i-- {
		id := op.Pages[i]
		if id == messages.NoPage {
			continue
		}
		g := &p.pages[id]
		if g.pins() == 0 {
			p.fail("unpin of page %d, which has no pin", id)
		}
		was := g.held()
		g.hold(0, -1, 0)
		g.use = max(g.use, op.Use)
		p.countHeld(g, was)
		if g.unheld() {
			p.linkUnheld(int32(id))
		}
	}
}

// endCoverage makes one covered reference of each page an ordinary one, when the
// reservation of a chunked prefill ends.
//
// The references stay. Pages that only this prefill holds count as held from now on, so
// the reservation must stop counting them in the same step.
func (p *Pool) endCoverage(op *protocol.PoolOp) {
	for _, id := range op.Pages {
		if id == messages.NoPage {
			continue
		}
		g := &p.pages[id]
		if g.coveredReferences() == 0 {
			p.fail("end of coverage of page %d, which no reservation covers", id)
		}
		was := g.held()
		g.hold(0, 0, -1)
		p.countHeld(g, was)
	}
}

// inspect reports the holders of every entry of Pages, the zero Share for NoPage.
func (p *Pool) inspect(op *protocol.PoolOp) {
	op.Shares = op.Shares[:0]
	for _, id := range op.Pages {
		var s protocol.Share
		if id != messages.NoPage {
			g := &p.pages[id]
			s = protocol.Share{References: g.references(), Pins: g.pins(), Stored: g.stored()}
			if s.Stored {
				s.Priority, s.Use = p.cache.orders.priority(int32(id)), g.use
			}
		}
		op.Shares = append(op.Shares, s)
	}
}

// heldBlocks lists the cached blocks that sequences hold, by page number.
//
// Pages that only pins hold are not listed. It costs O(pages), so it is not for the hot
// path.
func (p *Pool) heldBlocks(op *protocol.PoolOp) {
	op.Blocks = op.Blocks[:0]
	for i := range p.pages {
		if g := &p.pages[i]; g.references() > 0 && g.stored() {
			op.Blocks = append(op.Blocks, g.block)
		}
	}
}
