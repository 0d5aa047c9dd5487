package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// foresee appends the pages that go next, at most op.N, in their order. It
// changes no order: what it passes in a heap it lines up in the list, where the
// next look finds it at once, so that a page is taken out of a heap once,
// whoever does it. Cost: O(N), a heap's amortised O(log) for each of these, and
// O(log N) for each page of a term.
//
// With quotas nobody knows who asks next. First come the pages that tenants have
// beyond theirs, then a part of those that each other tenant would lose first.
func (p *Pool) foresee(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	from := len(victims)
	if p.accounts == nil {
		victims = p.foreseeOrder(&p.order, op.N, victims)
	} else {
		victims = p.foreseeDivided(op.N, victims)
	}
	op.Count = len(victims) - from
	return p.foreseeHeld(op.N-op.Count, victims)
}

func (p *Pool) foreseeDivided(n int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + n
	for t := range p.accounts.list {
		if a := &p.accounts.list[t]; a.over {
			victims = p.foreseeOrder(&a.order, min(end-len(victims), a.pages-a.quota), victims)
		}
	}
	part := (end-len(victims))/len(p.accounts.list) + 1
	for t := range p.accounts.list {
		if a := &p.accounts.list[t]; !a.over {
			victims = p.foreseeOrder(&a.order, min(end-len(victims), part), victims)
		}
	}
	return victims
}

// foreseeOrder appends the first pages of an order, level by level.
func (p *Pool) foreseeOrder(o *order, left int, victims []protocol.Victim) []protocol.Victim {
	end := len(victims) + left
	o.each(func(_ messages.Priority, l *level) bool {
		p.ahead.begin(o, l)
		for len(victims) < end {
			i := p.ahead.next()
			if i == none {
				break
			}
			victims = append(victims, p.victim(i))
		}
		return len(victims) < end
	})
	return victims
}

// handReach is how many pages the hand passes for each that is wanted.
const handReach = 8

// foreseeHeld appends at most n pages that somebody holds and that cache a
// block: they are evicted some time after they are let go. Which of them that
// will be first nobody knows, so a hand goes round, from look to look.
func (p *Pool) foreseeHeld(n int, victims []protocol.Victim) []protocol.Victim {
	for reach := min(handReach*n, len(p.pages)); n > 0 && reach > 0; reach-- {
		if p.hand >= len(p.pages) {
			p.hand = 0
		}
		if g := &p.pages[p.hand]; g.place == used && g.stored() {
			victims = append(victims, p.victim(int32(p.hand)))
			n--
		}
		p.hand++
	}
	return victims
}
