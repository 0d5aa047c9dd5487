package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// accounts divide the host memory of one pool between tenants by their quotas. A
// tenant that has as many sole and clean pages as its quota displaces its own. For
// other tenants clean copies are displaced before sole pages, and of each kind first
// those of tenants over their quotas. Sole pages of a tenant over its quota are
// displaced whatever their priority, others only if their priority is not above that
// of the victim.
type accounts struct {
	// of[p] decides which order page p is in, so it changes only while the page is in none.
	of   []protocol.Tenant // by page; meaningless unless the page is sole or clean
	list []account         // by tenant
}

// account is the part of a pool's host memory that one tenant uses.
type account struct {
	quota int
	// The sum over all tenants is counts[sole] + counts[clean] of the pool. It may exceed
	// the quota as long as other tenants leave pages unused.
	pages  int           // sole and clean
	orders [states]order // of sole and clean
}

// newAccounts makes an account for each quota, or none if there are no quotas.
//
// Quotas are shares of limit and not of all pages: the spare pages belong to no tenant.
func newAccounts(quotas []windows.Quota, pages, limit int) *accounts {
	if len(quotas) == 0 {
		return nil
	}
	c := &accounts{of: make([]protocol.Tenant, pages), list: make([]account, len(quotas))}
	for t := range c.list {
		c.list[t].quota = quotas[t].Pages(limit)
	}
	return c
}

// counts tells whether pages of a state are on an account. Ahead copies are on none,
// because decisions count their pages as free.
func (s pageState) counts() bool { return s == sole || s == clean || s == loading }

// orderOf is the order that a page is in while it may be displaced.
//
// Ahead copies of all tenants share one order: which of them is replaced changes no decision
// about contents, so no tenant needs protection there.
func (h *hostPool) orderOf(p messages.PageID) *order {
	s := h.pages[p].state
	if h.accounts == nil || !s.counts() {
		return &h.orders[s]
	}
	return &h.accounts.list[h.accounts.of[p]].orders[s]
}

// account updates the account of a page's tenant for a change of the page's state.
//
// Free and ahead pages may change their tenant without a trace here, since neither counts.
func (c *accounts) account(p messages.PageID, from, to pageState) {
	a := &c.list[c.of[p]]
	switch was, is := from.counts(), to.counts(); {
	case is && !was:
		a.pages++
	case was && !is:
		a.pages--
	}
}

// setTenant makes a page, which is in no order, hold contents of a tenant.
//
// A clean page is on the account of the tenant that offloaded its block. Another tenant may
// have onboarded the block since and be the one that loses it now. The page then moves to
// that tenant's account, beyond its quota if it must: the contents have their room already.
func (h *hostPool) setTenant(p messages.PageID, t protocol.Tenant) {
	c := h.accounts
	if c == nil {
		return
	}
	if was := c.of[p]; h.pages[p].state.counts() {
		c.list[was].pages--
		c.list[t].pages++
	}
	c.of[p] = t
}

// tenantOf is the tenant of a page's contents.
func (h *hostPool) tenantOf(p messages.PageID) protocol.Tenant {
	if h.accounts == nil {
		return protocol.OtherTenants
	}
	return h.accounts.of[p]
}

// victim is the host page that is displaced for the contents of a device page, or
// NoPage if nothing may be displaced.
func (h *hostPool) victim(v *protocol.Victim) messages.PageID {
	c := h.accounts
	// A clean copy goes before any sole page: its bytes are on the device too, so nothing
	// is lost.
	if c == nil {
		if p := h.orders[clean].first(); p != messages.NoPage {
			return p
		}
		return h.displaceable(h.orders[sole].first(), v)
	}
	// A tenant at its quota displaces its own or nothing. If it could take from the others
	// instead, its quota would bound nothing.
	if own := &c.list[v.Tenant]; own.pages >= own.quota {
		if p := own.orders[clean].first(); p != messages.NoPage {
			return p
		}
		return h.displaceable(own.orders[sole].first(), v)
	}
	// Clean copies of all tenants come before any sole page, even one of a tenant over its
	// quota, since to lose a copy costs no contents.
	for _, s := range [2]pageState{clean, sole} {
		if p := h.firstOf(s, true); p != messages.NoPage {
			return p
		}
		// Tenants over their quotas have no claim to what they hold beyond, so the priority
		// was not compared above. Here it protects what is within a quota.
		p := h.firstOf(s, false)
		if s == sole {
			p = h.displaceable(p, v)
		}
		if p != messages.NoPage {
			return p
		}
	}
	return messages.NoPage
}

// displaceable is page p if its priority is not above that of the victim from the
// device, otherwise NoPage.
//
// At equal priority the contents from the device win, since they were evicted
// later and have usually been used later.
func (h *hostPool) displaceable(p messages.PageID, v *protocol.Victim) messages.PageID {
	if p == messages.NoPage || h.pages[p].priority > v.Priority {
		return messages.NoPage
	}
	return p
}

// firstOf is the page of a state that is displaced first, of all tenants or of the
// tenants over their quotas. It looks at every tenant: there are as few as there are
// quotas, and the copy of a page costs much more.
func (h *hostPool) firstOf(s pageState, over bool) messages.PageID {
	first := messages.NoPage
	for t := range h.accounts.list {
		a := &h.accounts.list[t]
		p := a.orders[s].first()
		if p == messages.NoPage || over && a.pages <= a.quota {
			continue
		}
		if first == messages.NoPage || h.displacedBefore(s, p, first) {
			first = p
		}
	}
	return first
}

// displacedBefore tells whether page a of a state is displaced before page b, both the first ones of their tenants.
func (h *hostPool) displacedBefore(s pageState, a, b messages.PageID) bool {
	if c := h.pieces; c != nil && s == sole && h.pages[a].priority == h.pages[b].priority {
		return c.candidateBefore(c.candidate(h.pages[a].pieceOf()), c.candidate(h.pages[b].pieceOf()))
	}
	return displacedBefore(h.pages, a, b)
}

// Account counts the host pages of one tenant as Counts does for all. Without quotas
// all pages belong to OtherTenants.
func (o *Offloader) Account(pool messages.PoolID, t protocol.Tenant) protocol.Account {
	h := &o.hosts[pool]
	if h.accounts == nil {
		c := h.count()
		return protocol.Account{Quota: c.Total, Used: c.Used, Cached: c.Cached}
	}
	a := &h.accounts.list[t]
	// This is for reports only, so pinned pages are counted here, in O(host pages), and
	// not kept by tenant.
	used := 0
	for p := range h.pages {
		if h.pages[p].pins > 0 && h.accounts.of[p] == t {
			used++
		}
	}
	return protocol.Account{Quota: a.quota, Used: used, Cached: a.pages - used}
}
