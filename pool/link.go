package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// linkUnheld links a page that has lost its last holder: as cached if it caches
// a block, otherwise as free.
//
// It is the only way from used to cached or free, so the counts of both change here and in
// the run functions only. The caller has already counted the page as not held.
func (p *Pool) linkUnheld(i int32) {
	g := &p.pages[i]
	if g.stored() {
		p.link(i)
		return
	}
	// A page that becomes cached stays on the account of its tenant; only a free page is on
	// none.
	if p.accounts != nil {
		p.accounts.remove(i)
	}
	g.clearContents() // a reference may have left a use
	g.state, g.prev, g.next = free, none, p.freeHead
	p.freeHead = i
	p.freeN++
}

// markUsed returns a page that is about to get a holder, and takes it out of the
// eviction order if it is cached. A free page has no contents to hold.
//
// The caller adds the holder at once: a used page without holders is not a valid state.
func (p *Pool) markUsed(i int32, kind protocol.PoolOpKind) *page {
	g := &p.pages[i]
	if g.state == free {
		p.fail("%s of page %d, which is free", opName(kind), i)
	}
	if g.cached() {
		p.unlink(i)
	}
	return g
}

// cover makes one reference of the page a covered one.
func (p *Pool) cover(g *page, id messages.PageID) {
	if g.covered() == maxCovered {
		p.fail("page %d is covered by %d reservations", id, maxCovered)
	}
	g.hold(0, 0, 1)
}

// countHeld updates the number of held pages after a change to a page; was tells
// whether the page was held before the change.
//
// Whether a page counts as held depends on references, pins and covered references at
// once (see page.held), so it is compared before and after instead of derived from the
// kind of the change.
func (p *Pool) countHeld(g *page, was bool) {
	switch is := g.held(); {
	case is && !was:
		p.held++
	case was && !is:
		p.held--
	}
}

// link adds a cached page to the eviction order of the pool or of its tenant.
//
// The page's state is used and its use, depth and priority are final: the order compares
// them, and a linked page must not change in any of the three.
func (p *Pool) link(i int32) {
	p.cached++
	if p.pieces != nil {
		p.linkToPiece(p.orderOf(i), i)
		return
	}
	c := p.accounts
	if c == nil {
		p.order.push(i)
		return
	}
	// The page was on the account already, but the first cached page of the tenant may be
	// another one now.
	t := c.of[i]
	c.list[t].order.push(i)
	c.rerank(t)
}

// unlink removes a cached page from its eviction order; the page is used then.
func (p *Pool) unlink(i int32) {
	p.cached--
	if p.pieces != nil {
		p.unlinkFromPiece(p.orderOf(i), i)
		return
	}
	c := p.accounts
	if c == nil {
		p.order.remove(i)
		return
	}
	t := c.of[i]
	c.list[t].order.remove(i)
	c.rerank(t)
}

// orderOf is the eviction order that a page belongs to while it is cached.
//
// The tenant of a page decides its order, so accounts.of must not change while the page is
// cached or has a term.
func (p *Pool) orderOf(i int32) *order {
	if p.accounts == nil {
		return &p.order
	}
	return &p.accounts.list[p.accounts.of[i]].order
}

// orders visits every eviction order of the pool: one, or one for each tenant.
func (p *Pool) orders(visit func(*order)) {
	if p.accounts == nil {
		visit(&p.order)
		return
	}
	for t := range p.accounts.list {
		visit(&p.accounts.list[t].order)
	}
}

// victim describes a cached page that is about to be evicted.
//
// It must come before unlink and removeTerm: the priority may be that of the page's term,
// and taking the page overwrites its record.
func (p *Pool) victim(i int32) protocol.Victim {
	g := &p.pages[i]
	v := protocol.Victim{Page: messages.PageID(i), Block: g.block, Depth: g.depth, Priority: p.orderOf(i).priority(i), Use: g.use}
	if p.accounts != nil {
		v.Tenant = p.accounts.of[i]
	}
	return v
}
