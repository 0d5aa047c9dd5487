package pool

import (
	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// peekVictims appends at most op.N pages that will be evicted next, in eviction
// order, and evicts none. The engine copies them to host memory while the link is
// not busy, so the order has to be exact: a page that is copied too early saves
// nothing.
//
// The eviction order stays as it is. A page that the look finds in a heap is moved
// into its list, where the next look finds it at once, so a page leaves a heap at
// most once whoever removes it. Cost: O(N), O(log) for each page that was in a
// heap, O(log N) for each page that has a term.
//
// With quotas the victim depends on the tenant that takes the next page, which is
// not known. The pages that tenants have beyond their quotas come first, then an
// equal part of the pages that each other tenant would lose first.
func (p *Pool) peekVictims(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	from := len(victims)
	victims = p.cache.peek(op.N, victims)
	op.Count = len(victims) - from
	return p.peekHeld(op.N-op.Count, victims)
}

// peek appends at most n cached pages, see peekVictims.
func (c *cache) peek(n int, victims []protocol.Victim) []protocol.Victim {
	if c.accounts == nil {
		return c.peekOrder(&c.whole, n, victims)
	}
	return c.peekWithQuotas(n, victims)
}

// peekWithQuotas appends the first pages of every tenant, see peekVictims.
//
// The parts are equal and not by quota, because a tenant that takes pages at a high rate
// may have a small quota, and rates are not known here.
func (c *cache) peekWithQuotas(n int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + n
	for t := range c.accounts.list {
		if a := &c.accounts.list[t]; a.over {
			victims = c.peekOrder(&a.order, min(end-len(victims), a.pages-a.quota), victims)
		}
	}
	// One more than the quotient, so that the remainder is not lost; the minimum below keeps
	// the sum within n.
	part := (end-len(victims))/len(c.accounts.list) + 1
	for t := range c.accounts.list {
		if a := &c.accounts.list[t]; !a.over {
			victims = c.peekOrder(&a.order, min(end-len(victims), part), victims)
		}
	}
	return victims
}

// peekOrder appends the first n pages of one eviction order.
//
// Levels are visited from the lowest priority on, so the pages of a level follow all pages
// of the levels below, as they do in eviction.
func (c *cache) peekOrder(o *order, n int, victims []protocol.Victim) []protocol.Victim {
	if c.pieces != nil {
		return c.pieces.peek(o, n, victims)
	}
	end := len(victims) + n
	o.each(func(_ messages.Priority, l *level) bool {
		c.ahead.begin(o, l)
		for len(victims) < end {
			i := c.ahead.next()
			if i == none {
				break
			}
			victims = append(victims, c.victim(i))
		}
		return len(victims) < end
	})
	return victims
}

// scanReach is how many pages peekHeld looks at for each page that is wanted.
const scanReach = 8

// peekHeld appends at most n used pages that cache a block: they become cached
// when their holders release them. Which will be the first is not known, so the
// scan goes on where the last one ended, round all pages.
//
// These candidates follow the evictable ones and op.Count leaves them out, so the engine can
// tell the two kinds apart. The limit on the scan bounds the cost in a pool whose pages are
// nearly all free or cached.
func (p *Pool) peekHeld(n int, victims []protocol.Victim) []protocol.Victim {
	for reach := min(scanReach*n, len(p.pages)); n > 0 && reach > 0; reach-- {
		if p.scanNext >= len(p.pages) {
			p.scanNext = 0
		}
		if g := &p.pages[p.scanNext]; g.state == used && g.stored() {
			victims = append(victims, p.cache.victim(int32(p.scanNext)))
			n--
		}
		p.scanNext++
	}
	return victims
}

// lookAhead lists the pages of one level in eviction order without removing any.
// A level has one list for the pages without a term and one for each term, and
// each list has a heap of the pages that arrived out of order; lookAhead merges
// all of them.
//
// The terms are merged through a heap of cursors, filled lazily. The ranking of a
// level is itself a heap of terms by their first pages, so the first page of a
// term can be the next one only after the first page of the term above it. A look
// at N pages of a level with a million terms therefore needs about N cursors.
//
// It is part of cache so that the heap of cursors keeps its memory from one look to the next.
type lookAhead struct {
	order   *order
	level   *level
	untimed int32        // the next page without a term, or none
	timed   []termCursor // a heap; the cursor whose page is evicted first is at the top
}

// termCursor is a position in the list of one term.
type termCursor struct {
	page int32 // the next page of the term
	term int32
	rank int32 // index of the term in the ranking, −1 once the terms below it have cursors
}

// Before tells whether the page of cursor x is evicted before that of y.
func (a *lookAhead) Before(x, y termCursor) bool { return a.order.before(x.page, y.page) }

// Moved ignores the index of a cursor, which is not needed.
func (a *lookAhead) Moved(termCursor, int) {}

// begin starts a look at one level.
func (a *lookAhead) begin(o *order, l *level) {
	a.order, a.level, a.timed = o, l, a.timed[:0]
	a.untimed = o.listNext(&l.list, l.head)
	a.openTerm(0)
}

// openTerm adds a cursor for the term at an index of the ranking, if there is one.
func (a *lookAhead) openTerm(rank int) {
	if rank >= len(a.level.ranked) {
		return
	}
	id := a.level.ranked[rank]
	l := &a.order.terms.all[id-1].list
	heap.Push(&a.timed, a, termCursor{page: a.order.listNext(l, l.head), term: id, rank: int32(rank)})
}

// next returns the page that is evicted after those returned before, or none at
// the end of the level.
//
// The terms below a term in the ranking get cursors when its first page is returned (rank
// ≥ 0), and not again for its later pages.
func (a *lookAhead) next() int32 {
	if len(a.timed) == 0 || a.untimed != none && a.order.before(a.untimed, a.timed[0].page) {
		i := a.untimed
		if i != none {
			a.untimed = a.order.listNext(&a.level.list, a.order.pages[i].next)
		}
		return i
	}
	c := &a.timed[0]
	i, rank := c.page, int(c.rank)
	// The cursor is moved in place: one Fix costs less than Pop and Push.
	c.page, c.rank = a.order.listNext(&a.order.terms.all[c.term-1].list, a.order.pages[i].next), -1
	if c.page == none {
		heap.Pop(&a.timed, a)
	} else {
		heap.Fix(a.timed, a, 0)
	}
	if rank >= 0 {
		a.openTerm(2*rank + 1)
		a.openTerm(2*rank + 2)
	}
	return i
}

// listNext returns the next page of a list and its heap, where at is the next
// page of the list alone, or none. If the root of the heap comes first it is moved
// into the list.
//
// The page was the first of the list and its heap apart from those before at, so the list
// stays in order, and the first page of the term stays the same: the ranking needs no
// update.
func (o *order) listNext(l *list, at int32) int32 {
	if l.root == none || at != none && o.before(at, l.root) {
		return at
	}
	i := l.root
	l.root = o.cut(l.root, i)
	g := &o.pages[i]
	g.state, g.prev, g.next, g.child = listed, l.tail, at, none
	if at != none {
		g.prev, o.pages[at].prev = o.pages[at].prev, i
	} else {
		l.tail = i
	}
	if g.prev == none {
		l.head = i
	} else {
		o.pages[g.prev].next = i
	}
	return i
}
