package pool

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Check verifies the invariants and joins everything that is wrong:
//
//  1. A page is used exactly if it has a holder. A page without holders is cached if
//     it caches a block and free otherwise, and it is in exactly one list or heap.
//  2. Lists and heaps are in eviction order, and the bitmap has the levels that are
//     not empty.
//  3. Only pages that cache a block have pins, covered references are references,
//     and no block is cached twice.
//  4. The counts equal a recount. A term counts its pages; a term that has not ended
//     can be found by its key and is in the heap of ends.
//  5. The account of a tenant counts its pages, and its order holds those that are
//     cached. Every tenant with cached pages is in the ranking that its quota says.
//
// It costs O(pages) and allocates, so it runs after each operation only in builds with
// the tag invariants, and once after Rebuild. Everything is derived again from the records
// and compared with what the operations have kept.
func (p *Pool) Check() error {
	c := &checking{pool: p, linked: make([]int, len(p.pages)), blocks: make(map[protocol.BlockID]int)}
	held := 0
	for i := range p.pages {
		c.page(i)
		if p.pages[i].held() {
			held++
		}
	}
	// Each walk counts the pages that it meets in linked. A page that is in two lists, or in
	// none although it is not used, shows after all walks.
	c.free()
	var cached int
	if p.cache.pieces != nil {
		cached = c.piecesOf()
	} else {
		cached = c.walk(&p.cache.whole)
	}
	if p.cache.accounts != nil && p.cache.pieces == nil {
		cached += c.checkQuotas()
	}
	for i, n := range c.linked {
		if want := p.pages[i].state != used; n > 1 || (n == 1) != want {
			c.say("page %d is linked %d times", i, n)
		}
	}
	if held != p.held {
		c.say("%d pages are held, %d counted", held, p.held)
	}
	if cached != p.cache.n {
		c.say("%d pages are cached, %d counted", cached, p.cache.n)
	}
	return errors.Join(c.problems...)
}

// checking is the state of one run of Check.
type checking struct {
	pool     *Pool
	at       *order // the order that is being checked
	term     int32  // the term of it that is being checked; 0: none
	linked   []int  // by page: how often a list or heap has led to it
	blocks   map[protocol.BlockID]int
	problems []error
}

// say notes what is wrong.
func (c *checking) say(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// page checks the record of one page by itself.
//
// A used page without holders, or a linked page with some, cannot be seen by its lists
// alone: the fields of a link and the counts of holders are the same memory.
func (c *checking) page(i int) {
	g := &c.pool.pages[i]
	if g.references() < 0 || g.pins() < 0 {
		c.say("page %d has %d references and %d pins", i, g.references(), g.pins())
	}
	if g.unheld() != (g.state != used) || g.cached() != (g.unheld() && g.stored()) {
		c.say("page %d with %d references, %d pins and block %d is in state %d", i, g.references(), g.pins(), g.block, g.state)
	}
	if g.coveredReferences() > g.references() {
		c.say("page %d has %d covered references of %d", i, g.coveredReferences(), g.references())
	}
	if term := c.pool.cache.whole.termNumber(int32(i)); g.priority > timed || (g.priority == timed) != (term != 0) {
		c.say("page %d has priority %d and term %d", i, g.priority, term)
	}
	if !g.stored() {
		if g.pins() > 0 {
			c.say("page %d caches nothing and has %d pins", i, g.pins())
		}
		return
	}
	// A block on two pages would be evicted once and stay matched: the tree knows one page
	// for each block.
	if other, twice := c.blocks[g.block]; twice {
		c.say("pages %d and %d cache block %d", other, i, g.block)
	}
	c.blocks[g.block] = i
}

// has tells whether the bit of a level is set.
func (o *order) has(priority int) bool { return o.occupied[priority/64]>>(priority%64)&1 == 1 }

// follow counts a page that a link leads to, and tells whether the link can be
// followed.
//
// Check has to end on a pool in any state, since it is what reports the damage. So a link
// is followed only inside the pool and only once to each page.
func (c *checking) follow(i int32, want pageState) bool {
	if i < 0 || int(i) >= len(c.pool.pages) {
		c.say("a link leads to page %d of %d", i, len(c.pool.pages))
		return false
	}
	if c.pool.pages[i].state != want {
		c.say("page %d is linked in state %d and says %d", i, want, c.pool.pages[i].state)
	}
	c.linked[i]++
	return c.linked[i] == 1 // a second time is a cycle, reported at the end
}

// free checks the list of free pages.
func (c *checking) free() {
	n := 0
	for i := c.pool.free.head; i != none && c.follow(i, free); i = c.pool.pages[i].next {
		n++
	}
	if n != c.pool.free.n {
		c.say("%d pages are free, %d counted", n, c.pool.free.n)
	}
}

// walk checks all levels of an order and returns the number of its pages.
func (c *checking) walk(o *order) int {
	c.at = o
	n := 0
	for p := range levels {
		// The levels of a group that was never made are empty. Looking them up would panic.
		if o.groups[p/group] != nil {
			n += c.level(p, o.level(messages.Priority(p)))
		} else if o.has(p) {
			c.say("level %d has never been used, its bit says otherwise", p)
		}
	}
	if n != o.n {
		c.say("%d pages are in an order that counts %d", n, o.n)
	}
	c.terms(o)
	return n
}

// level checks the pages, the terms and the bit of one priority and returns the
// number of its pages.
//
// The first page of each ranked term is compared with its list: a stale one would leave the
// heap in order and yet yield the wrong victim.
func (c *checking) level(priority int, l *level) int {
	c.term = 0
	n := c.list(priority, &l.list)
	for k, id := range l.ranked {
		t := &c.at.terms.all[id-1]
		c.term = id
		if int(t.priority) != priority || int(t.rankIndex) != k || t.first != c.at.firstOf(&t.list) || t.first == none {
			c.say("term %d of priority %d with first page %d and index %d is ranked at %d of level %d", id, t.priority, t.first, t.rankIndex, k, priority)
		}
		n += c.list(priority, &t.list)
	}
	if k := heap.Misplaced(l.ranked, rankOrder{c.at}); k >= 0 {
		c.say("term %d is ranked below term %d", l.ranked[k], l.ranked[(k-1)/2])
	}
	c.term = 0
	// A bit that is set for an empty level makes first return none in a pool that has cached
	// pages; a bit that is clear hides the pages from eviction.
	if bit := c.at.has(priority); bit != (n > 0) {
		c.say("level %d has %d pages, its bit says %v", priority, n, bit)
	}
	return n
}

// list checks a list and its heap and returns the number of their pages.
func (c *checking) list(priority int, l *list) int {
	n, last := 0, none
	for i := l.head; i != none && c.follow(i, listed); i = c.pool.pages[i].next {
		c.in(i, priority)
		if c.pool.pages[i].prev != last {
			c.say("page %d follows %d and says %d", i, last, c.pool.pages[i].prev)
		}
		if last != none && !c.at.before(last, i) {
			c.say("page %d is listed after %d", i, last)
		}
		last = i
		n++
	}
	if l.tail != last {
		c.say("the list of level %d ends with page %d, not %d", priority, last, l.tail)
	}
	return n + c.heap(priority, l.root, none)
}

// heap checks the siblings from first on and all pages below them. It recurses as
// deep as the heap is.
func (c *checking) heap(priority int, first, parent int32) int {
	n, left := 0, parent
	for i := first; i != none && c.follow(i, heaped); i = c.pool.pages[i].next {
		c.in(i, priority)
		if c.pool.pages[i].prev != left {
			c.say("page %d is linked from %d and says %d", i, left, c.pool.pages[i].prev)
		}
		if parent != none && !c.at.before(parent, i) {
			c.say("page %d is below %d in the heap", i, parent)
		}
		n += 1 + c.heap(priority, c.pool.pages[i].child, i)
		left = i
	}
	return n
}

// in checks that a page is linked at its own priority and term.
func (c *checking) in(i int32, priority int) {
	if own := c.pool.cache.priority(i); int(own) != priority {
		c.say("page %d of priority %d is linked in level %d", i, own, priority)
	}
	if of := c.at.terms.of; of != nil && of[i] != c.term {
		c.say("page %d of term %d is linked with term %d", i, of[i], c.term)
	}
}

// checkQuotas checks every account and both rankings, and returns the number of
// cached pages on all accounts.
//
// It is not for pools with the policy forecast, whose rankings are empty (see accounts).
func (c *checking) checkQuotas() int {
	all := c.pool.cache.accounts
	pages := make([]int, len(all.list))
	for i := range c.pool.pages {
		if c.pool.pages[i].state != free {
			pages[all.of[i]]++
		}
	}
	cached := 0
	for t := range all.list {
		a := &all.list[t]
		cached += c.walk(&a.order)
		if a.pages != pages[t] || a.quota != a.share.Pages(len(c.pool.pages)) {
			c.say("tenant %d has %d pages of %d, counted %d of %d", t, pages[t], a.share.Pages(len(c.pool.pages)), a.pages, a.quota)
		}
		if a.first != a.order.first() || a.over != (a.pages > a.quota) {
			c.say("tenant %d with %d pages of %d and first page %d is ranked by %d, over: %v", t, a.pages, a.quota, a.order.first(), a.first, a.over)
		}
		for _, i := range a.order.cached() {
			if all.of[i] != protocol.Tenant(t) {
				c.say("page %d of tenant %d is in the order of tenant %d", i, all.of[i], t)
			}
		}
	}
	c.ranking(&all.over, true)
	c.ranking(&all.within, false)
	return cached
}

// ranking checks that a ranking holds the tenants that belong there, in order.
func (c *checking) ranking(r *ranking, over bool) {
	n := 0
	for t := range r.accounts {
		if a := &r.accounts[t]; a.first != none && a.over == over {
			n++
			if int(a.rankIndex) >= len(r.heap) || r.heap[a.rankIndex] != protocol.Tenant(t) {
				c.say("tenant %d is not at %d of its ranking", t, a.rankIndex)
			}
		}
	}
	if n != len(r.heap) {
		c.say("%d tenants are ranked, %d belong there", len(r.heap), n)
	}
	if i := heap.Misplaced(r.heap, r); i >= 0 {
		c.say("tenant %d is ranked below tenant %d", r.heap[i], r.heap[(i-1)/2])
	}
}

// terms checks the terms of an order: their counts, keys and ends.
//
// A term whose pages were counted too high would keep its number for ever; one counted too
// low would give its number to another term while pages still refer to it.
func (c *checking) terms(o *order) {
	s := &o.terms
	if s.of == nil {
		return
	}
	pages := make([]int32, len(s.all))
	for i := range c.pool.pages {
		if s.of[i] != 0 && c.pool.cache.of(int32(i)) == o {
			pages[s.of[i]-1]++
			if !c.pool.pages[i].stored() {
				c.say("page %d caches nothing and has term %d", i, s.of[i])
			}
		}
	}
	waiting := 0
	for k := range s.all {
		t := &s.all[k]
		if t.pages != pages[k] {
			c.say("term %d has %d pages, counted %d", k+1, pages[k], t.pages)
		}
		// It has ended, or its number is unused: neither is in known or in ends.
		if t.until == protocol.NoExpiry {
			continue
		}
		waiting++
		if s.known[termKey{t.until, t.priority}] != int32(k+1) || s.ends[t.endIndex] != int32(k+1) {
			c.say("term %d of priority %d until %v is not known or does not wait for its end", k+1, t.priority, t.until)
		}
	}
	if waiting != len(s.ends) || waiting != len(s.known) {
		c.say("%d terms have not ended, %d are known and %d wait", waiting, len(s.known), len(s.ends))
	}
	if k := heap.Misplaced(s.ends, endOrder{s}); k >= 0 {
		c.say("term %d ends before term %d", s.ends[k], s.ends[(k-1)/2])
	}
}
