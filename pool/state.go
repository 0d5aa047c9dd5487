package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// settle links a page that nobody holds any more: cached if it caches a block,
// free otherwise.
func (p *Pool) settle(i int32) {
	g := &p.pages[i]
	if g.stored() {
		p.link(i)
		return
	}
	if p.accounts != nil {
		p.accounts.end(i)
	}
	g.forget() // a use may have been left by a reference
	g.place, g.prev, g.next = free, none, p.freeHead
	p.freeHead = i
	p.freeN++
}

// occupy gives a page that somebody is about to hold, out of the order of
// eviction. A free page has nothing that could be held.
func (p *Pool) occupy(i int32, kind protocol.PoolOpKind) *page {
	g := &p.pages[i]
	if g.place == free {
		p.fail("%s of page %d, which is free", verb(kind), i)
	}
	if g.cached() {
		p.unlink(i)
	}
	return g
}

// shelter makes one reference to the page a sheltering one.
func (p *Pool) shelter(g *page, id messages.PageID) {
	if g.shelters() == maxShelters {
		p.fail("page %d is sheltered %d times", id, maxShelters)
	}
	g.hold(0, 0, 1)
}

// count keeps the number of held pages after a change to a page.
func (p *Pool) count(g *page, was bool) {
	switch is := g.held(); {
	case is && !was:
		p.held++
	case was && !is:
		p.held--
	}
}

// link puts a cached page into the order that it belongs to.
func (p *Pool) link(i int32) {
	p.cached++
	c := p.accounts
	if c == nil {
		p.order.push(i)
		return
	}
	t := c.of[i]
	c.list[t].order.push(i)
	c.settle(t)
}

// unlink takes a page out of its order; it is used from then on.
func (p *Pool) unlink(i int32) {
	p.cached--
	c := p.accounts
	if c == nil {
		p.order.remove(i)
		return
	}
	t := c.of[i]
	c.list[t].order.remove(i)
	c.settle(t)
}

// victim gives the facts of what a page caches.
func (p *Pool) victim(i int32) protocol.Victim {
	g := &p.pages[i]
	v := protocol.Victim{Page: messages.PageID(i), Block: g.block, Depth: g.depth, Priority: p.orderOf(i).priority(i), Use: g.use}
	if p.accounts != nil {
		v.Tenant = p.accounts.of[i]
	}
	return v
}
