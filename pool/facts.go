package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Name is the name of the pool, as wfullh8.
func (p *Pool) Name() string { return p.name }

// Counts gives the number of pages in each state, in O(1): it goes with every answer.
func (p *Pool) Counts() protocol.PoolPages {
	total, cached, free := len(p.pages), p.order.Waiting(), len(p.free)
	return protocol.PoolPages{
		TierPages: inspect.TierPages{Total: total, Used: total - cached - free, Cached: cached,
			Free: free},
		Held: p.held,
	}
}

// Attached lists the blocks that pages cache, by page number, and which checkpoint follows which.
// It costs O(pages) and allocates: audits compare it with what the tree says.
func (p *Pool) Attached() []protocol.PageBlock {
	var list []protocol.PageBlock
	for i := range p.pages {
		if g := &p.pages[i]; g.stored() {
			list = append(list, protocol.PageBlock{
				Page: messages.PageID(i), Block: g.block, Front: p.order.Front(int32(i)),
				Useless: p.order.Page(int32(i)).Useless,
			})
		}
	}
	return list
}

// useOf is the latest use of a page's contents if they are the given block, else 0.
//
// It tells the block apart because the caller may have been told of the page before the page
// was evicted.
func (p *Pool) useOf(page messages.PageID, block protocol.BlockID) protocol.Use {
	if int(page) < len(p.pages) && p.pages[page].block == block {
		return p.order.Page(int32(page)).Use
	}
	return 0
}

// TenantOf is the tenant that a page counts for. Of a free page it means nothing, and it panics on
// a page that does not exist. Audits ask it.
func (p *Pool) TenantOf(page messages.PageID) protocol.Tenant {
	return p.order.Page(int32(page)).Tenant
}

// Account counts the used and cached pages of one tenant, which may exceed its quota. Without
// quotas all pages belong to OtherTenants, whatever tenant is asked for. It costs O(1).
func (p *Pool) Account(t protocol.Tenant) protocol.Account {
	if !p.order.Divided() {
		t = protocol.OtherTenants
	}
	return p.order.Account(t)
}

// Quotas are the shares that the pool was made with.
//
// They are shares and not numbers of pages, so that a pool that is rebuilt with another
// number of pages divides it in the same way.
func (p *Pool) Quotas() []windows.Quota { return p.order.Quotas() }
