package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// term is the pages with one priority until one moment.
//
// A priority may hold until a moment and be the default one from then on. A
// million pages may have the same moment, so none of them is touched when it
// comes: pages with one priority until one moment share a term, which has a list
// and a heap of its own for those that are cached. A level ranks its terms by
// their first pages, next to the pages that have no term, and a term that ends
// leaves the ranking of its level for that of the default one, with all its pages.
type term struct {
	list
	until    time.Duration // protocol.NoExpiry: it has ended
	priority messages.Priority
	pages    int32 // that have it, used ones too
	first    int32 // of its cached pages, the next to go; none: there is none
	spot     int32 // in the ranking of its level, if it has a first page
	place    int32 // in the heap of ends, unless it has ended
}

// termKey is what pages of one term share.
type termKey struct {
	until    time.Duration
	priority messages.Priority
}

// terms are those of one order, by their numbers from 1 on; 0 is none.
type terms struct {
	all   []term
	free  []int32
	known map[termKey]int32 // those that have not ended
	ends  []int32           // a heap of these, the first to end at the top
	of    []int32           // by page, of the whole pool; nil: no page has ever had a term
}

// timed gives the term of a page, or nil.
func (o *order) timed(i int32) *term {
	if o.terms.of == nil || o.terms.of[i] == 0 {
		return nil
	}
	return &o.terms.all[o.terms.of[i]-1]
}

// priority is what a page's contents have at this moment.
func (o *order) priority(i int32) messages.Priority {
	if t := o.timed(i); t != nil {
		return t.priority
	}
	return o.pages[i].priority
}

// enter gives a page, which is in no list, a term.
func (o *order) enter(i int32, k termKey) {
	s := &o.terms
	id, ok := s.known[k]
	if !ok {
		if n := len(s.free); n > 0 {
			id, s.free = s.free[n-1], s.free[:n-1]
		} else {
			s.all = append(s.all, term{})
			id = int32(len(s.all))
		}
		s.all[id-1] = term{list: emptyList, until: k.until, priority: k.priority, first: none}
		if s.known == nil {
			s.known = map[termKey]int32{}
		}
		s.known[k] = id
		s.ends = append(s.ends, id)
		s.all[id-1].place = int32(len(s.ends) - 1)
		o.endUp(len(s.ends) - 1)
	}
	s.of[i] = id
	s.all[id-1].pages++
}

// leave takes the term from a page, which is in no list.
func (o *order) leave(i int32) {
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
	if t.until != protocol.NoExpiry {
		delete(s.known, termKey{t.until, t.priority})
		o.endRemove(int(t.place))
	}
	*t = term{list: emptyList, until: protocol.NoExpiry, first: none}
	s.free = append(s.free, id)
}

// expire ends the terms whose moment has come.
func (o *order) expire(now time.Duration) {
	s := &o.terms
	for len(s.ends) > 0 && s.all[s.ends[0]-1].until <= now {
		id := s.ends[0]
		t := &s.all[id-1]
		o.endRemove(0)
		delete(s.known, termKey{t.until, t.priority})
		first, was := t.first, t.priority
		if first != none {
			o.unrank(id)
			o.mark(was)
		}
		t.until, t.priority = protocol.NoExpiry, messages.DefaultPriority
		if first != none {
			o.grow(t.priority)
			o.occupied[t.priority/64] |= 1 << (t.priority % 64)
			t.first = first
			o.rankNew(id)
		}
	}
}

// end is the moment at which the next term ends.
func (o *order) end() time.Duration {
	if len(o.terms.ends) == 0 {
		return protocol.NoExpiry
	}
	return o.terms.all[o.terms.ends[0]-1].until
}

// rank puts a term to its place after a page came to it or went.
func (o *order) rank(id int32) {
	t := &o.terms.all[id-1]
	first := o.firstOf(&t.list)
	switch {
	case first == t.first:
	case first == none:
		o.unrank(id)
		t.first = none
	case t.first == none:
		t.first = first
		o.rankNew(id)
	default:
		t.first = first
		l := o.level(t.priority)
		o.rankUp(l, int(t.spot))
		o.rankDown(l, int(t.spot))
	}
}

func (o *order) rankNew(id int32) {
	t := &o.terms.all[id-1]
	l := o.level(t.priority)
	t.spot = int32(len(l.ranked))
	l.ranked = append(l.ranked, id)
	o.rankUp(l, int(t.spot))
}

// unrank takes a term, which was ranked, out of the ranking of its level.
func (o *order) unrank(id int32) {
	t := &o.terms.all[id-1]
	l := o.level(t.priority)
	i, last := int(t.spot), len(l.ranked)-1
	o.rankSwap(l, i, last)
	l.ranked = l.ranked[:last]
	if i < last {
		o.rankUp(l, i)
		o.rankDown(l, i)
	}
}

func (o *order) rankBefore(l *level, i, j int) bool {
	return o.before(o.terms.all[l.ranked[i]-1].first, o.terms.all[l.ranked[j]-1].first)
}

func (o *order) rankSwap(l *level, i, j int) {
	l.ranked[i], l.ranked[j] = l.ranked[j], l.ranked[i]
	o.terms.all[l.ranked[i]-1].spot, o.terms.all[l.ranked[j]-1].spot = int32(i), int32(j)
}

func (o *order) rankUp(l *level, i int) {
	for ; i > 0 && o.rankBefore(l, i, (i-1)/2); i = (i - 1) / 2 {
		o.rankSwap(l, i, (i-1)/2)
	}
}

func (o *order) rankDown(l *level, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(l.ranked); child++ {
			if o.rankBefore(l, child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		o.rankSwap(l, i, least)
		i = least
	}
}

func (o *order) endBefore(i, j int) bool {
	s := &o.terms
	return s.all[s.ends[i]-1].until < s.all[s.ends[j]-1].until
}

func (o *order) endSwap(i, j int) {
	s := &o.terms
	s.ends[i], s.ends[j] = s.ends[j], s.ends[i]
	s.all[s.ends[i]-1].place, s.all[s.ends[j]-1].place = int32(i), int32(j)
}

func (o *order) endRemove(i int) {
	s := &o.terms
	last := len(s.ends) - 1
	o.endSwap(i, last)
	s.ends = s.ends[:last]
	if i < last {
		o.endUp(i)
		o.endDown(i)
	}
}

func (o *order) endUp(i int) {
	for ; i > 0 && o.endBefore(i, (i-1)/2); i = (i - 1) / 2 {
		o.endSwap(i, (i-1)/2)
	}
}

func (o *order) endDown(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(o.terms.ends); child++ {
			if o.endBefore(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		o.endSwap(i, least)
		i = least
	}
}
