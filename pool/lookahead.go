package pool

// lookAhead lists the pages of one level in eviction order without removing any. A level has one list for the
// pages without a term and one for each term, and each list has a heap of the pages that arrived out of order;
// lookAhead merges all of them.
//
// The terms are merged through a heap of cursors. It is filled lazily: the ranking of a level is itself a heap of
// terms by their first page, so the first page of a term can be the next one only after the first page of the
// term above it. A level with a million terms therefore costs a look of N pages no more than N cursors.
type lookAhead struct {
	order   *order
	level   *level
	untimed int32        // the next page without a term, or none
	timed   []termCursor // a heap; the cursor whose page is evicted first is at the top
}

// termCursor is a position in the list of one term.
type termCursor struct {
	page  int32 // not listed yet
	term  int32
	place int32 // of the term in the ranking of the level; −1: the terms below it have cursors already
}

// begin starts a look at one level.
func (a *lookAhead) begin(o *order, l *level) {
	a.order, a.level, a.timed = o, l, a.timed[:0]
	a.untimed = o.listNext(&l.list, l.head)
	a.openTerm(0)
}

// openTerm adds a cursor for the term at one place of the ranking, if there is such a place.
func (a *lookAhead) openTerm(place int) {
	if place >= len(a.level.ranked) {
		return
	}
	id := a.level.ranked[place]
	l := &a.order.terms.all[id-1].list
	a.timed = append(a.timed, termCursor{page: a.order.listNext(l, l.head), term: id, place: int32(place)})
	a.up(len(a.timed) - 1)
}

// next returns the page that is evicted after those returned before, or none at the end of the level.
func (a *lookAhead) next() int32 {
	if len(a.timed) == 0 || a.untimed != none && a.order.before(a.untimed, a.timed[0].page) {
		i := a.untimed
		if i != none {
			a.untimed = a.order.listNext(&a.level.list, a.order.pages[i].next)
		}
		return i
	}
	c := &a.timed[0]
	i, place := c.page, int(c.place)
	c.page, c.place = a.order.listNext(&a.order.terms.all[c.term-1].list, a.order.pages[i].next), -1
	if c.page == none {
		last := len(a.timed) - 1
		a.timed[0], a.timed = a.timed[last], a.timed[:last]
	}
	a.down(0)
	if place >= 0 {
		a.openTerm(2*place + 1)
		a.openTerm(2*place + 2)
	}
	return i
}

// listNext returns the next page of a list and its heap, where at is the next page of the list alone, or none.
// A page of the heap that comes first is moved into the list, where the next look finds it without a heap
// operation; the order of eviction stays as it is.
func (o *order) listNext(l *list, at int32) int32 {
	if l.root == none || at != none && o.before(at, l.root) {
		return at
	}
	i := l.root
	l.root = o.cut(l.root, i)
	g := &o.pages[i]
	g.place, g.prev, g.next, g.child = listed, l.tail, at, none
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

func (a *lookAhead) before(i, j int) bool {
	return a.order.before(a.timed[i].page, a.timed[j].page)
}

func (a *lookAhead) up(i int) {
	for ; i > 0 && a.before(i, (i-1)/2); i = (i - 1) / 2 {
		a.timed[i], a.timed[(i-1)/2] = a.timed[(i-1)/2], a.timed[i]
	}
}

func (a *lookAhead) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a.timed); child++ {
			if a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		a.timed[i], a.timed[least] = a.timed[least], a.timed[i]
		i = least
	}
}
