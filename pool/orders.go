package pool

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// orders are the eviction orders of a pool: one for all pages, or with quotas one for each
// tenant. They know of every page that caches a block its priority and until when it holds.
type orders struct {
	pages    []page    // the pool's
	whole    order     // of the cached pages, unless there are quotas
	accounts *accounts // nil: no quotas
	now      time.Duration
	// At most the earliest end of all orders, so that advance is one comparison for
	// nearly every PoolWork.
	nextEnd time.Duration // when the next priority ends; NoExpiry: none does
}

// newOrders makes the orders of a pool without pages yet; reset gives it pages.
func newOrders(quotas []windows.Quota) orders {
	return orders{accounts: newAccounts(quotas), nextEnd: protocol.NoExpiry}
}

// reset empties the orders of a pool with these pages. Pages keep their terms and tenants.
//
// Accounts are emptied together with the order: both hold links into the pages' records.
func (r *orders) reset(pages []page) {
	r.pages = pages
	r.whole.reset(pages)
	if r.accounts != nil {
		r.accounts.reset(pages)
	}
}

// of is the eviction order that a page belongs to while it is cached.
//
// The tenant of a page decides its order, so accounts.of must not change while the page is
// cached or has a term.
func (r *orders) of(i int32) *order {
	if r.accounts == nil {
		return &r.whole
	}
	return &r.accounts.list[r.accounts.of[i]].order
}

// each visits every eviction order of the pool: one, or one for each tenant.
func (r *orders) each(visit func(*order)) {
	if r.accounts == nil {
		visit(&r.whole)
		return
	}
	for t := range r.accounts.list {
		visit(&r.accounts.list[t].order)
	}
}

// priority is the current priority of a page's contents.
func (r *orders) priority(i int32) messages.Priority { return r.of(i).priority(i) }

// victim describes a cached page that is about to be evicted.
//
// It must come before the page leaves its order and its term: the priority may be that of
// the term, and taking the page overwrites its record.
func (r *orders) victim(i int32) protocol.Victim {
	g := &r.pages[i]
	return protocol.Victim{
		Page: messages.PageID(i), Block: g.block, Depth: g.depth, Priority: r.priority(i), Use: g.use, Tenant: r.tenant(i),
	}
}

// push adds a cached page to the order of the pool or of its tenant.
func (r *orders) push(i int32) {
	c := r.accounts
	if c == nil {
		r.whole.push(i)
		return
	}
	// The page was on the account already, but the first cached page of the tenant may be
	// another one now.
	t := c.of[i]
	c.list[t].order.push(i)
	c.rerank(t)
}

// remove removes a cached page from its order; the page is used then.
func (r *orders) remove(i int32) {
	c := r.accounts
	if c == nil {
		r.whole.remove(i)
		return
	}
	t := c.of[i]
	c.list[t].order.remove(i)
	c.rerank(t)
}

// assignPriority gives a page, which is in no list, a priority until a moment; 0
// means for ever.
//
// The array of terms is made with the first priority that ends, so a pool without any pays
// one comparison for each page.
func (r *orders) assignPriority(i int32, priority messages.Priority, until time.Duration) {
	switch {
	case until == 0:
	// It has ended before it was given, which is no fault: the work may have waited.
	case until <= r.now:
		priority = messages.DefaultPriority
	default:
		if r.whole.terms.of == nil {
			r.setTermsOfPages(make([]int32, len(r.pages)))
		}
		r.of(i).addTerm(i, termKey{until, priority})
		r.nextEnd = min(r.nextEnd, until)
		priority = timed
	}
	r.pages[i].priority = priority
}

// setTermsOfPages makes the array of the pages' terms known to every order.
func (r *orders) setTermsOfPages(of []int32) {
	r.whole.terms.of = of
	r.each(func(o *order) { o.terms.of = of })
}

// removeTerm takes the term, if any, from a page that is in no list.
func (r *orders) removeTerm(i int32) {
	if r.whole.terms.of != nil {
		r.of(i).removeTerm(i)
	}
}

// until is the moment at which the priority of a page ends; 0: never.
func (r *orders) until(i int32) time.Duration {
	if t := r.of(i).termOf(i); t != nil && t.until != protocol.NoExpiry {
		return t.until
	}
	return 0
}

// endPriorities ends the priorities whose moment has come, by expire.
func (r *orders) endPriorities(expire func(*order)) {
	if r.accounts == nil {
		expire(&r.whole)
		r.nextEnd = r.whole.end()
		return
	}
	// The earliest end is computed again from all tenants, of which there are few.
	r.nextEnd = protocol.NoExpiry
	for t := range r.accounts.list {
		o := &r.accounts.list[t].order
		if o.end() <= r.now {
			// The first page may stay the same and yet have another priority, which
			// rerank would not see.
			r.accounts.unrank(protocol.Tenant(t))
			expire(o)
			r.accounts.rerank(protocol.Tenant(t))
		}
		r.nextEnd = min(r.nextEnd, o.end())
	}
}

// resize changes the number of pages that have terms; reset follows.
func (r *orders) resize(pages int) {
	if of := r.whole.terms.of; of != nil {
		r.setTermsOfPages(make([]int32, pages))
		copy(r.whole.terms.of, of)
	}
}

// joinAccount puts a page on the account of a tenant, leaveAccount takes it from the one that
// it is on. Without quotas there are no accounts.
func (r *orders) joinAccount(i int32, t protocol.Tenant) {
	if r.accounts != nil {
		r.accounts.add(i, t)
	}
}

// leaveAccount ends that a page counts for its tenant.
func (r *orders) leaveAccount(i int32) {
	if r.accounts != nil {
		r.accounts.remove(i)
	}
}

// tenant is the tenant that a page counts for, unless it is free.
func (r *orders) tenant(i int32) protocol.Tenant {
	if r.accounts == nil {
		return protocol.OtherTenants
	}
	return r.accounts.of[i]
}

// move gives page to the tenant and the term of page from, whose record has been moved there.
func (r *orders) move(from, to int) {
	if r.accounts != nil {
		r.accounts.of[to] = r.accounts.of[from]
	}
	if of := r.whole.terms.of; of != nil {
		of[to], of[from] = of[from], 0
	}
}
