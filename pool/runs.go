package pool

import (
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A prompt of thousands of pages passes through the pool in a few operations, and
// nearly all of its pages need the same work: free pages are taken one after the
// other, victims come from the head of one level's list, the pages of a sequence are
// appended to the tail of one level's list. The functions of this file do that in
// one loop over the pages and stop at the first page that needs anything else. The
// operations in ops.go, which do everything for one page at a time, go on from there.

// taken is the record of a page after an operation has taken it.
//
// It is built once for each run and copied. Its use and priority are those of a page that
// caches nothing, whatever the page cached before.
func taken(op *protocol.PoolOp) page {
	g := page{block: protocol.NoBlock}
	g.hold(1, 0, 0)
	if op.CoveredByReservation {
		g.hold(0, 0, 1)
	}
	return g
}

// takeFromList takes at most n pages from the head of the list of the lowest level,
// up to the first that a page of a heap or a term precedes. It appends them to the
// operation's pages and their contents to the victims.
func (c *cache) takeFromList(op *protocol.PoolOp, n int, record page, victims []protocol.Victim) []protocol.Victim {
	o := &c.whole
	priority := o.lowest()
	l := o.level(priority)
	pages := c.pages
	op.Pages, victims = slices.Grow(op.Pages, n), slices.Grow(victims, n)
	ids, evicted := op.Pages[len(op.Pages):][:n], victims[len(victims):][:n]
	at, k, touched := l.head, 0, int32(0)
	// No page of a heap or a term moves while pages of the list are taken, so one rival is
	// enough for the whole run.
	rival := o.firstTimed(l)
	if l.root != none && (rival == none || o.before(l.root, rival)) {
		rival = l.root
	}
	for ; k < n && at != none && (rival == none || o.before(at, rival)); k++ {
		g := &pages[at]
		if g.child != none {
			touched += pages[g.child].depth // fetches the record, see hints.go
		}
		g.fillVictim(at, &evicted[k])
		ids[k] = messages.PageID(at)
		at = g.next
		*g = record
	}
	// The counts and the new head are written once, after the loop. Taking
	// page by page, order.remove writes them each time.
	op.Pages, victims = op.Pages[:len(op.Pages)+k], victims[:len(victims)+k]
	if l.head = at; at == none {
		l.tail = none
	} else {
		pages[at].prev = none
	}
	c.touched = touched
	o.n -= k
	c.n -= k
	o.clearIfEmpty(priority)
	return victims
}

// dropRun ends one reference to each of the pages, from the last one on, and returns
// how many are left. A page with other holders only gets the use. A page without is
// appended to the list of its level if it caches a block, and freed otherwise; unheld
// counts these. The
// run ends before a page that is covered by a reservation, has a term, or belongs
// before the tail of the list. With quotas it is empty, because each page may change
// the rankings.
//
// It reads and writes the fields of the record directly (prev is the references, next the
// pins, child the covered references of a used page, see page), so that a page costs one
// read and one write of its record.
func (c *cache) dropRun(op *protocol.PoolOp, free *freePages) (left, unheld int) {
	if op.CoveredByReservation || c.accounts != nil || c.pieces != nil {
		return len(op.Pages), 0
	}
	pages, o, listedN, freeN := c.pages, &c.whole, 0, free.n
	terms := o.terms.of
	if o.hinted {
		defer func() { o.extendHints(op.Pages[left:]) }()
	}
	var at cursor
	for left = len(op.Pages); left > 0; left-- {
		i := int32(op.Pages[left-1])
		if i == none {
			continue
		}
		g := &pages[i]
		// A page that is covered, or has no reference to end: drop decides which is a fault.
		if g.state != used || g.child != 0 || g.prev < 1 {
			break
		}
		if g.prev > 1 || g.next > 0 {
			// It had an uncovered reference or a pin besides, so it stays held.
			g.prev--
			g.use = max(g.use, op.Use)
			continue
		}
		if terms != nil && terms[i] != 0 {
			break
		}
		if !g.stored() {
			free.push(i)
			continue
		}
		l := at.move(o, g.priority)
		use := max(g.use, op.Use)
		if t := l.tail; t != none {
			// This is order.before of the tail and the page, without the ties by the low
			// bit of the use and by page number, which drop decides.
			y := &pages[t]
			if y.use.Moment() > use.Moment() || y.use.Moment() == use.Moment() && y.depth <= g.depth {
				break
			}
			y.next = i
		} else {
			l.head = i
			o.setOccupied(g.priority)
		}
		g.use = use
		g.state, g.prev, g.next, g.child = listed, l.tail, none, none
		l.tail = i
		listedN++
	}
	o.n += listedN
	c.n += listedN
	return left, listedN + free.n - freeN
}

// claimRun adds a reference to each of the pages, from the first on, and returns how
// many it has done and how many of them were cached. The run ends before a page that is in a heap or has a term. With
// quotas it is empty, because each page may change the rankings.
//
// It need not compare pages, since leaving a list needs no order. A page of a heap is left
// to claim, because a cut melds the children.
func (c *cache) claimRun(op *protocol.PoolOp) (done, claimed int) {
	if op.CoveredByReservation || c.accounts != nil || c.pieces != nil {
		return 0, 0
	}
	pages, o := c.pages, &c.whole
	terms := o.terms.of
	var at cursor
run:
	for _, id := range op.Pages {
		if id != messages.NoPage {
			g := &pages[id]
			switch {
			case g.state == listed && (terms == nil || terms[id] == 0):
				l := at.move(o, g.priority)
				o.unlink(&l.list, g)
				if l.head == none {
					o.clearIfEmpty(g.priority)
				}
				g.state, g.prev, g.next, g.child = used, 1, 0, 0
				claimed++
			// A page that is used only by pins is not held by a reference yet; claim counts it.
			case g.state == used && g.child == 0 && g.prev > 0 && g.prev < math.MaxInt32:
				g.prev++
			default:
				break run
			}
		}
		done++
	}
	o.n -= claimed
	c.n -= claimed
	return done, claimed
}

// attachRun makes used pages cache blocks, from the first on, and returns how many
// it has done. The run ends before a page for which the operation is wrong, so that
// attach reports it. It is empty if the priority ends, because the pages need a term.
func (p *Pool) attachRun(op *protocol.PoolOp) (done int) {
	if op.Until != 0 {
		return 0
	}
	pages, blocks, depth := p.pages, op.Blocks[:len(op.Pages)], op.Depth
	for i, id := range op.Pages {
		if id == messages.NoPage {
			continue
		}
		g, b := &pages[id], blocks[i]
		if g.state != used || g.prev <= 0 || g.stored() || b < 0 {
			return i
		}
		g.block, g.depth, g.priority = b, depth+int32(i), op.Priority
	}
	return len(op.Pages)
}

// cursor remembers the level of the page before: neighbours mostly have the same.
//
// One level lookup for each page is two dependent reads; most runs have a single level.
type cursor struct {
	*level
	priority messages.Priority
}

// move returns the level of a priority and remembers it.
func (c *cursor) move(o *order, p messages.Priority) *level {
	if c.level == nil || c.priority != p {
		c.level, c.priority = o.ensureLevel(p), p
	}
	return c.level
}
