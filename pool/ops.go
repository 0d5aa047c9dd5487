package pool

import (
	"iter"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// present are the pages of a list, in either order, without its NoPage entries.
func present(list iter.Seq2[int, messages.PageID]) iter.Seq2[int, int32] {
	return func(yield func(int, int32) bool) {
		for i, id := range list {
			if id != messages.NoPage && !yield(i, int32(id)) {
				return
			}
		}
	}
}

// claim adds a reference to each page. A page keeps its use, so that unclaim puts it
// back exactly where it was in the eviction order.
func (p *Pool) claim(op *protocol.PoolOp) {
	for _, id := range present(slices.All(op.Pages)) {
		p.occupy(id, op.Kind)
		p.refer(id, 1, op)
	}
}

// unclaim ends references without a use, as if they had never been. The page keeps its use, so
// it returns to its old place. The last page goes first, as in drop.
func (p *Pool) unclaim(op *protocol.PoolOp) {
	for _, id := range present(slices.Backward(op.Pages)) {
		p.endReference(id, op)
	}
	if op.Awaited {
		p.order.Await(op.Pages)
	}
}

// drop ends references and leaves the use. It starts with the last page, so that the pages of a
// prefix arrive in the order in which they will be evicted, the deepest first.
func (p *Pool) drop(op *protocol.PoolOp) {
	// The policy is told while the pages are still used.
	p.order.Used(op.Pages, op.Request)
	for _, id := range present(slices.Backward(op.Pages)) {
		// The latest use counts: sequences that share a page may end in another order than
		// they began.
		p.order.Touch(id, op.Use)
		p.endReference(id, op)
	}
	if op.Awaited {
		p.order.Await(op.Pages)
	}
}

// endReference ends one reference: a covered one if the operation says so.
//
// The sequence that drops a page says whether its reference is covered; the pool cannot
// know, since it counts references and does not list them. A reference that is dropped as
// the wrong kind would leave Held wrong for ever, so both mismatches panic.
func (p *Pool) endReference(id int32, op *protocol.PoolOp) {
	g := &p.pages[id]
	switch {
	case g.references == 0:
		p.fail("%s of page %d, which has no holder", opName(op.Kind), id)
	case op.CoveredByReservation && g.covered == 0:
		p.fail("%s of page %d, which no reservation covers", opName(op.Kind), id)
	case !op.CoveredByReservation && g.covered == g.references:
		p.fail("%s of page %d, whose %d references are all covered by reservations",
			opName(op.Kind), id, g.references)
	}
	p.refer(id, -1, op)
	p.vacate(id)
}

// take takes pages for new contents: free pages, then victims. A request for more
// pages than there are changes nothing.
func (p *Pool) take(op *protocol.PoolOp) {
	// The engine admits requests by these counts, so this is a bug and not a shortage. It is
	// checked first, because a take that fails in the middle could not be undone.
	if cached := p.order.Waiting(); op.N > len(p.free)+cached {
		p.fail("take of %d pages, %d are free and %d cached", op.N, len(p.free), cached)
	}
	op.Pages = slices.Grow(op.Pages, op.N)
	for range op.N {
		if k := len(p.free) - 1; k >= 0 {
			i := p.free[k]
			p.free = p.free[:k]
			p.give(op, i)
		} else {
			p.evictFor(op, p.order.Victim(op.Tenant))
		}
	}
}

// takeForCheckpoint takes one page, if it can without evicting what is worth more
// than the checkpoint. The victim is chosen by the usual rule among the pages whose
// contents have at most the priority of the operation.
//
// It either appends one page to op.Pages or nothing, and a caller that gets none makes no
// checkpoint. A checkpoint only saves computation, so it must never cost more than it saves.
func (p *Pool) takeForCheckpoint(op *protocol.PoolOp) {
	if len(p.free) > 0 {
		op.N = 1
		p.take(op)
	} else if i := p.order.VictimUpTo(op.Tenant, op.Priority); i != evict.None {
		p.evictFor(op, i)
	}
}

// attach makes used pages cache blocks. A page caches at most one.
func (p *Pool) attach(op *protocol.PoolOp) {
	for i, id := range present(slices.All(op.Pages)) {
		g := &p.pages[id]
		switch {
		case g.stored():
			p.fail("attachment of block %d to page %d, which caches block %d", op.Blocks[i], id, g.block)
		case g.unheld():
			p.fail("attachment of block %d to page %d, which has no holder", op.Blocks[i], id)
		case op.Blocks[i] < 0:
			p.fail("attachment of no block to page %d", id)
		}
		g.block = op.Blocks[i]
		// NoPage entries count for the depth: the index of an entry is the index of its block
		// in the prefix.
		p.order.Store(id, evict.Contents{
			Use: p.order.Page(id).Use, Depth: op.Depth + int32(i), Priority: op.Priority,
			Useless: op.Useless,
		})
	}
}

// detach makes pages cache nothing and ends their pins. Pages without holders become
// free.
//
// The tree detaches blocks that it has forgotten, whether sequences hold their pages or not.
// A page that is held becomes private to its holders and is free when they are done.
func (p *Pool) detach(op *protocol.PoolOp) {
	for i, id := range present(slices.Backward(op.Pages)) {
		g := p.mustStore(op, i)
		if p.order.Waits(id) {
			p.order.Remove(id)
		}
		p.order.Forget(id)
		g.block = protocol.NoBlock
		p.hold(id, 0, 0, -g.pins)
		p.vacate(id)
	}
}

// setPriority changes the priority of contents. A cached page moves to the place that its use
// gives it among those of the new one.
func (p *Pool) setPriority(op *protocol.PoolOp) {
	for k, id := range present(slices.All(op.Pages)) {
		p.mustStore(op, k)
		p.order.SetPriority(id, op.Priority)
	}
}

// setUseless notes of contents whether no match can use them.
func (p *Pool) setUseless(op *protocol.PoolOp) {
	for k, id := range present(slices.All(op.Pages)) {
		p.mustStore(op, k)
		p.order.SetUseless(id, op.Useless)
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
		p.fail("%s of page %d for block %d, it caches block %d",
			opName(op.Kind), id, op.Blocks[i], g.block)
	}
	return g
}

// addPins adds pins. A pin protects contents, so a page that caches nothing has none.
func (p *Pool) addPins(op *protocol.PoolOp) {
	if op.N == 0 {
		return // it would take cached pages out of the order and leave them without a holder
	}
	for _, id := range present(slices.All(op.Pages)) {
		if !p.pages[id].stored() {
			p.fail("pin of page %d, which caches nothing", id)
		}
		p.occupy(id, op.Kind)
		p.hold(id, 0, 0, int32(op.N))
	}
}

// endPin ends one pin of each page and leaves the use, as drop does.
func (p *Pool) endPin(op *protocol.PoolOp) {
	for _, id := range present(slices.Backward(op.Pages)) {
		if p.pages[id].pins == 0 {
			p.fail("unpin of page %d, which has no pin", id)
		}
		p.order.Touch(id, op.Use)
		p.hold(id, 0, 0, -1)
		p.vacate(id)
	}
}

// endCoverage makes one covered reference of each page an ordinary one, when the
// reservation of a chunked prefill ends.
//
// The references stay. Pages that only this prefill holds count as held from now on, so
// the reservation must stop counting them in the same step.
func (p *Pool) endCoverage(op *protocol.PoolOp) {
	for _, id := range present(slices.All(op.Pages)) {
		if p.pages[id].covered == 0 {
			p.fail("end of coverage of page %d, which no reservation covers", id)
		}
		p.hold(id, 0, -1, 0)
	}
}

// inspect reports the holders of every entry of Pages, the zero Share for NoPage.
func (p *Pool) inspect(op *protocol.PoolOp) {
	op.Shares = op.Shares[:0]
	for _, id := range op.Pages {
		var s protocol.Share
		if id != messages.NoPage {
			g := &p.pages[id]
			s = protocol.Share{References: g.references, Pins: g.pins, Stored: g.stored(), Held: g.held()}
			if s.Stored {
				s.Priority, s.Use = p.order.Page(int32(id)).Priority, p.order.Page(int32(id)).Use
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
		if g := &p.pages[i]; g.references > 0 && g.stored() {
			op.Blocks = append(op.Blocks, g.block)
		}
	}
}
