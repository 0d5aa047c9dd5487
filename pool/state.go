package pool

import "github.com/kvactor/kvactor/messages"

// settle links a page that nobody holds any more: cached if it caches a block,
// free otherwise.
func (p *Pool) settle(i int32) {
	g := &p.pages[i]
	if g.stored() {
		p.order.push(i)
		return
	}
	g.forget() // a use may have been left by a reference
	g.place, g.prev, g.next = free, none, p.freeHead
	p.freeHead = i
	p.freeN++
}

// occupy gives a page that somebody is about to hold, out of the order of
// eviction. A free page has nothing that could be held.
func (p *Pool) occupy(i int32, kind messages.PoolOpKind) *page {
	g := &p.pages[i]
	if g.place == free {
		p.fail("%s of page %d, which is free", verb(kind), i)
	}
	if g.cached() {
		p.order.remove(i)
	}
	return g
}

// shelter makes one reference to the page a sheltering one.
func (p *Pool) shelter(g *page, id messages.PageID) {
	if g.shelters == maxShelters {
		p.fail("page %d is sheltered %d times", id, maxShelters)
	}
	g.shelters++
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
