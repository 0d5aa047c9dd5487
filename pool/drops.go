package pool

import (
	"math"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// dropRun ends one reference to each of the pages, from the last one on, and returns
// how many are left. A page with other holders only gets the use. A page without is
// appended to the list of its level if it caches a block, and freed otherwise; unheld
// counts these. The run ends before a page that is covered by a reservation, has a term, or
// belongs before the tail of the list. With quotas it is empty, because each page may change
// the rankings.
//
// It reads and writes the fields of the record directly (prev is the references of a used page, next the
// pins, see page), so that a page costs one
// read and one write of its record.
func (c *cache) dropRun(op *protocol.PoolOp, free *freePages) (left, unheld int) {
	if op.CoveredByReservation || c.accounts != nil {
		return len(op.Pages), 0
	}
	freeN := free.n
	left, listedN := c.dropEach(op, free)
	c.whole.n += listedN
	c.n += listedN
	return left, listedN + free.n - freeN
}

// dropEach is the loop of dropRun. It returns how many pages are left and how many are
// cached now, and leaves the counts to its caller.
func (c *cache) dropEach(op *protocol.PoolOp, free *freePages) (left, listedN int) {
	pages, ids := c.pages, op.Pages
	for left = len(ids); left > 0; {
		i := int32(ids[left-1])
		if i == none {
			left--
			continue
		}
		g := &pages[i]
		// A page that is covered, or has no reference to end: drop decides which is a fault.
		if g.state != used || g.covered != 0 || g.prev < 1 {
			break
		}
		switch {
		case g.prev > 1 || g.next > 0:
			// It had an uncovered reference or a pin besides, so it stays held.
			g.prev--
			g.use = max(g.use, op.Use)
			left--
		case !g.stored():
			free.push(i)
			left--
		default:
			var n int
			if c.pieces == nil {
				n = c.appendRun(ids[:left], op.Use)
			} else {
				n = c.appendToPiece(ids[:left], op.Use)
			}
			if n == 0 {
				return left, listedN
			}
			left -= n
			listedN += n
		}
	}
	return left, listedN
}

// appendRun appends pages of one level to its list, from the last one on, and returns how
// many. The caller has seen that the last page caches a block and that a reference is its
// only holder; the run ends before a page that is not so, that has another priority or a
// later use, or that belongs in front of the tail.
func (c *cache) appendRun(ids []messages.PageID, opUse protocol.Use) (n int) {
	pages, o := c.pages, &c.whole
	first := int32(ids[len(ids)-1])
	r := run{use: max(pages[first].use, opUse), opUse: opUse, priority: pages[first].priority, depth: math.MaxInt32}
	if r.priority == timed {
		return 0
	}
	l := o.ensureLevel(r.priority)
	// This is order.before of the tail and the page, without the ties by the low bit of the
	// use and by page number, which drop decides.
	if l.tail != none {
		switch last := &pages[l.tail]; {
		case last.use.Moment() > r.use.Moment():
			return 0
		case last.use.Moment() == r.use.Moment():
			r.depth = last.depth
		}
	}
	tail, n := r.appendEach(pages, ids, l.tail)
	if n == 0 {
		return 0
	}
	pages[tail].next = none
	if l.tail == none {
		l.head = first
		o.setOccupied(r.priority)
	} else {
		pages[l.tail].next = first
	}
	l.tail = tail
	return n
}

// run is what the pages of a run that is appended to a list have in common.
type run struct {
	use, opUse protocol.Use // use = max(opUse, the use of the page) for each page
	priority   messages.Priority
	depth      int32 // the pages are less deep, each less than the one before
}

// appendEach links pages behind the tail, from the last one on, and returns their number and the
// new tail, whose next page is left to the caller.
//
// The link to the next page is written before that page has been looked at, so that each
// record is written in one place.
func (r *run) appendEach(pages []page, ids []messages.PageID, tail int32) (last int32, n int) {
	use, opUse, depth, left := r.use, r.opUse, r.depth, len(ids)-1
	next := int32(ids[left])
	for uint(next) < uint(len(pages)) {
		i, g := next, &pages[next]
		if g.state != used || g.prev != 1 || g.next != 0 || g.covered != 0 || !g.stored() || g.priority != r.priority ||
			g.depth >= depth || max(g.use, opUse) != use {
			break
		}
		depth = g.depth
		next = none
		if left > 0 {
			next = int32(ids[left-1])
		}
		g.use = use
		g.prev, g.next, g.child, g.state = tail, next, none, listed
		tail = i
		left--
	}
	return tail, len(ids) - 1 - left
}
