package pool

import (
	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/windows"
)

// accounts divide a pool between tenants by their quotas. A tenant that has
// reached its quota replaces its own contents. For any other tenant the contents
// of tenants over their quotas are evicted first, and then those of all tenants by
// the eviction rule, as if there were no quotas. A tenant within its quota is thus
// protected from tenants over theirs, and memory that no other tenant needs may be
// used by any.
//
// Each tenant's cached pages have an eviction order of their own. It uses the same
// links of the pages, since a page belongs to one tenant at a time. Two rankings
// tell which tenant loses the next page.
//
// The sum of account.pages is the number of pages that are not free. A pool with the
// policy forecast does not use the rankings: which page of a tenant goes first changes with
// time, so no heap of first pages can be kept. Its accounts count pages all the same.
type accounts struct {
	of   []protocol.Tenant // by page; meaningless for free pages
	list []account         // by tenant
	// over ranks the tenants with cached pages that are over their quotas, within
	// all other tenants with cached pages.
	over, within ranking
}

// account is the part of the pool that one tenant uses.
type account struct {
	share windows.Quota
	// A tenant with pages > quota is over its quota; one with pages ≥ quota is full. A
	// full tenant replaces its own contents, but only a tenant that is over loses pages
	// to others before all tenants do, so each can use its quota to the last page.
	quota int   // pages: the share of the pool's total
	pages int   // used and cached; may exceed the quota while no other tenant needs them
	order order // of its cached pages
	// After rerank: first = order.first() and over = (pages > quota). An account is in
	// accounts.over or accounts.within, as over says, exactly if first is a page.
	first     int32 // the page of the order that is evicted first, or none
	rankIndex int32 // in its ranking, if it has a first page
	over      bool  // ranked among those over their quotas
}

// newAccounts makes one account for each quota; nil if there are none.
func newAccounts(quotas []windows.Quota) *accounts {
	if len(quotas) == 0 {
		return nil
	}
	c := &accounts{list: make([]account, len(quotas))}
	for t := range c.list {
		c.list[t].share = quotas[t]
	}
	// The rankings share the slice, so the list must never be reallocated. The number of
	// tenants is fixed when the pool is made.
	c.over.accounts, c.within.accounts = c.list, c.list
	return c
}

// reset empties the accounts of a pool with these pages. It keeps the tenants of
// the pages.
//
// The caller adds every page again (relink), and that ranks the accounts. The tenants
// are kept because they are the one fact that cannot be derived from the pages' records.
func (c *accounts) reset(pages []page) {
	of := c.of
	c.of = make([]protocol.Tenant, len(pages))
	copy(c.of, of)
	c.over.heap, c.within.heap = c.over.heap[:0], c.within.heap[:0]
	for t := range c.list {
		a := &c.list[t]
		a.quota, a.pages, a.first = a.share.Pages(len(pages)), 0, none
		a.order.reset(pages)
	}
}

// divide computes the quotas of a pool with so many pages.
//
// Resize calls it before it evicts, so that the pages that the smaller pool loses are
// those of tenants over their new quotas. The rankings change here and not at the next
// change to an account, since a tenant without changes may have become over.
func (c *accounts) divide(pages int) {
	for t := range c.list {
		c.list[t].quota = c.list[t].share.Pages(pages)
		c.rerank(protocol.Tenant(t))
	}
}

// full tells whether a tenant has reached its quota and so replaces its own
// contents.
func (a *account) full() bool { return a.pages >= a.quota }

// next is the cached page that is evicted when a tenant takes one, or none.
func (c *accounts) next(taker protocol.Tenant) int32 {
	// A full tenant without cached pages, all of them used, cannot replace its own. It
	// takes from the others instead of failing, and is over its quota from then on.
	if a := &c.list[taker]; a.full() && a.first != none {
		return a.first
	}
	return c.surplus()
}

// surplus is the first page of the tenants over their quotas, or else of all.
func (c *accounts) surplus() int32 {
	if i := c.over.firstPage(); i != none {
		return i
	}
	return c.within.firstPage()
}

// rerank updates the ranking of a tenant after a change to its account.
//
// It must follow every change to pages, quota or order of an account. Most changes
// leave the first page and the side of the quota as they were, and cost two
// comparisons; any other costs O(log tenants).
func (c *accounts) rerank(t protocol.Tenant) {
	a := &c.list[t]
	first, over := a.order.first(), a.pages > a.quota
	if a.first == first && a.over == over {
		return
	}
	// The tenant leaves its ranking while a.over still says which one that is.
	if first == none || a.over != over {
		c.unrank(t)
	}
	ranked := a.first != none
	// The heap compares tenants by their first pages, so the account is updated before
	// the heap is.
	a.first, a.over = first, over
	switch {
	case first == none:
	case ranked:
		r := c.ranking(a)
		heap.Fix(r.heap, r, int(a.rankIndex))
	default:
		r := c.ranking(a)
		heap.Push(&r.heap, r, t)
	}
}

// unrank takes a tenant out of its ranking until the next rerank.
//
// It must precede a change that the ranking compares but rerank cannot see, as the end
// of a term. Otherwise the heap is out of order while it is repaired.
func (c *accounts) unrank(t protocol.Tenant) {
	if a := &c.list[t]; a.first != none {
		r := c.ranking(a)
		heap.Remove(&r.heap, r, int(a.rankIndex))
		a.first = none
	}
}

// ranking is the ranking that an account belongs to.
func (c *accounts) ranking(a *account) *ranking {
	if a.over {
		return &c.over
	}
	return &c.within
}

// add adds a page to the account of a tenant.
//
// Used pages count as well as cached ones: a quota is for the memory that a tenant takes
// from others, whether the memory can be evicted or not.
func (c *accounts) add(i int32, t protocol.Tenant) {
	c.of[i] = t
	c.list[t].pages++
	c.rerank(t)
}

// remove removes a page from the account that it is on.
func (c *accounts) remove(i int32) {
	t := c.of[i]
	c.list[t].pages--
	c.rerank(t)
}

// ranking is a heap of tenants by the first page of each: at the top is the
// tenant whose first page is evicted before those of all others.
type ranking struct {
	accounts []account // by tenant
	heap     []protocol.Tenant
}

// firstPage is the page that is evicted first of all that the ranked tenants have, or
// none.
func (r *ranking) firstPage() int32 {
	if len(r.heap) == 0 {
		return none
	}
	return r.accounts[r.heap[0]].first
}

// Before tells whether the first page of tenant t is evicted before that of u.
//
// Orders are compared by priority and then by order.before, which reads only the records
// of the pages, so pages of different tenants can be compared by either order.
func (r *ranking) Before(t, u protocol.Tenant) bool {
	a, b := &r.accounts[t], &r.accounts[u]
	x, y := a.order.priority(a.first), b.order.priority(b.first)
	return x < y || x == y && a.order.before(a.first, b.first)
}

// Moved notes the index of a tenant.
func (r *ranking) Moved(t protocol.Tenant, i int) { r.accounts[t].rankIndex = int32(i) }

// knows tells whether a tenant has an account. Without quotas the tenant is not looked at:
// all pages belong to OtherTenants.
func (c *accounts) knows(t protocol.Tenant) bool { return c == nil || int(t) < len(c.list) }

// counts is the account of a tenant in pages.
func (c *accounts) counts(t protocol.Tenant) protocol.Account {
	a := &c.list[t]
	return protocol.Account{Quota: a.quota, Used: a.pages - a.order.n, Cached: a.order.n}
}

// shares are the quotas that the accounts were made with.
func (c *accounts) shares() []windows.Quota {
	if c == nil {
		return nil
	}
	quotas := make([]windows.Quota, len(c.list))
	for t := range quotas {
		quotas[t] = c.list[t].share
	}
	return quotas
}
