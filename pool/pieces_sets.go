package pool

import (
	"math"
	"time"

	"github.com/kvactor/kvactor/messages"
)

// now is the time of a use that happens now.
func (s *pieces) now() uint32 { return uint32(s.policy.Now() - s.epoch) }

// lastOf is the time of a last use by the policy's clock.
func (s *pieces) lastOf(last uint32) int64 { return s.epoch + int64(last) }

// epochMillis is for how long times of last uses are exact, 12 days. A piece that is cached and unused for longer may be taken for one that was
// used that long ago.
const epochMillis = 1 << 30

// advance moves the policy's clock, and the epoch once in 12 days or more: the times of all pieces are changed then.
func (s *pieces) advance(now time.Duration) {
	s.policy.Advance(now)
	if s.policy.Now()-s.epoch > 2*epochMillis {
		s.moveEpoch(s.policy.Now() - epochMillis)
	}
}

// moveEpoch makes a later time the one that last uses count from. Earlier ones become that time.
func (s *pieces) moveEpoch(epoch int64) {
	by := uint32(min(epoch-s.epoch, math.MaxUint32))
	s.epoch = epoch
	for n := range s.uses {
		s.uses[n].time -= min(s.uses[n].time, by)
	}
	s.orders.each(func(o *order) {
		o.each(func(_ messages.Priority, l *level) bool {
			if f := l.front; f != nil {
				for k := range f.list {
					f.list[k].last -= min(f.list[k].last, by)
					f.list[k].at -= min(f.list[k].at, by)
				}
			}
			return true
		})
	})
}

// levelOf is the level of a piece with cached pages.
func (s *pieces) levelOf(q *piece) *level {
	if s.orders.accounts == nil {
		return s.orders.whole.ensureLevel(q.priority)
	}
	return s.orders.accounts.list[q.tenant].order.ensureLevel(q.priority)
}

// setOf is the set of a level that a piece with cached pages is in.
func (l *level) setOf(q *piece) *[]int32 {
	if q.children > 0 {
		return &l.inner
	}
	return &l.leaves
}

// put adds a piece, which is in no set, to one.
func (s *pieces) put(set *[]int32, n int32) {
	s.all[n].spot = int32(len(*set))
	*set = appendTight(*set, n)
}

// cut removes a piece from its set.
//
// The last piece fills the gap, so it is O(1). The sets need no order: victims are searched in
// all places.
func (s *pieces) cut(set *[]int32, spot int32) {
	list := *set
	last := len(list) - 1
	moved := list[last]
	list[spot] = moved
	s.all[moved].spot = spot
	*set = list[:last]
}

// addToLevel adds a piece, which has cached pages now, to its level, as a leaf or an inner piece.
func (s *pieces) addToLevel(o *order, n int32) {
	q := &s.all[n]
	l := o.ensureLevel(q.priority)
	o.setOccupied(q.priority)
	s.put(l.setOf(q), n)
	if q.children == 0 {
		l.offer(s, n)
	}
}

// removeFromLevel removes a piece from its level.
//
// It needs the priority and the children that the piece was added with, so it comes before
// a change to either.
func (s *pieces) removeFromLevel(o *order, q *piece) {
	s.cut(o.level(q.priority).setOf(q), q.spot)
	o.clearIfEmpty(q.priority)
}

// termPlace is the term of the cached pages of a piece, and the place of the piece in term.pieces.
//
// It is outside the record of the piece for the reason for which terms.of is outside that of the page.
type termPlace struct {
	term int32 // 0: none
	spot int32
}

// termOf is the term of the cached pages of a piece, 0 if they have none.
func (s *pieces) termOf(n int32) int32 {
	if int(n) >= len(s.terms) {
		return 0
	}
	return s.terms[n].term
}

// joinTerm notes a piece in the term, if any, of its first cached page: the term needs its pieces, to move them to the
// default level when it ends.
func (s *pieces) joinTerm(o *order, n, term int32) {
	if term == 0 {
		return
	}
	for int(n) >= len(s.terms) {
		s.terms = appendTight(s.terms, termPlace{})
	}
	t := &o.terms.all[term-1]
	s.terms[n] = termPlace{term, int32(len(t.pieces))}
	t.pieces = append(t.pieces, n)
}

// leaveTerm undoes joinTerm.
func (s *pieces) leaveTerm(o *order, n int32) {
	if s.termOf(n) == 0 {
		return
	}
	place := s.terms[n]
	t := &o.terms.all[place.term-1]
	last := t.pieces[len(t.pieces)-1]
	t.pieces[place.spot], s.terms[last].spot = last, place.spot
	t.pieces = t.pieces[:len(t.pieces)-1]
	s.terms[n] = termPlace{}
}

// endTerms ends the terms of an order whose moment has come, and moves their pieces to
// the default level. A piece moves once for each term, so the cost is O(1) for each piece
// that is made.
func (s *pieces) endTerms(o *order, now time.Duration) {
	for id := o.firstEnded(now); id != 0; id = o.firstEnded(now) {
		// All pieces leave the level before the term ends, since endTerm changes the priority
		// of the term and clears the bit of an empty level.
		t := &o.terms.all[id-1]
		for _, n := range t.pieces {
			s.removeFromLevel(o, &s.all[n])
		}
		o.endTerm(id)
		for _, n := range t.pieces {
			s.all[n].priority = messages.DefaultPriority
			s.addToLevel(o, n)
		}
	}
}

// appendTight is append to a list that grows by an eighth: most of what a policy takes for each page is lists of
// pieces, and append leaves up to half of them empty.
func appendTight[T any](list []T, x T) []T {
	if len(list) == cap(list) {
		grown := make([]T, len(list), len(list)+len(list)/8+4)
		copy(grown, list)
		list = grown
	}
	return append(list, x)
}
