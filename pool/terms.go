package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// term is one priority until one moment, with all pages that have both. After the
// moment their priority is the default one.
//
// A million pages may share a moment, so no page is touched when it comes. The
// cached pages of a term are in a list and a heap of their own. A level ranks its
// terms by their first pages, beside its pages without a term; when a term ends it
// moves from the ranking of its level to that of the default level, with all its
// pages, in O(log terms).
type term struct {
	list
	// known[{until, priority}] is this term exactly until it ends. After that the pages keep
	// the term, which stands for the default priority.
	until    time.Duration // protocol.NoExpiry: it has ended
	priority messages.Priority
	// A term with pages = 0 is closed and its number is in terms.free.
	pages int32 // that have the term, used and cached
	// first = order.firstOf(list) after rank; the term is in level.ranked exactly if
	// first is a page.
	first     int32 // the cached page that is evicted first; none: no page is cached
	rankIndex int32 // in the ranking of its level, if it has a first page
	endIndex  int32 // in the heap of ends, unless it has ended

	pieces []int32 // with a forecast: the pieces of its cached pages
}

// termKey identifies a term that has not ended.
type termKey struct {
	until    time.Duration
	priority messages.Priority
}

// terms holds the terms of one eviction order, by their numbers from 1 on; 0 means
// no term. A number is used again when no page has the term any more.
type terms struct {
	all   []term
	free  []int32           // unused numbers
	known map[termKey]int32 // terms that have not ended
	ends  []int32           // a heap of these; the first to end is at the top
	// It is shared by all orders of the pool, since a page is of one tenant at a time. It is
	// kept outside the record of the page, which would grow beyond half a cache line for a
	// feature that most hosts do not use.
	of []int32 // by page, of the whole pool; nil: no page has ever had a term
}

// endOrder orders the heap of ends.
type endOrder struct{ terms *terms }

// Before tells whether term x ends before term y.
//
// Terms that end at one moment need no order between them: all of them end in one advance.
func (e endOrder) Before(x, y int32) bool {
	return e.terms.all[x-1].until < e.terms.all[y-1].until
}

// Moved notes the index of a term.
func (e endOrder) Moved(x int32, i int) { e.terms.all[x-1].endIndex = int32(i) }

// rankOrder orders the ranking of a level.
type rankOrder struct{ order *order }

// Before tells whether the first page of term x is evicted before that of term y.
//
// It reads term.first, so first is set before the heap is changed, except for Remove.
func (r rankOrder) Before(x, y int32) bool {
	return r.order.before(r.order.terms.all[x-1].first, r.order.terms.all[y-1].first)
}

// Moved notes the index of a term.
func (r rankOrder) Moved(x int32, i int) { r.order.terms.all[x-1].rankIndex = int32(i) }

// termOf is the term of a page, or nil.
func (o *order) termOf(i int32) *term {
	if o.terms.of == nil || o.terms.of[i] == 0 {
		return nil
	}
	return &o.terms.all[o.terms.of[i]-1]
}

// termNumber is the number of the term of a page, 0 if it has none.
func (o *order) termNumber(i int32) int32 {
	if o.terms.of == nil {
		return 0
	}
	return o.terms.of[i]
}

// priority is the current priority of a page's contents.
func (o *order) priority(i int32) messages.Priority {
	if t := o.termOf(i); t != nil {
		return t.priority
	}
	return o.pages[i].priority
}

// addTerm gives a page, which is in no list, a term.
//
// The caller links the page afterwards if it is cached; a used page only counts.
func (o *order) addTerm(i int32, k termKey) {
	s := &o.terms
	id, ok := s.known[k]
	if !ok {
		id = s.open(k)
	}
	s.of[i] = id
	s.all[id-1].pages++
}

// open makes a term without pages.
func (s *terms) open(k termKey) (id int32) {
	if n := len(s.free); n > 0 {
		id, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.all = append(s.all, term{})
		id = int32(len(s.all))
	}
	// A reused number keeps the memory of its pieces.
	s.all[id-1] = term{list: emptyList, until: k.until, priority: k.priority, first: none, pieces: s.all[id-1].pieces[:0]}
	if s.known == nil {
		s.known = map[termKey]int32{}
	}
	s.known[k] = id
	heap.Push(&s.ends, endOrder{s}, id)
	return id
}

// removeTerm takes the term from a page, which is in no list. A term without pages
// is closed.
func (o *order) removeTerm(i int32) {
	s := &o.terms
	if s.of == nil || s.of[i] == 0 {
		return
	}
	id := s.of[i]
	s.of[i] = 0
	t := &s.all[id-1]
	if t.pages--; t.pages > 0 {
		return
	}
	// A term that has ended left known and ends when it did.
	if t.until != protocol.NoExpiry {
		delete(s.known, termKey{t.until, t.priority})
		heap.Remove(&s.ends, endOrder{s}, int(t.endIndex))
	}
	*t = term{list: emptyList, until: protocol.NoExpiry, first: none, pieces: t.pieces[:0]}
	s.free = append(s.free, id)
}

// firstEnded is the number of a term whose moment has come, or 0.
func (o *order) firstEnded(now time.Duration) int32 {
	if s := &o.terms; len(s.ends) > 0 && s.all[s.ends[0]-1].until <= now {
		return s.ends[0]
	}
	return 0
}

// expire ends the terms whose moment has come.
func (o *order) expire(now time.Duration) {
	for id := o.firstEnded(now); id != 0; id = o.firstEnded(now) {
		o.endTerm(id)
	}
}

// endTerm ends the term that ends next: its priority is the default one from now on.
//
// The list and heap of the term stay as they are, because they are in order by use and
// depth, which the end of a priority does not change.
func (o *order) endTerm(id int32) {
	s := &o.terms
	heap.Pop(&s.ends, endOrder{s})
	t := &s.all[id-1]
	delete(s.known, termKey{t.until, t.priority})
	// Out of the old ranking while the term still has its old priority; a term without
	// cached pages is in none.
	if t.first != none {
		heap.Remove(&o.level(t.priority).ranked, rankOrder{o}, int(t.rankIndex))
		o.clearIfEmpty(t.priority)
	}
	t.until, t.priority = protocol.NoExpiry, messages.DefaultPriority
	if t.first != none {
		// The terms that have ended stay apart from the default level's own list. Merging
		// them would cost O(pages).
		l := o.ensureLevel(t.priority)
		o.setOccupied(t.priority)
		heap.Push(&l.ranked, rankOrder{o}, id)
	}
}

// end is the moment at which the next term ends, NoExpiry if there is none.
func (o *order) end() time.Duration {
	if len(o.terms.ends) == 0 {
		return protocol.NoExpiry
	}
	return o.terms.all[o.terms.ends[0]-1].until
}

// rank updates the ranking after a page was added to a term or removed from it.
//
// It compares two numbers if the first page has stayed, as it does for nearly every page.
func (o *order) rank(id int32) {
	t := &o.terms.all[id-1]
	first, before := o.firstOf(&t.list), t.first
	if first == before {
		return
	}
	l := o.level(t.priority)
	switch {
	case first == none:
		// t.first is still the old page here: the heap may compare it.
		heap.Remove(&l.ranked, rankOrder{o}, int(t.rankIndex))
		t.first = none
	case before == none:
		t.first = first
		heap.Push(&l.ranked, rankOrder{o}, id)
	default:
		t.first = first
		heap.Fix(l.ranked, rankOrder{o}, int(t.rankIndex))
	}
}
