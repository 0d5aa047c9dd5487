package pool

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

const (
	levels = int(messages.MaxPriority) + 1
	group  = 16 // levels that are made together: most tenants use one or two priorities
)

// level holds the cached pages of one priority.
type level struct {
	head, tail int32 // the list, in order of eviction
	root       int32 // the heap of those that came out of order
}

// order holds cached pages in the order of their eviction: all of a pool, or
// with quotas those of one tenant.
type order struct {
	pages    []page // the pool's
	groups   [(levels + group - 1) / group]*[group]level
	occupied [2]uint64 // bit p: level p is not empty
	n        int       // pages in all levels
	hinted   bool      // the pool is large enough for hints
	recent   recent    // pages whose hints are to be continued
}

// reset empties the order over the given pages.
func (o *order) reset(pages []page) {
	*o = order{pages: pages, groups: o.groups, hinted: len(pages) >= farPages}
	for _, g := range o.groups {
		if g != nil {
			*g = emptyGroup
		}
	}
}

var emptyGroup = func() (g [group]level) {
	for i := range g {
		g[i] = level{none, none, none}
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
	case x.use>>1 != y.use>>1:
		return x.use < y.use
	case x.depth != y.depth:
		return x.depth > y.depth
	case x.use != y.use:
		return x.use < y.use
	default:
		return a < b
	}
}

// sooner tells which of two pages of any priority goes first.
func (o *order) sooner(a, b int32) bool {
	x, y := o.pages[a].priority, o.pages[b].priority
	return x < y || x == y && o.before(a, b)
}

// push links page i at its place.
func (o *order) push(i int32) {
	g := &o.pages[i]
	l := o.grow(g.priority)
	o.occupied[g.priority/64] |= 1 << (g.priority % 64)
	o.n++
	if l.tail != none && !o.before(l.tail, i) {
		g.place, g.prev, g.next, g.child = heaped, none, none, none
		l.root = o.meld(l.root, i)
		return
	}
	g.place, g.prev, g.next = listed, l.tail, none
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
	l := o.level(g.priority)
	if g.place == heaped {
		l.root = o.cut(l.root, i)
	} else {
		o.unlink(l, g)
	}
	g.place, g.prev, g.next, g.child = used, none, none, none
	o.n--
	o.mark(g.priority)
}

// unlink takes a page out of its list.
func (o *order) unlink(l *level, g *page) {
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
	if l.head == none || l.root != none && o.before(l.root, l.head) {
		return l.root
	}
	return l.head
}
