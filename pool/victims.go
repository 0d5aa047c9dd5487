package pool

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// candidate is a piece with the rank of its value at some moment.
type candidate struct {
	piece int32
	rank  int32 // by the value
	use   protocol.Use
}

// before tells whether candidate c is evicted before d.
//
// The values are often equal, as those of new pieces, and then the rule is LRU.
func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.use < d.use
}

// candidate gives a piece its value of this moment.
func (s *pieces) candidate(n int32) candidate { return s.candidateOf(n, s.all[n].last) }

// candidateOf gives a piece, whose last use is known, its value. While plain LRU decides, all values are equal, so
// that the use decides.
func (s *pieces) candidateOf(n int32, last int64) candidate {
	q := &s.all[n]
	c := candidate{piece: n, use: q.use}
	if !s.policy.PlainLRU() {
		c.rank = s.policy.Rank(q.features, last)
	}
	return c
}

// candidates is the set that the victims of a level are chosen from.
//
// A level that is not empty has pieces in one of the two sets. It may have inner pieces only,
// when the leaves behind them have another priority or are used.
func (l *level) candidates() []int32 {
	if len(l.leaves) > 0 {
		return l.leaves
	}
	return l.inner
}

// victimOf is the piece of a level that loses the next page: the one of least value among those
// that are kept from choices before, some that are drawn at random, and the latest. Pieces that are superseded, and
// pieces in front of a victim, are worth little at once, and are found there without luck.
//
// A heap by value was rejected: values change with time, so that it would be out of order.
func (s *pieces) victimOf(l *level) candidate {
	set := l.candidates()
	if len(set) <= frontSize {
		best := candidate{}
		for _, n := range set {
			if c := s.candidate(n); best.piece == noPiece || c.before(best) {
				best = c
			}
		}
		return best
	}
	if l.front == nil {
		l.front = &front{}
	}
	f := l.front
	if lru := s.policy.PlainLRU(); f.lru != lru {
		f.lru, f.n = lru, 0
	}
	// All records are read before the first value is computed: the pieces of a large pool are
	// not in the processor's caches, and their reads overlap.
	drawn := [draws + 1]int32{set[len(set)-1]}
	for k := range draws {
		drawn[k+1] = set[s.policy.Below(len(set))]
	}
	var last [draws + 1]int64
	for k, n := range drawn {
		last[k] = s.all[n].last
	}
	for k, n := range drawn {
		f.add(s.candidateOf(n, last[k]))
	}
	// One of the others gets its value of this moment, the least one as often as it changes its place.
	if f.turn = (f.turn + 1) % frontSize; f.turn < f.n {
		s.update(f, f.turn, set)
	}
	for f.n == 0 || !s.update(f, f.n-1, set) {
		// Those drawn were worth more than candidates that are gone.
		if f.n == 0 {
			f.add(s.candidate(set[s.policy.Below(len(set))]))
		}
	}
	return f.list[f.n-1]
}

// update gives a candidate its value of this moment, and removes it if it is no longer in the set.
// It tells whether the candidate has kept its place.
func (s *pieces) update(f *front, k int, set []int32) bool {
	c := f.remove(k)
	if spot := s.all[c.piece].spot; spot < 0 || int(spot) >= len(set) || set[spot] != c.piece {
		return false
	}
	return f.add(s.candidate(c.piece)) == k
}

// first is the piece of the lowest level that loses the next page, in a pool without quotas
// that has cached pages.
func (s *pieces) first() int32 {
	o := &s.orders.whole
	return s.victimOf(o.level(o.lowest())).piece
}

// firstOfTenants is the page that is evicted next among those of some tenants, none if
// they have no cached pages. It looks at every tenant.
//
// A ranking, as for LRU, would have to be repaired whenever a value changes.
func (s *pieces) firstOfTenants(want func(*account) bool) int32 {
	lowest, best := messages.MaxPriority+1, candidate{}
	for t := range s.orders.accounts.list {
		a := &s.orders.accounts.list[t]
		if a.order.n == 0 || !want(a) {
			continue
		}
		priority := a.order.lowest()
		// A choice costs about ten values, so levels that cannot win are not drawn from.
		if priority > lowest {
			continue
		}
		if c := s.victimOf(a.order.level(priority)); priority < lowest || c.before(best) {
			lowest, best = priority, c
		}
	}
	if best.piece == noPiece {
		return none
	}
	return s.all[best.piece].head
}

// next is the page that is evicted next in a pool with the policy forecast, none
// if none is cached. With quotas a taker that has reached its own is asked first.
func (s *pieces) next(taker *account) int32 {
	if s.orders.accounts == nil {
		if s.orders.whole.n == 0 {
			return none
		}
		return s.all[s.first()].head
	}
	if taker != nil && taker.full() && taker.order.n > 0 {
		return s.firstOfTenants(func(a *account) bool { return a == taker })
	}
	if i := s.firstOfTenants(func(a *account) bool { return a.pages > a.quota }); i != none {
		return i
	}
	return s.firstOfTenants(func(*account) bool { return true })
}

// peekLimit is how many pieces of a level a look ahead compares.
// A look is frequent and only a forecast, so it must not cost O(pieces).
const peekLimit = 256

// peek appends at most n pages that are likely to be evicted next. Victims are
// drawn at random, so this is a forecast of the draw: the pages of the pieces of least
// value. The look changes nothing, not even the random numbers to come.
func (s *pieces) peek(o *order, n int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + n
	o.each(func(_ messages.Priority, l *level) bool {
		victims = s.peekSet(l.leaves, end, victims)
		victims = s.peekSet(l.inner, end, victims)
		return len(victims) < end
	})
	return victims
}

// peekSet appends pages of the pieces of least value of a set, up to a length.
//
// Of a large set every step-th piece is compared: a fixed choice, because drawing here would
// change the draws of the evictions to come and so make results depend on the looks.
func (s *pieces) peekSet(set []int32, end int, victims []protocol.Victim) []protocol.Victim {
	list := s.peeked[:0]
	step := max(1, len(set)/peekLimit)
	for k := 0; k < len(set); k += step {
		list = append(list, s.candidate(set[k]))
	}
	s.peeked = list
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.use, b.use), cmp.Compare(a.piece, b.piece))
	})
	for _, c := range list {
		for i := s.all[c.piece].head; i != none && len(victims) < end; i = s.pages[i].next {
			victims = append(victims, s.orders.victim(i))
		}
	}
	return victims
}
