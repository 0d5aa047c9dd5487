package pool

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

const (
	levels = int(messages.MaxPriority) + 1
	group  = 16 // levels that are made together: most tenants use one or two priorities
)

// list holds cached pages of one priority.
type list struct {
	head, tail int32 // the list, in order of eviction
	root       int32 // the heap of those that came out of order
}

var emptyList = list{none, none, none}

// level holds all cached pages of one priority: those that have it for ever, and
// the terms of the others.
type level struct {
	list
	ranked []int32 // a heap of terms; at the top the one whose first page goes first
}

// order holds cached pages in the order of their eviction: all of a pool, or
// with quotas those of one tenant.
type order struct {
	pages    []page // the pool's
	groups   [(levels + group - 1) / group]*[group]level
	occupied [2]uint64 // bit p: level p is not empty
	n        int       // pages in all levels
	terms    terms
	hinted   bool   // the pool is large enough for hints
	recent   recent // pages whose hints are to be continued
}

// reset empties the order over the given pages, which keep their terms.
func (o *order) reset(pages []page) {
	*o = order{pages: pages, groups: o.groups, terms: o.terms, hinted: len(pages) >= farPages}
	for _, g := range o.groups {
		if g != nil {
			*g = emptyGroup
		}
	}
	for i := range o.terms.all {
		o.terms.all[i].list, o.terms.all[i].first = emptyList, none
	}
}

var emptyGroup = func() (g [group]level) {
	for i := range g {
		g[i].list = emptyList
	}
	return g
}()

// level is the level of a priority that some page has had.
func (o *order) level(p messages.Priority) *level { return &o.groups[p/group][p%group] }

// grow is level for a priority that may be new.
func (o *order) grow(p messages.Priority) *level {
	if o.groups[p/group] == nil {
		g := emptyGroup
		o.groups[p/group] = &g
	}
	return o.level(p)
}

// each visits the levels that are not empty, those that go first before others,
// as long as visit says true.
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

// before tells which of two pages of one priority goes first. The last bit of a
// use tells apart what was let go early and late in one use: it counts only
// where the depths are the same.
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

// push links page i at its place.
func (o *order) push(i int32) {
	priority := o.priority(i)
	l := o.grow(priority)
	o.occupied[priority/64] |= 1 << (priority % 64)
	o.n++
	if t := o.timed(i); t != nil {
		o.insert(&t.list, i)
		o.rank(o.terms.of[i])
		return
	}
	o.insert(&l.list, i)
}

// insert links page i into a list or its heap.
func (o *order) insert(l *list, i int32) {
	g := &o.pages[i]
	if l.tail != none && !o.before(l.tail, i) {
		g.place, g.prev, g.next, g.child = heaped, none, none, none
		l.root = o.meld(l.root, i)
		return
	}
	g.place, g.prev, g.next, g.child = listed, l.tail, none, none
	if l.tail == none {
		l.head = i
	} else {
		o.pages[l.tail].next = i
	}
	l.tail = i
}

// remove unlinks page i, which is used from then on.
func (o *order) remove(i int32) {
	g := &o.pages[i]
	priority := o.priority(i)
	l := &o.level(priority).list
	t := o.timed(i)
	if t != nil {
		l = &t.list
	}
	if g.place == heaped {
		l.root = o.cut(l.root, i)
	} else {
		o.unlink(l, g)
	}
	g.let()
	o.n--
	if t != nil {
		o.rank(o.terms.of[i])
	}
	o.mark(priority)
}

// unlink takes a page out of its list.
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

// first is the page that goes next, none if nothing is cached.
func (o *order) first() int32 {
	if o.n == 0 {
		return none
	}
	l := o.level(o.lowest())
	first := o.firstOf(&l.list)
	if timed := o.firstTimed(l); timed != none && (first == none || o.before(timed, first)) {
		return timed
	}
	return first
}

// firstOf is the page of a list and its heap that goes next, or none.
func (o *order) firstOf(l *list) int32 {
	if l.head == none || l.root != none && o.before(l.root, l.head) {
		return l.root
	}
	return l.head
}

// firstTimed is the page of a level that goes first among those with terms, or none.
func (o *order) firstTimed(l *level) int32 {
	if len(l.ranked) == 0 {
		return none
	}
	return o.terms.all[l.ranked[0]-1].first
}
