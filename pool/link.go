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
		p.cache.link(i)
		return
	}
	// A page that becomes cached stays on the account of its tenant; only a free page is on
	// none.
	p.cache.leaveAccount(i)
	p.free.push(i) // a reference may have left a use, which this clears
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
		p.cache.unlink(i)
	}
	return g
}

// cover makes one reference of the page a covered one.
func (p *Pool) cover(g *page, id messages.PageID) {
	if g.covered == maxCovered {
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
