package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// page says who holds a page, and which block it caches. What the eviction order needs to know
// of the contents is in Pool.order.
//
// Always 0 ≤ covered ≤ references and 0 ≤ pins, and only a page that caches a block has pins.
type page struct {
	block      protocol.BlockID // that the page caches, or NoBlock
	references int32            // sequences that hold the page
	covered    int32            // references of chunked prefills that their reservations cover
	pins       int32            // on the contents
}

// stored tells whether the page caches a block. The page may be cached or used.
func (g *page) stored() bool { return g.block != protocol.NoBlock }

// unheld tells whether the page has no holders. Such a page is cached if it caches a block, and
// free otherwise.
func (g *page) unheld() bool { return g.references == 0 && g.pins == 0 }

// free tells whether the page has neither holders nor contents.
func (g *page) free() bool { return g.unheld() && !g.stored() }

// held tells whether the page counts as held. A page whose only holder is one chunked prefill
// with a reservation does not: the reservation counts it already.
func (g *page) held() bool { return g.pins > 0 || g.references > min(1, g.covered) }

// hold adds holders, negative numbers remove them, and keeps Pool.held current. It moves the page
// nowhere: the caller takes it out of the order first (occupy), and calls vacate after it has
// removed a holder.
func (p *Pool) hold(i int32, references, covered, pins int32) {
	g := &p.pages[i]
	was := g.held()
	g.references += references
	g.covered += covered
	g.pins += pins
	switch is := g.held(); {
	case is && !was:
		p.held++
	case was && !is:
		p.held--
	}
}

// occupy takes a page that is about to get a holder out of the order. It panics on a free page,
// which has no contents to hold: only take and takeForCheckpoint give free pages a holder.
func (p *Pool) occupy(i int32, kind protocol.PoolOpKind) {
	if p.pages[i].free() {
		p.fail("%s of page %d, which is free", opName(kind), i)
	}
	if p.order.Waits(i) {
		p.order.Remove(i)
	}
}

// vacate makes a page without holders cached, if it caches a block, or else free.
func (p *Pool) vacate(i int32) {
	switch g := &p.pages[i]; {
	case !g.unheld():
	case g.stored():
		p.order.Add(i)
	default:
		p.order.Forget(i) // a reference may have left a use
		p.order.Leave(i)
		p.free = append(p.free, i)
	}
}

// refer adds one reference to a page, or removes it: −1. It is covered if the operation says so.
func (p *Pool) refer(i, n int32, op *protocol.PoolOp) {
	covered := int32(0)
	if op.CoveredByReservation {
		covered = n
	}
	p.hold(i, n, covered, 0)
}

// give gives a page, which has no holders and no contents, one reference and a tenant, and adds
// it to the pages of an operation.
func (p *Pool) give(op *protocol.PoolOp, i int32) {
	p.order.Join(i, op.Tenant)
	p.refer(i, 1, op)
	op.Pages = append(op.Pages, messages.PageID(i))
}

// evict ends the contents of a cached page, and says what they were. The page is in no list.
func (p *Pool) evict(i int32) protocol.Victim {
	v := p.victim(i)
	p.order.Remove(i)
	p.order.Forget(i)
	p.order.Leave(i)
	p.pages[i].block = protocol.NoBlock
	return v
}

// evictFor evicts a page for an operation, gives it to the operation, and notes what the policy
// knows of the contents.
//
// Victims in a row of which the policy knows the same are one EvictedPiece. A policy that evicts
// runs of pages thus adds few entries, and most victims only make the last one longer.
func (p *Pool) evictFor(op *protocol.PoolOp, i int32) {
	if e, ok := p.order.Noted(i); ok {
		// Equal but for the end: the entry is taken off here and put back with the new end.
		if k := len(p.evicted) - 1; k >= 0 {
			e.End = p.evicted[k].End
			if p.evicted[k] == e {
				p.evicted = p.evicted[:k]
			}
		}
		e.End = len(p.victims) + 1
		p.evicted = append(p.evicted, e)
	}
	p.victims = append(p.victims, p.evict(i))
	p.give(op, i)
}

// victim describes the contents of a page, for the offloader: it decides by priority and use
// whether they go to host memory, and which contents they displace there.
func (p *Pool) victim(i int32) protocol.Victim {
	g := p.order.Page(i)
	return protocol.Victim{
		Page: messages.PageID(i), Block: p.pages[i].block, Depth: g.Depth,
		Priority: g.Priority, Use: g.Use, Tenant: g.Tenant, Useless: g.Useless,
	}
}
