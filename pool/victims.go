package pool

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// samples is how many pieces are compared for a victim. With all of them instead the
// hit rates on the traces differ by less than a random seed does.
const samples = 64

// candidate is a piece with its value at this moment.
type candidate struct {
	piece int32
	value float32
	use   protocol.Use
}

// before tells whether candidate c is evicted before d.
//
// The values are often equal, as those of new pieces, and then the rule is LRU.
func (c candidate) before(d candidate) bool {
	return c.value < d.value || c.value == d.value && c.use < d.use
}

// candidateOf gives a piece its value. While plain LRU decides, all values are equal, so
// that the use decides.
func (p *Pool) candidateOf(n int32) candidate {
	q := &p.pieces.all[n]
	c := candidate{piece: n, use: q.use}
	if !p.pieces.policy.PlainLRU() {
		c.value = p.pieces.policy.Value(q.forecast, q.last)
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

// victimOf is the piece of a level that loses the next page: the one of least value among
// some that are drawn at random, or all if they are few.
//
// A heap by value was rejected: values change with time, so that it would be out of order.
func (p *Pool) victimOf(l *level) candidate {
	set := l.candidates()
	best := candidate{}
	for k := range min(samples, len(set)) {
		n := set[k]
		if len(set) > samples {
			n = set[p.pieces.policy.Below(len(set))]
		}
		if c := p.candidateOf(n); best.piece == noPiece || c.before(best) {
			best = c
		}
	}
	return best
}

// takeFromPieces takes at most n pages from one piece of the lowest level and appends
// their contents to the victims.
//
// The loop ends with the piece: another draw follows for the rest. A piece that loses its
// last page is reset, and its head is none then.
func (p *Pool) takeFromPieces(op *protocol.PoolOp, n int, victims []protocol.Victim) []protocol.Victim {
	best := p.victimOf(p.order.level(p.order.lowest())).piece
	op.Pages = slices.Grow(op.Pages, n)
	for ; n > 0 && p.pieces.all[best].head != none; n-- {
		i := p.pieces.all[best].head
		victims = append(victims, p.victim(i))
		p.unlink(i)
		p.removeTerm(i)
		p.removePiece(i)
		p.pages[i] = p.taken(op)
		op.Pages = append(op.Pages, messages.PageID(i))
	}
	return victims
}

// firstOfTenants is the page that is evicted next among those of some tenants, none if
// they have no cached pages. It looks at every tenant.
//
// A ranking, as for LRU, would have to be repaired whenever a value changes.
func (p *Pool) firstOfTenants(want func(*account) bool) int32 {
	lowest, best := messages.MaxPriority+1, candidate{}
	for t := range p.accounts.list {
		a := &p.accounts.list[t]
		if a.order.n == 0 || !want(a) {
			continue
		}
		priority := a.order.lowest()
		// A draw costs up to samples values, so levels that cannot win are not drawn from.
		if priority > lowest {
			continue
		}
		if c := p.victimOf(a.order.level(priority)); priority < lowest || c.before(best) {
			lowest, best = priority, c
		}
	}
	if best.piece == noPiece {
		return none
	}
	return p.pieces.all[best.piece].head
}

// nextOfPieces is the page that is evicted next in a pool with the policy forecast, none
// if none is cached. With quotas a taker that has reached its own is asked first.
func (p *Pool) nextOfPieces(taker *account) int32 {
	if p.accounts == nil {
		if p.order.n == 0 {
			return none
		}
		return p.pieces.all[p.victimOf(p.order.level(p.order.lowest())).piece].head
	}
	if taker != nil && taker.full() && taker.order.n > 0 {
		return p.firstOfTenants(func(a *account) bool { return a == taker })
	}
	if i := p.firstOfTenants(func(a *account) bool { return a.pages > a.quota }); i != none {
		return i
	}
	return p.firstOfTenants(func(*account) bool { return true })
}

// peekLimit is how many pieces of a level a look ahead compares.
// A look is frequent and only a forecast, so it must not cost O(pieces).
const peekLimit = 256

// peekPieces appends at most n pages that are likely to be evicted next. Victims are
// drawn at random, so this is a forecast of the draw: the pages of the pieces of least
// value. The look changes nothing, not even the random numbers to come.
func (p *Pool) peekPieces(o *order, n int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + n
	o.each(func(_ messages.Priority, l *level) bool {
		victims = p.peekSet(l.leaves, end, victims)
		victims = p.peekSet(l.inner, end, victims)
		return len(victims) < end
	})
	return victims
}

// peekSet appends pages of the pieces of least value of a set, up to a length.
//
// Of a large set every step-th piece is compared: a fixed choice, because drawing here would
// change the draws of the evictions to come and so make results depend on the looks.
func (p *Pool) peekSet(set []int32, end int, victims []protocol.Victim) []protocol.Victim {
	list := p.pieces.peeked[:0]
	step := max(1, len(set)/peekLimit)
	for k := 0; k < len(set); k += step {
		list = append(list, p.candidateOf(set[k]))
	}
	p.pieces.peeked = list
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.use, b.use), cmp.Compare(a.piece, b.piece))
	})
	for _, c := range list {
		for i := p.pieces.all[c.piece].head; i != none && len(victims) < end; i = p.pages[i].next {
			victims = append(victims, p.victim(i))
		}
	}
	return victims
}
