package pool

import (
	"math"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// accounts divide a pool between tenants by their quotas. A tenant that has as
// many pages as its quota, or more, takes the next from its own contents; what
// others take goes first to the cost of those over their quotas, and then by the
// order of eviction, as if there were no quotas. So who stays within his quota
// is safe from who does not, and memory that nobody else needs is anyone's.
//
// Each tenant's cached pages have an order of their own, linked through the
// same fields, for a page is on one account at a time. Which tenant gives the
// next page is read off two rankings.
type accounts struct {
	of   []protocol.Tenant // by page; of a free page it says nothing
	list []account         // by tenant
	// over ranks the tenants with cached pages that are over their quotas,
	// within all others that have cached pages.
	over, within ranking
}

// account is what one tenant has of the pool.
type account struct {
	share windows.Quota
	quota int   // pages: the share of all
	pages int   // used and cached; more than the quota while nobody else needs them
	order order // of its cached pages
	first int32 // the next of these to go, none: it has none
	spot  int32 // in its ranking
	over  bool  // ranked among those over their quotas
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
	c.over.accounts, c.within.accounts = c.list, c.list
	return c
}

// reset empties the accounts of a pool with these pages; whose each one is stays.
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

// divide makes the quotas those of so many pages.
func (c *accounts) divide(pages int) {
	for t := range c.list {
		c.list[t].quota = c.list[t].share.Pages(pages)
		c.settle(protocol.Tenant(t))
	}
}

// full tells whether a tenant has no claim to pages of others.
func (a *account) full() bool { return a.pages >= a.quota }

// next is the cached page that goes next when the tenant takes one, none if
// there is none.
func (c *accounts) next(taker protocol.Tenant) int32 {
	if a := &c.list[taker]; a.full() && a.first != none {
		return a.first
	}
	return c.surplus()
}

// takeDivided is take where there are quotas.
func (p *Pool) takeDivided(op *protocol.PoolOp, victims []protocol.Victim) []protocol.Victim {
	c := p.accounts
	for range op.N {
		i := p.freeHead
		if i == none {
			i = c.next(op.Tenant)
			victims = append(victims, p.victim(i))
			p.unlink(i)
			p.disown(i)
			c.end(i)
		} else {
			p.freeHead = p.pages[i].next
			p.freeN--
		}
		p.pages[i] = p.taken(op)
		c.add(i, op.Tenant)
		op.Pages = append(op.Pages, messages.PageID(i))
	}
	return victims
}

// surplus is the cached page that goes next when no tenant takes it.
func (p *Pool) surplus() int32 {
	if p.accounts == nil {
		return p.order.first()
	}
	return p.accounts.surplus()
}

// surplus is that of the tenant over its quota whose first page goes first, or
// else of any tenant.
func (c *accounts) surplus() int32 {
	if len(c.over.heap) > 0 {
		return c.list[c.over.heap[0]].first
	}
	if len(c.within.heap) > 0 {
		return c.list[c.within.heap[0]].first
	}
	return none
}

// settle ranks a tenant anew after a change to its account.
func (c *accounts) settle(t protocol.Tenant) {
	a := &c.list[t]
	first, over := a.order.first(), a.pages > a.quota
	if a.first == first && a.over == over {
		return
	}
	if first == none || a.over != over {
		c.unrank(t)
	}
	ranked := a.first != none
	a.first, a.over = first, over
	switch {
	case first == none:
	case ranked:
		c.ranking(a).fix(a)
	default:
		c.ranking(a).push(t)
	}
}

// unrank takes a tenant out of its ranking, until settle.
func (c *accounts) unrank(t protocol.Tenant) {
	if a := &c.list[t]; a.first != none {
		c.ranking(a).remove(a)
		a.first = none
	}
}

func (c *accounts) ranking(a *account) *ranking {
	if a.over {
		return &c.over
	}
	return &c.within
}

// add counts a page for a tenant.
func (c *accounts) add(i int32, t protocol.Tenant) {
	c.of[i] = t
	c.list[t].pages++
	c.settle(t)
}

// end takes a page off the account that it is on.
func (c *accounts) end(i int32) {
	t := c.of[i]
	c.list[t].pages--
	c.settle(t)
}

// ranking is a heap of tenants; at its top is the one whose first page goes
// before those of all others.
type ranking struct {
	accounts []account // by tenant
	heap     []protocol.Tenant
}

func (r *ranking) push(t protocol.Tenant) {
	r.accounts[t].spot = int32(len(r.heap))
	r.heap = append(r.heap, t)
	r.up(len(r.heap) - 1)
}

func (r *ranking) remove(a *account) {
	i, last := int(a.spot), len(r.heap)-1
	r.swap(i, last)
	r.heap = r.heap[:last]
	if i < last {
		r.fix(&r.accounts[r.heap[i]])
	}
}

// fix moves a tenant whose first page is another one to its place.
func (r *ranking) fix(a *account) {
	r.up(int(a.spot))
	r.down(int(a.spot))
}

func (r *ranking) before(i, j int) bool {
	a, b := &r.accounts[r.heap[i]], &r.accounts[r.heap[j]]
	x, y := a.order.priority(a.first), b.order.priority(b.first)
	return x < y || x == y && a.order.before(a.first, b.first)
}

func (r *ranking) swap(i, j int) {
	r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
	r.accounts[r.heap[i]].spot, r.accounts[r.heap[j]].spot = int32(i), int32(j)
}

func (r *ranking) up(i int) {
	for ; i > 0 && r.before(i, (i-1)/2); i = (i - 1) / 2 {
		r.swap(i, (i-1)/2)
	}
}

func (r *ranking) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.heap); child++ {
			if r.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.swap(i, least)
		i = least
	}
}

// TenantOf is whose account a page that is not free is on.
func (p *Pool) TenantOf(page messages.PageID) protocol.Tenant {
	if p.accounts == nil {
		return protocol.OtherTenants
	}
	return p.accounts.of[page]
}

// Account counts the pages of one tenant: its quota, and of these or beyond
// them those in use and those cached. Without quotas OtherTenants has all.
func (p *Pool) Account(t protocol.Tenant) protocol.Account {
	if p.accounts == nil {
		c := p.Counts()
		return protocol.Account{Quota: c.Total, Used: c.Used, Cached: c.Cached}
	}
	a := &p.accounts.list[t]
	return protocol.Account{Quota: a.quota, Used: a.pages - a.order.n, Cached: a.order.n}
}

// Quotas are the shares that the pool was made with.
func (p *Pool) Quotas() []windows.Quota {
	if p.accounts == nil {
		return nil
	}
	quotas := make([]windows.Quota, len(p.accounts.list))
	for t := range quotas {
		quotas[t] = p.accounts.list[t].share
	}
	return quotas
}

func (p *Pool) mustDivide(quotas int) {
	if quotas > math.MaxUint16+1 {
		p.fail("%d quotas, tenants have 16 bits", quotas)
	}
}
