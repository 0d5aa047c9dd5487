package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// victim is the host page that is displaced for the contents of a device page, or NoPage if
// nothing may be displaced.
//
// Clean copies go before sole pages, because their bytes are on the device too. With quotas a
// tenant that has as many sole and clean pages as its quota displaces its own, or nothing. For
// other tenants clean copies and sole pages of tenants over their quotas go before those of
// all; what a tenant has beyond its quota goes whatever its priority.
func (h *hostPool) victim(v *protocol.Victim) messages.PageID {
	c := h.order
	if c.Full(v.Tenant) {
		return h.displaceable(c.FirstOf(v.Tenant), v)
	}
	over, first := c.FirstOver(), c.First()
	if over != evict.None && (c.Page(over).Copy || !c.Page(first).Copy) {
		return messages.PageID(over)
	}
	return h.displaceable(first, v)
}

// displaceable is a page, if it is a copy or its contents are worth no more than those of the
// victim from the device, otherwise NoPage.
//
// At equal priority the contents from the device win, since they were evicted later and have
// usually been used later.
func (h *hostPool) displaceable(p int32, v *protocol.Victim) messages.PageID {
	if p == evict.None {
		return messages.NoPage
	}
	if g := h.order.Page(p); !g.Copy && !g.NotAbove(v.Priority, v.Useless) {
		return messages.NoPage
	}
	return messages.PageID(p)
}
