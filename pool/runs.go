package pool

import (
	"math"
	"math/bits"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A prompt of thousands of pages goes through the pool as a few operations, and
// nearly all of its pages are alike: free ones that are taken one after the
// other, the victims at the head of one level's list, pages of one sequence that
// go to the tail of one level's list. Those are handled here, in one loop over
// the pages; whatever is not alike is left to the operations in ops.go, page by page.

// takeFree takes at most n free pages, the last freed first, and adds them to
// the operation's pages.
func (p *Pool) takeFree(op *protocol.PoolOp, n int) {
	n = min(n, p.freeN)
	taken, pages := p.taken(op), p.pages
	ids := slices.Grow(op.Pages, n)
	at := p.freeHead
	for range n {
		g := &pages[at]
		ids = append(ids, messages.PageID(at))
		at = g.next
		*g = taken
	}
	op.Pages = ids
	p.freeHead = at
	p.freeN -= n
}

// taken is a page as it is after an operation has taken it.
func (p *Pool) taken(op *protocol.PoolOp) page {
	g := page{block: protocol.NoBlock}
	g.hold(1, 0, 0)
	if op.CoveredByReservation {
		g.hold(0, 0, 1)
	}
	return g
}

// takeListed takes at most n pages from the head of the list of the level that
// goes first, as long as no other page of the level goes before them, adds them to the
// operation's pages and what they cached to the victims.
func (p *Pool) takeListed(op *protocol.PoolOp, n int, victims []protocol.Victim) []protocol.Victim {
	o := &p.order
	priority := o.lowest()
	l := o.level(priority)
	taken, pages := p.taken(op), p.pages
	op.Pages, victims = slices.Grow(op.Pages, n), slices.Grow(victims, n)
	ids, gone := op.Pages[len(op.Pages):][:n], victims[len(victims):][:n]
	at, k, warm := l.head, 0, int32(0)
	rival := o.firstTimed(l)
	if l.root != none && (rival == none || o.before(l.root, rival)) {
		rival = l.root
	}
	for ; k < n && at != none && (rival == none || o.before(at, rival)); k++ {
		g := &pages[at]
		if g.child != none {
			warm += pages[g.child].depth
		}
		g.leave(at, &gone[k])
		ids[k] = messages.PageID(at)
		at = g.next
		*g = taken
	}
	op.Pages, victims = op.Pages[:len(op.Pages)+k], victims[:len(victims)+k]
	if l.head = at; at == none {
		l.tail = none
	} else {
		pages[at].prev = none
	}
	p.warm = warm
	o.n -= k
	p.cached -= k
	o.mark(priority)
	return victims
}

// lowest is the level that goes first; some level has pages.
func (o *order) lowest() messages.Priority {
	if o.occupied[0] != 0 {
		return messages.Priority(bits.TrailingZeros64(o.occupied[0]))
	}
	return messages.Priority(64 + bits.TrailingZeros64(o.occupied[1]))
}

// mark notes that pages of a level have gone.
func (o *order) mark(p messages.Priority) {
	if l := o.level(p); l.head == none && l.root == none && len(l.ranked) == 0 {
		o.occupied[p/64] &^= 1 << (p % 64)
	}
}

// dropAlike ends one reference to each of the pages, from the last one on. Of the
// only references, those to pages that cache a block give it the use and put it at
// the tail of its level's list, the others free their pages; where others hold the
// page, the use is left and that is all. It stops before the first page for which
// more is to be done, and tells how many are left: with quotas all, for accounts
// have to follow.
func (p *Pool) dropAlike(op *protocol.PoolOp) (left int) {
	if op.CoveredByReservation || p.accounts != nil {
		return len(op.Pages)
	}
	pages, o, listedN, freedN := p.pages, &p.order, 0, 0
	timed := o.terms.of
	if o.hinted {
		defer func() { o.join(op.Pages[left:]) }()
	}
	var at cursor
	for left = len(op.Pages); left > 0; left-- {
		i := int32(op.Pages[left-1])
		if i == none {
			continue
		}
		g := &pages[i]
		if g.place != used || g.child != 0 || g.prev < 1 {
			break
		}
		if g.prev > 1 || g.next > 0 {
			g.prev--
			g.use = max(g.use, op.Use)
			continue
		}
		if timed != nil && timed[i] != 0 {
			break
		}
		if !g.stored() {
			*g = page{block: protocol.NoBlock, prev: none, next: p.freeHead, place: free}
			p.freeHead = i
			freedN++
			continue
		}
		l := at.move(o, g.priority)
		use := max(g.use, op.Use)
		if t := l.tail; t != none {
			y := &pages[t]
			if y.use.Moment() > use.Moment() || y.use.Moment() == use.Moment() && y.depth <= g.depth {
				break
			}
			y.next = i
		} else {
			l.head = i
			o.occupied[g.priority/64] |= 1 << (g.priority % 64)
		}
		g.use = use
		g.place, g.prev, g.next, g.child = listed, l.tail, none, none
		l.tail = i
		listedN++
	}
	o.n += listedN
	p.cached += listedN
	p.freeN += freedN
	p.held -= listedN + freedN
	return left
}

// claimAlike adds a reference to pages that are in a list, or held by others
// already, from the first on. It stops before the first page for which more is to
// be done, as with one that has a term, and tells how many it has passed: with
// quotas none, for accounts have to follow.
func (p *Pool) claimAlike(op *protocol.PoolOp) (passed int) {
	if op.CoveredByReservation || p.accounts != nil {
		return 0
	}
	pages, o, claimed := p.pages, &p.order, 0
	timed := o.terms.of
	var at cursor
run:
	for _, id := range op.Pages {
		if id != messages.NoPage {
			g := &pages[id]
			switch {
			case g.place == listed && (timed == nil || timed[id] == 0):
				l := at.move(o, g.priority)
				o.unlink(&l.list, g)
				if l.head == none {
					o.mark(g.priority)
				}
				g.place, g.prev, g.next, g.child = used, 1, 0, 0
				claimed++
			case g.place == used && g.child == 0 && g.prev > 0 && g.prev < math.MaxInt32:
				g.prev++
			default:
				break run
			}
		}
		passed++
	}
	o.n -= claimed
	p.cached -= claimed
	p.held += claimed
	return passed
}

// attachAlike makes used pages cache blocks, from the first on, as long as they
// cache nothing. It stops before the first page for which that is wrong or not
// all there is to do, and tells how many it has passed: none if the priority ends.
func (p *Pool) attachAlike(op *protocol.PoolOp) (passed int) {
	if op.Until != 0 {
		return 0
	}
	pages, blocks, depth := p.pages, op.Blocks[:len(op.Pages)], op.Depth
	for i, id := range op.Pages {
		if id == messages.NoPage {
			continue
		}
		g, b := &pages[id], blocks[i]
		if g.place != used || g.prev <= 0 || g.stored() || b < 0 {
			return i
		}
		g.block, g.depth, g.priority = b, depth+int32(i), op.Priority
	}
	return len(op.Pages)
}

// cursor is at a level of an order: pages that go together mostly have the same.
type cursor struct {
	*level
	priority messages.Priority
}

// move goes to the level of a priority.
func (c *cursor) move(o *order, p messages.Priority) *level {
	if c.level == nil || c.priority != p {
		c.level, c.priority = o.grow(p), p
	}
	return c.level
}
