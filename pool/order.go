package pool

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

const (
	levels = int(messages.MaxPriority) + 1
	group  = 16 // levels that are made together: most tenants use one or two priorities
)

// list holds cached pages of one level or term in eviction order. Pages that
// arrive in this order, as nearly all do, are appended to the list. A page that
// belongs before the tail is put into the heap, so that the list is never searched.
type list struct {
	head, tail int32 // the pages that arrived in order
	root       int32 // the pairing heap of the others
}

var emptyList = list{none, none, none}

// level holds all cached pages of one priority: the pages without a term in its
// own list, the others in the lists of their terms.
type level struct {
	list
	ranked        []int32 // a heap of terms; at the top the one whose first page is evicted first
	leaves, inner []int32 // with a forecast: pieces with cached pages, see pieces.go
	front         *front  // of these, from the first choice on
}

// order is the eviction order of cached pages: all of a pool, or with quotas those
// of one tenant.
type order struct {
	pages  []page // the pool's
	groups [(levels + group - 1) / group]*[group]level
	// A bit is set exactly if the level has a page in its list or heap, a ranked term, or
	// a piece with cached pages. So the lowest level is found with two instructions, and
	// not by a search through 101 levels for each victim.
	occupied [2]uint64 // bit p: level p is not empty
	n        int       // pages in all levels
	terms    terms

	blockTokens int // tokens of a block; 0: not known
}

// reset empties the order. The pages keep their terms.
//
// Groups are emptied and not dropped, since nearly the same priorities are used again.
// Ended terms keep their pages too, so the default level gets them back when they are
// linked.
func (o *order) reset(pages []page) {
	*o = order{pages: pages, groups: o.groups, terms: o.terms, blockTokens: o.blockTokens}
	for _, g := range o.groups {
		if g != nil {
			*g = emptyGroup
		}
	}
	for i := range o.terms.all {
		o.terms.all[i].list, o.terms.all[i].first = emptyList, none
	}
}

// emptyGroup is a group of levels without pages.
var emptyGroup = func() (g [group]level) {
	for i := range g {
		g[i].list = emptyList
	}
	return g
}()

// level is the level of a priority; some page must have had this priority.
func (o *order) level(p messages.Priority) *level { return &o.groups[p/group][p%group] }

// ensureLevel is level for any priority; it makes the level if there is none.
func (o *order) ensureLevel(p messages.Priority) *level {
	if o.groups[p/group] == nil {
		g := emptyGroup
		o.groups[p/group] = &g
	}
	return o.level(p)
}

// each visits the levels that are not empty, the lowest priority first, as long as
// visit returns true.
func (o *order) each(visit func(messages.Priority, *level) bool) {
	for word, set := range o.occupied {
		for ; set != 0; set &= set - 1 {
			p := messages.Priority(64*word + bits.TrailingZeros64(set))
			if !visit(p, o.level(p)) {
				return
			}
		}
	}
}

// before tells whether page a is evicted before page b of the same priority: the
// earlier use first, then the deeper block. The lowest bit of a use tells pages
// apart that were released early and late by one request; it counts only between
// pages of one depth. The page number decides last, so that the order is total.
//
// The order must be total and depend on nothing but the records: Unclaim puts a page back
// where it was, and Rebuild yields the order of the pool that failed. A tie that was left
// to the order of arrival would break both.
func (o *order) before(a, b int32) bool {
	x, y := &o.pages[a], &o.pages[b]
	switch {
	case x.use.Moment() != y.use.Moment():
		return x.use < y.use
	case x.depth != y.depth:
		return x.depth > y.depth
	case x.use != y.use:
		return x.use < y.use
	default:
		return a < b
	}
}

// push adds page i.
//
// The level is ensured even if the page goes to a term, because the term is ranked there.
func (o *order) push(i int32) {
	priority := o.priority(i)
	l := o.ensureLevel(priority)
	o.setOccupied(priority)
	o.n++
	if t := o.termOf(i); t != nil {
		o.insert(&t.list, i)
		o.rank(o.terms.of[i])
		return
	}
	o.insert(&l.list, i)
}

// setOccupied notes that the level of a priority has pages.
func (o *order) setOccupied(p messages.Priority) { o.occupied[p/64] |= 1 << (p % 64) }

// clearIfEmpty notes that the level of a priority may have lost its last page.
//
// It looks at all places where a level may have pages, so callers may call it whenever one
// of the places has become smaller.
func (o *order) clearIfEmpty(p messages.Priority) {
	if l := o.level(p); l.head == none && l.root == none && len(l.ranked)+len(l.leaves)+len(l.inner) == 0 {
		o.occupied[p/64] &^= 1 << (p % 64)
	}
}

// lowest is the lowest priority of a cached page; there must be one.
func (o *order) lowest() messages.Priority {
	if o.occupied[0] != 0 {
		return messages.Priority(bits.TrailingZeros64(o.occupied[0]))
	}
	return messages.Priority(64 + bits.TrailingZeros64(o.occupied[1]))
}

// insert appends page i to a list, or puts it into the heap if it belongs before
// the tail.
//
// A search for the right place in the list would cost O(pages) when many pages come back
// early, as after a long request is cancelled. The heap makes such a page O(1) now and
// O(log) when it is evicted.
func (o *order) insert(l *list, i int32) {
	g := &o.pages[i]
	if l.tail != none && !o.before(l.tail, i) {
		g.state, g.prev, g.next, g.child = heaped, none, none, none
		l.root = o.meld(l.root, i)
		return
	}
	g.state, g.prev, g.next, g.child = listed, l.tail, none, none
	if l.tail == none {
		l.head = i
	} else {
		o.pages[l.tail].next = i
	}
	l.tail = i
}

// remove removes page i; the page is used then.
//
// The priority is read first, from the term if there is one. The level's bit is cleared
// last, when the term has left the ranking.
func (o *order) remove(i int32) {
	g := &o.pages[i]
	priority := o.priority(i)
	l := &o.level(priority).list
	t := o.termOf(i)
	if t != nil {
		l = &t.list
	}
	if g.state == heaped {
		l.root = o.cut(l.root, i)
	} else {
		o.unlink(l, g)
	}
	g.unlinkAll()
	o.n--
	if t != nil {
		o.rank(o.terms.of[i])
	}
	o.clearIfEmpty(priority)
}

// unlink removes a page from its list.
func (o *order) unlink(l *list, g *page) {
	if g.prev == none {
		l.head = g.next
	} else {
		o.pages[g.prev].next = g.next
	}
	if g.next == none {
		l.tail = g.prev
	} else {
		o.pages[g.next].prev = g.prev
	}
}

// first is the page that is evicted next, or none if none is cached.
//
// It compares three candidates: the head of the list, the root of its heap, and the first
// page of the first ranked term. Each is the first of its kind, so no other page of the
// level can come before all three.
func (o *order) first() int32 {
	if o.n == 0 {
		return none
	}
	l := o.level(o.lowest())
	first := o.firstOf(&l.list)
	// A term's page and a page without one have the same priority here, so their uses
	// decide. Terms have no precedence of their own.
	if timed := o.firstTimed(l); timed != none && (first == none || o.before(timed, first)) {
		return timed
	}
	return first
}

// firstOf is the page of a list and its heap that is evicted first, or none.
func (o *order) firstOf(l *list) int32 {
	if l.head == none || l.root != none && o.before(l.root, l.head) {
		return l.root
	}
	return l.head
}

// firstTimed is the page of a level that is evicted first among the pages with
// terms, or none.
func (o *order) firstTimed(l *level) int32 {
	if len(l.ranked) == 0 {
		return none
	}
	return o.terms.all[l.ranked[0]-1].first
}
