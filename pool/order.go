package pool

import "github.com/kvactor/kvactor/messages"

const levels = int(messages.MaxPriority) + 1

// level holds the cached pages of one priority.
type level struct {
	head, tail int32 // the list, in order of eviction
	root       int32 // the heap of those that came out of order
}

// order holds all cached pages in the order of their eviction.
type order struct {
	pages    []page // the pool's
	levels   [levels]level
	occupied [2]uint64 // bit p: level p is not empty
	n        int       // pages in all levels
}

// reset empties the order over the given pages.
func (o *order) reset(pages []page) {
	*o = order{pages: pages}
	for i := range o.levels {
		o.levels[i] = level{none, none, none}
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

// push links page i at its place.
func (o *order) push(i int32) {
	g := &o.pages[i]
	l := &o.levels[g.priority]
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
	l := &o.levels[g.priority]
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
	l := &o.levels[o.lowest()]
	if l.head == none || l.root != none && o.before(l.root, l.head) {
		return l.root
	}
	return l.head
}
