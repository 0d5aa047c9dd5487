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
	at, k, end, touched := l.head, 0, 0, c.touched
	for k == end && k < n && at != none {
		end = c.fetchGroup(at, k, n)
		for ; k < end && at != none && (rival == none || o.before(at, rival)); k++ {
			g := &pages[at]
			if !o.grouped && g.child != none {
				touched += pages[g.child].depth // fetches the record, see hints.go
			}
			g.fillVictim(at, &evicted[k])
			ids[k] = messages.PageID(at)
			at = g.next
			*g = record
		}
	}
	// The counts and the new head are written once, after the loops. Taking
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
	if op.CoveredByReservation || c.accounts != nil {
		return len(op.Pages), 0
	}
	freeN, listedN := free.n, 0
	if c.pieces == nil {
		left, listedN = c.dropEach(op, free)
	} else {
		left, listedN = c.dropPieces(op, free)
	}
	c.whole.n += listedN
	c.n += listedN
	if c.whole.hinted && c.pieces == nil {
		c.whole.extendHints(op.Pages[left:])
	}
	return left, listedN + free.n - freeN
}

// dropEach is the loop of dropRun. It returns how many pages are left and how many are
// cached now, and leaves the counts to its caller.
func (c *cache) dropEach(op *protocol.PoolOp, free *freePages) (left, listedN int) {
	pages, terms, ids := c.pages, c.whole.terms.of, op.Pages
	for left = len(ids); left > 0; {
		i := int32(ids[left-1])
		if i == none {
			left--
			continue
		}
		g := &pages[i]
		// A page that is covered, or has no reference to end: drop decides which is a fault.
		if g.state != used || g.child != 0 || g.prev < 1 {
			break
		}
		switch {
		case g.prev > 1 || g.next > 0:
			// It had an uncovered reference or a pin besides, so it stays held.
			g.prev--
			g.use = max(g.use, op.Use)
			left--
		case terms != nil && terms[i] != 0:
			return left, listedN
		case !g.stored():
			free.push(i)
			left--
		default:
			n := c.appendRun(ids[:left], op.Use)
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
// only holder; the run ends before a page that is not so, and before one that belongs in
// front of the tail. The use and depth of the tail are kept in variables: reading back what
// was just written would make each page wait for the one before.
func (c *cache) appendRun(ids []messages.PageID, opUse protocol.Use) (n int) {
	pages, o := c.pages, &c.whole
	terms := o.terms.of
	priority := pages[ids[len(ids)-1]].priority
	l := o.ensureLevel(priority)
	tail, last := l.tail, &page{depth: math.MaxInt32} // after which any page may come
	if tail != none {
		last = &pages[tail]
	}
	lastUse, lastDepth := last.use, last.depth
	for left := len(ids); left > 0; left-- {
		i := int32(ids[left-1])
		if i == none {
			break
		}
		g := &pages[i]
		if g.state != used || g.prev != 1 || g.next|g.child != 0 || !g.stored() || g.priority != priority ||
			terms != nil && terms[i] != 0 {
			break
		}
		// This is order.before of the tail and the page, without the ties by the low
		// bit of the use and by page number, which drop decides.
		use := max(g.use, opUse)
		if lastUse.Moment() > use.Moment() || lastUse.Moment() == use.Moment() && lastDepth <= g.depth {
			break
		}
		last.next = i
		g.use = use
		g.state, g.prev, g.next, g.child = listed, tail, none, none
		tail, last, lastUse, lastDepth = i, g, use, g.depth
		n++
	}
	if n > 0 {
		if l.tail == none {
			l.head = int32(ids[len(ids)-1])
			o.setOccupied(priority)
		}
		l.tail = tail
	}
	return n
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
	terms := o.terms.of
	var at cursor
	removed := stretch{prev: none, next: none}
run:
	for _, id := range op.Pages {
		if id != messages.NoPage {
			g := &pages[id]
			switch {
			case g.state == listed && (terms == nil || terms[id] == 0):
				l := at.move(o, g.priority)
				if l != removed.level || int32(id) != removed.prev {
					o.removeStretch(&removed)
					removed = stretch{level: l, priority: g.priority, next: g.next}
				}
				removed.prev = g.prev
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
