package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// accounts divide the host memory of one pool between tenants by their quotas. A
// tenant that has as many sole and clean pages as its quota makes room among its
// own. For others, copies go before contents, and of each kind first those of
// tenants over their quotas: contents beyond a quota go whatever their priority,
// others if it is not above that of what comes.
type accounts struct {
	of   []protocol.Tenant // by page; of one that is neither sole nor clean it says nothing
	list []account         // by tenant
}

// account is what one tenant has of the host memory of a pool.
type account struct {
	quota  int
	pages  int           // sole and clean
	orders [states]order // of sole and clean
}

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

// counts tells whether pages of a state are on an account: copies ahead of
// demand are nobody's.
func (s pageState) counts() bool { return s == sole || s == clean }

// orderOf is where a page waits that is neither free nor pinned nor protected.
func (h *hostPool) orderOf(p messages.PageID) *order {
	s := h.pages[p].state
	if h.accounts == nil || !s.counts() {
		return &h.orders[s]
	}
	return &h.accounts.list[h.accounts.of[p]].orders[s]
}

// account moves a page that changes its state on or off its tenant's account.
func (c *accounts) account(p messages.PageID, from, to pageState) {
	a := &c.list[c.of[p]]
	switch was, is := from.counts(), to.counts(); {
	case is && !was:
		a.pages++
	case was && !is:
		a.pages--
	}
}

// lend notes whose contents a page is about to hold.
func (h *hostPool) lend(p messages.PageID, t protocol.Tenant) {
	if h.accounts != nil {
		h.accounts.of[p] = t
	}
}

// tenantOf is whose contents a page holds.
func (h *hostPool) tenantOf(p messages.PageID) protocol.Tenant {
	if h.accounts == nil {
		return protocol.OtherTenants
	}
	return h.accounts.of[p]
}

// victim is the page that goes for contents from the device, or NoPage.
func (h *hostPool) victim(v *protocol.Victim) messages.PageID {
	c := h.accounts
	if c == nil {
		if p := h.orders[clean].top(); p != messages.NoPage {
			return p
		}
		return h.affordable(h.orders[sole].top(), v)
	}
	if own := &c.list[v.Tenant]; own.pages >= own.quota {
		if p := own.orders[clean].top(); p != messages.NoPage {
			return p
		}
		return h.affordable(own.orders[sole].top(), v)
	}
	for _, s := range [2]pageState{clean, sole} {
		if p := h.least(s, true); p != messages.NoPage {
			return p
		}
		p := h.least(s, false)
		if s == sole {
			p = h.affordable(p, v)
		}
		if p != messages.NoPage {
			return p
		}
	}
	return messages.NoPage
}

// affordable is a sole page if its contents are not worth more than what comes.
func (h *hostPool) affordable(p messages.PageID, v *protocol.Victim) messages.PageID {
	if p == messages.NoPage || h.pages[p].priority > v.Priority {
		return messages.NoPage
	}
	return p
}

// least is the page of a state that goes first, of all tenants or of those over
// their quotas. It asks every tenant: there are at most as many as quotas, and
// a page that is offloaded is worth the asking.
func (h *hostPool) least(s pageState, over bool) messages.PageID {
	least := messages.NoPage
	for t := range h.accounts.list {
		a := &h.accounts.list[t]
		p := a.orders[s].top()
		if p == messages.NoPage || over && a.pages <= a.quota {
			continue
		}
		if least == messages.NoPage || sooner(h.pages, p, least) {
			least = p
		}
	}
	return least
}

// Account counts the host pages of one tenant as Counts does those of all.
// Without quotas OtherTenants has all.
func (o *Offloader) Account(pool messages.PoolID, t protocol.Tenant) protocol.Account {
	h := &o.hosts[pool]
	if h.accounts == nil {
		c := h.tally()
		return protocol.Account{Quota: c.Total, Used: c.Used, Cached: c.Cached}
	}
	a := &h.accounts.list[t]
	used := 0
	for p := range h.pages {
		if h.pages[p].pins > 0 && h.accounts.of[p] == t {
			used++
		}
	}
	return protocol.Account{Quota: a.quota, Used: used, Cached: a.pages - used}
}
