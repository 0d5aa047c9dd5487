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
	// No page of a heap or a term moves while pages of the list are taken, so one rival is
	// enough for the whole run.
	rival := o.firstTimed(l)
	if l.root != none && (rival == none || o.before(l.root, rival)) {
		rival = l.root
	}
	// No page of an earlier moment than the rival needs to be compared with it.
	bound := protocol.Use(math.MaxUint64)
	if rival != none {
		bound = protocol.Use(pages[rival].use.Moment() << 1)
	}
	at, k := l.head, 0
	for {
		var taken int
		at, taken = takeEach(pages, at, ids[k:], evicted[k:], &record, bound)
		// A page of the moment of the rival is compared with it.
		if k += taken; k == n || at == none || !o.before(at, rival) {
			break
		}
		at, taken = takeEach(pages, at, ids[k:k+1], evicted[k:k+1], &record, math.MaxUint64)
		k += taken
	}
	// The counts and the new head are written once, after the loops. Taking
	// page by page, order.remove writes them each time.
	op.Pages, victims = op.Pages[:len(op.Pages)+k], victims[:len(victims)+k]
	if l.head = at; at == none {
		l.tail = none
	} else {
		pages[at].prev = none
	}
	o.n -= k
	c.n -= k
	o.clearIfEmpty(priority)
	return victims
}

// takeEach takes pages from at on, as many as there are ids, and returns the page behind
// them and their number. It ends before a page whose use is not below a bound, and at the
// end of the list.
//
// A processor cannot begin with a page before it has read its number from the page before,
// unless it can guess it: pages of one prefix mostly adjoin, so the next page is most likely
// as far behind as this one. The branch makes that guess.
func takeEach(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page, bound protocol.Use) (next int32, n int) {
	evicted = evicted[:len(ids)]
	step := int32(1)
	for n < len(ids) && uint(at) < uint(len(pages)) {
		g := &pages[at]
		if g.use >= bound {
			break
		}
		g.fillVictim(at, &evicted[n])
		ids[n] = messages.PageID(at)
		n++
		next := g.next
		*g = *record
		if next == at+step {
			at += step
			continue
		}
		step, at = next-at, next
	}
	return at, n
}

// claimRun adds a reference to each of the pages, from the first on, and returns how
// many it has done and how many of them were cached. The run ends before a page that is in a heap or has a term. With
// quotas it is empty, because each page may change the rankings.
//
// It need not compare pages, since leaving a list needs no order. A page of a heap is left
// to claim, because a cut melds the children. The pages of a prompt were dropped in one
// operation, so they are neighbours in the list: a stretch of neighbours is removed at once.
func (c *cache) claimRun(op *protocol.PoolOp) (done, claimed int) {
	if op.CoveredByReservation || c.accounts != nil {
		return 0, 0
	}
	if c.pieces != nil {
		return c.claimPieces(op)
	}
	pages, o := c.pages, &c.whole
	var at cursor
	removed := stretch{prev: none, next: none}
run:
	for _, id := range op.Pages {
		if id != messages.NoPage {
			g := &pages[id]
			switch {
			case g.state == listed && g.priority != timed:
				l := at.move(o, g.priority)
				if l != removed.level || int32(id) != removed.prev {
					o.removeStretch(&removed)
					removed = stretch{level: l, priority: g.priority, next: g.next}
				}
				removed.prev = g.prev
				g.state, g.prev, g.next = used, 1, 0
				claimed++
			// A page that is used only by pins is not held by a reference yet; claim counts it.
			case g.state == used && g.covered == 0 && g.prev > 0 && g.prev < math.MaxInt32:
				g.prev++
			default:
				break run
			}
		}
		done++
	}
	o.removeStretch(&removed)
	o.n -= claimed
	c.n -= claimed
	return done, claimed
}

// stretch is a sequence of neighbours in the list of a level: all pages between prev
// and next, of which either is none at an end of the list.
type stretch struct {
	level      *level
	priority   messages.Priority
	prev, next int32
}

// removeStretch joins the neighbours of a stretch, which the list then no longer contains.
// The links of the removed pages are left as they are. Without a level it does nothing.
func (o *order) removeStretch(s *stretch) {
	if s.level == nil {
		return
	}
	if s.prev == none {
		s.level.head = s.next
	} else {
		o.pages[s.prev].next = s.next
	}
	if s.next == none {
		s.level.tail = s.prev
	} else {
		o.pages[s.next].prev = s.prev
	}
	if s.level.head == none {
		o.clearIfEmpty(s.priority)
	}
}

// attachRun makes used pages cache blocks, from the first on, and returns how many
// it has done. The run ends before a page for which the operation is wrong, so that
// attach reports it. It is empty if the priority ends, because the pages need a term.
func (p *Pool) attachRun(op *protocol.PoolOp) (done int) {
	if op.Until != 0 {
		return 0
	}
	return attachEach(p.pages, op.Pages, op.Blocks, op.Depth, op.Priority)
}

// attachEach is the loop of attachRun.
func attachEach(pages []page, ids []messages.PageID, blocks []protocol.BlockID, depth int32, priority messages.Priority) (done int) {
	blocks = blocks[:len(ids)]
	for i, id := range ids {
		at := uint(uint32(id))
		if at >= uint(len(pages)) { // NoPage
			continue
		}
		g, b := &pages[at], blocks[i]
		if g.state != used || g.prev <= 0 || g.stored() || b < 0 {
			return i
		}
		g.block, g.depth, g.priority = b, depth+int32(i), priority
	}
	return len(ids)
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
