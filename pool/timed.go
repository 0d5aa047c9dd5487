package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// orderOf is the order that a page belongs to while it is cached.
func (p *Pool) orderOf(i int32) *order {
	if p.accounts == nil {
		return &p.order
	}
	return &p.accounts.list[p.accounts.of[i]].order
}

// advance lets priorities end whose moment has come: O(log) for each term, of
// whatever number of pages.
func (p *Pool) advance(now time.Duration) {
	p.now = max(p.now, now)
	if p.now < p.nextEnd {
		return
	}
	if p.accounts == nil {
		p.order.expire(p.now)
		p.nextEnd = p.order.end()
		return
	}
	p.nextEnd = protocol.NoExpiry
	for t := range p.accounts.list {
		o := &p.accounts.list[t].order
		if o.end() <= p.now {
			p.accounts.unrank(protocol.Tenant(t)) // its first page may be the same and be worth something else
			o.expire(p.now)
			p.accounts.settle(protocol.Tenant(t))
		}
		p.nextEnd = min(p.nextEnd, o.end())
	}
}

// orders visits every order of the pool.
func (p *Pool) orders(visit func(*order)) {
	if p.accounts == nil {
		visit(&p.order)
		return
	}
	for t := range p.accounts.list {
		visit(&p.accounts.list[t].order)
	}
}

// endow gives a page, which is in no list, a priority until a moment, 0 for ever.
func (p *Pool) endow(i int32, priority messages.Priority, until time.Duration) {
	switch {
	case until == 0:
	case until <= p.now:
		priority = messages.DefaultPriority
	default:
		if p.order.terms.of == nil {
			p.allot(make([]int32, len(p.pages)))
		}
		p.orderOf(i).enter(i, termKey{until, priority})
		p.nextEnd = min(p.nextEnd, until)
	}
	p.pages[i].priority = priority
}

// allot makes the terms of the pages known to every order.
func (p *Pool) allot(of []int32) {
	p.order.terms.of = of
	p.orders(func(o *order) { o.terms.of = of })
}

// disown takes a page, which is in no list, its term.
func (p *Pool) disown(i int32) {
	if p.order.terms.of != nil {
		p.orderOf(i).leave(i)
	}
}

// until is the moment at which the priority of a page ends; 0: never.
func (p *Pool) until(i int32) time.Duration {
	if t := p.orderOf(i).timed(i); t != nil && t.until != protocol.NoExpiry {
		return t.until
	}
	return 0
}
