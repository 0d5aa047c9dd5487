package pool

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// candidate is a piece with the rank of its value at some moment.
//
// It has four fields: the compiler keeps no larger structure in registers, and with a fifth one a choice takes a third longer.
type candidate struct {
	rank  int32  // by the value
	last  uint32 // its last use, as lastUse.time
	at    uint32 // when it had this value, in the same unit
	piece int32
}

// before tells whether candidate c is evicted before d.
//
// The values are often equal, as those of new pieces, and then the rule is LRU.
func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.last < d.last
}

// candidate gives a piece its value of this moment.
func (s *pieces) candidate(n int32) candidate {
	u := &s.uses[n]
	c := candidate{piece: n, last: u.time, at: s.now()}
	if s.policy.ByDepth() {
		c.rank = s.policy.RankAt(u.features(), s.lastOf(u.time), s.pages[s.all[n].head].depth)
	} else {
		c.rank = s.policy.Rank(u.features(), s.lastOf(u.time))
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
// that were found. Due is how many more are to be compared.
//
// A piece is compared when it joins the leaves, when it is superseded or awaited, and when its last block goes. After that
// it is compared when its turn comes: compareDue goes round the set, and so do choices that find too few candidates. Draws at
// random were rejected: of as many pieces they miss some for long. So was a heap by value: values change with time, so that it
// would be out of order.
//
// A set of up to wholeSet pieces is compared as a whole, one of checkpoints up to frontSize: the value of a checkpoint changes
// when its neighbours do.
func (s *pieces) victimOf(l *level, due int) candidate {
	set := l.candidates()
	if len(set) <= wholeSet || s.checkpoints != nil && len(set) <= frontSize {
		best := s.candidate(set[0])
		for k := range set[1:] {
			if c := s.candidate(set[k+1]); c.before(best) {
				best = c
			}
		}
		return best
	}
	f := l.front
	if lru := s.policy.PlainLRU(); f == nil || f.lru != lru {
		f = l.survey(s, set)
	}
	if f.due = min(f.due+due, surveyLimit); f.n < leastFront || f.due == surveyLimit || f.due >= fewPages && s.orders.accounts != nil {
		f.compare(s, set, max(fewPages, min(f.due, frontSize)))
	}
	// The least one gets its value of this moment, unless it had one a short time ago, as often as it changes its place.
	for !f.update(s, set) {
		if f.n == 0 {
			f.compare(s, set, fewPages)
		}
	}
	return f.list[f.n-1]
}

// compareDue makes the comparisons that the last choices left, when a request has released its pages. An admission, whose first token is
// waited for, does not make them: evictions took twice as long when it did.
//
// With quotas each tenant has levels of its own, whose choices compare what is due themselves. Drops of checkpoints need have no facts of
// a request.
func (c *cache) compareDue(drop *protocol.PoolOp) {
	s, o := c.pieces, &c.whole
	if s == nil || c.accounts != nil || o.n == 0 || drop.Request == nil && s.checkpoints == nil {
		return
	}
	l := o.level(o.lowest())
	if f := l.front; f != nil && f.due > 0 {
		f.compare(s, l.candidates(), f.due)
	}
}

// isLeast tells whether a piece that was chosen and got another value still is the least one, of those that were found.
func (l *level) isLeast(s *pieces, n int32) bool {
	f := l.front
	if f == nil || len(l.candidates()) <= wholeSet {
		return s.victimOf(l, 0).piece == n
	}
	return f.n > 0 && f.list[f.n-1].piece == n
}

// survey makes the front of a level from pieces of all parts of a set, at the first choice and when plain LRU begins or ends.
//
// Where nearly everything fits, choices are few, and a front that begins empty has its first turn behind it when the trace ends: the
// mean share of halves of traces is 0.4 and 0.9 points lower. surveyLimit bounds what one choice may take, about 20 µs.
func (l *level) survey(s *pieces, set []int32) *front {
	if l.front == nil {
		l.front = &front{}
	}
	f := l.front
	f.lru, f.n = s.policy.PlainLRU(), 0
	step := max(1, len(set)/surveyLimit)
	for k := 0; k < len(set); k += step {
		f.add(s.candidate(set[k]))
	}
	return f
}

// fresh tells whether the value of a candidate is nearly that of a moment.
func (c *candidate) fresh(now uint32) bool {
	return float32(now-c.at) <= freshShare*float32(now-c.last)
}

// changed follows a change of the features of a piece without a use: the value that it had among the candidates is wrong. If it is
// among those that victims are chosen from, it is compared.
//
// It may have been a candidate before it was claimed or pinned, or got children.
func (s *pieces) changed(n int32) {
	q := &s.all[n]
	l := s.levelOf(q)
	if l.front == nil {
		return
	}
	l.front.remove(n)
	if q.cached() && (q.children == 0 || len(l.leaves) == 0) {
		l.front.add(s.candidate(n))
	}
}

// offer compares a leaf of a level whose value may be little.
func (l *level) offer(s *pieces, n int32) {
	if l.front != nil {
		l.front.add(s.candidate(n))
	}
}

// first is the piece of the lowest level that loses the next page, in a pool without quotas
// that has cached pages. See victimOf for due.
func (s *pieces) first(due int) int32 {
	o := &s.orders.whole
	return s.victimOf(o.level(o.lowest()), due).piece
}

// firstOfTenants is the page that is evicted next among those of some tenants, none if
// they have no cached pages. It looks at every tenant.
//
// A ranking, as for LRU, would have to be repaired whenever a value changes.
func (s *pieces) firstOfTenants(want func(*account) bool) int32 {
	lowest, best := messages.MaxPriority+1, candidate{}
	due := s.duePage()
	for t := range s.orders.accounts.list {
		a := &s.orders.accounts.list[t]
		if a.order.n == 0 || !want(a) {
			continue
		}
		priority := a.order.lowest()
		// A level that cannot win need not be looked at.
		if priority > lowest {
			continue
		}
		if c := s.victimOf(a.order.level(priority), due); priority < lowest || c.before(best) {
			lowest, best = priority, c
		}
	}
	if best.piece == noPiece {
		return none
	}
	return s.all[best.piece].head
}

// duePage is how many comparisons are due where pages are evicted one by one.
func (s *pieces) duePage() int {
	if s.checkpoints != nil {
		return sweptCheckpoints
	}
	return swept(1, s.orders.whole.blockTokens)
}

// next is the page that is evicted next in a pool with the policy forecast, none
// if none is cached. With quotas a taker that has reached its own is asked first.
func (s *pieces) next(taker *account) int32 {
	if s.orders.accounts == nil {
		if s.orders.whole.n == 0 {
			return none
		}
		return s.all[s.first(s.duePage())].head
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

// peek appends at most n pages that are likely to be evicted next: those of the pieces of least value, of which
// a choice finds most. The look changes nothing, not even which pieces are compared next.
func (s *pieces) peek(o *order, n int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + n
	o.each(func(_ messages.Priority, l *level) bool {
		victims = s.peekSet(l.leaves, end, victims)
		victims = s.peekSet(l.inner, end, victims)
		return len(victims) < end
	})
	return victims
}

// peekSet appends pages of the pieces of least value of a set, up to a length. Of a large set
// every step-th piece is compared.
func (s *pieces) peekSet(set []int32, end int, victims []protocol.Victim) []protocol.Victim {
	list := s.peeked[:0]
	step := max(1, len(set)/peekLimit)
	for k := 0; k < len(set); k += step {
		list = append(list, s.candidate(set[k]))
	}
	s.peeked = list
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.last, b.last), cmp.Compare(a.piece, b.piece))
	})
	for _, c := range list {
		for i := s.all[c.piece].head; i != none && len(victims) < end; i = s.pages[i].next {
			victims = append(victims, s.orders.victim(i))
		}
	}
	return victims
}
