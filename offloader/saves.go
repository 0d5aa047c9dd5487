package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// Save is a device page whose bytes are copied to a save page, from where they go to
// a store.
type Save struct {
	Pool   messages.PoolID
	Block  protocol.BlockID
	From   messages.PageID // on the device
	To     messages.PageID // a save page that is not in use: behind all other host pages
	Failed bool            // answered: the device refused the copy
}

// PlanSaves plans the copies of device pages to save pages. Next, Submitted and Finish
// follow as for a Move; list belongs to the offloader until then.
//
// The copies are ordered like offloads: they wait for the last write of the device page,
// and whoever writes to the page later waits for them. No page changes its state.
func (o *Offloader) PlanSaves(list []Save) {
	o.expect(idle, "PlanSaves")
	o.start(nil)
	o.saves = list
	for i := range list {
		s := &list[i]
		s.Failed = false
		if first := len(o.hosts[s.Pool].pages); int(s.To) < first {
			panic(fmt.Sprintf("offloader: pool %s: save to host page %d, save pages begin at %d",
				o.hosts[s.Pool].name, s.To, first))
		}
		o.add(item{
			kind: saving, lane: Offload, pool: s.Pool, index: int32(i),
			src: Slot{s.Pool, messages.Primary, s.From}, dst: Slot{s.Pool, messages.Secondary, s.To},
		})
	}
}

// saveDisplaced notes contents that victim i has displaced. If they are those of an
// earlier victim of the Move, whose copy has not been submitted, they are saved from the
// device page; else the caller reads the host page before it submits anything.
func (o *Offloader) saveDisplaced(pm *protocol.PoolMove, i int, d Displaced) {
	for j := range pm.Victims[:i] {
		if pm.Victims[j].Block != d.Block || !pm.Outcomes[j].Copied {
			continue
		}
		to := o.cfg.TakeSavePage(d.Pool)
		if to == messages.NoPage {
			return
		}
		from := pm.Victims[j].Page
		o.add(item{
			kind: saving, lane: Offload, pool: d.Pool, index: int32(len(o.saves)),
			src: Slot{d.Pool, messages.Primary, from}, dst: Slot{d.Pool, messages.Secondary, to},
		})
		o.saves = append(o.saves, Save{Pool: d.Pool, Block: d.Block, From: from, To: to})
		return
	}
	o.evicted = append(o.evicted, d)
}

// Evicted is what the Move that Begin has started displaces and that is to be saved:
// the bytes are on their pages until the first copy is submitted. Saves are copies of
// the Move that save displaced contents. Both are valid until the next call of Begin.
func (o *Offloader) Evicted() []Displaced { return o.evicted }

// Saves are the saves of the Move, answered when it is finished.
func (o *Offloader) Saves() []Save { return o.saves }

// Written is the last write of a host page: the bytes can be read when it has passed.
func (o *Offloader) Written(pool messages.PoolID, page messages.PageID) messages.Ticket {
	return o.ledger.look(Slot{pool, messages.Secondary, page}).written
}

// Accesses appends what must have passed before a host page is written to by the CPU.
func (o *Offloader) Accesses(
	list []messages.Ticket, pool messages.PoolID, page messages.PageID,
) []messages.Ticket {
	r := o.ledger.look(Slot{pool, messages.Secondary, page})
	return o.afterReads(o.afterWrite(list, r, ""), r, "")
}

// Displaced is contents that were dropped to make room. The bytes are on the page until
// something is written there. Block is NoBlock if nothing was.
type Displaced struct {
	Pool     messages.PoolID
	Block    protocol.BlockID
	Page     messages.PageID
	Priority messages.Priority
}

// Room answers for how many contents from a store there is room.
func (o *Offloader) Room(m *protocol.HostRoom) {
	m.Pages, m.Displaceable = make([]int, len(o.hosts)), make([][]bool, len(o.hosts))
	for p := range o.hosts {
		h := &o.hosts[p]
		m.Pages[p] = h.loadable(m.Priority, m.Tenant)
		for _, b := range m.Blocks[p] {
			page := h.find(b)
			m.Displaceable[p] = append(m.Displaceable[p], page != messages.NoPage && !h.order.Divided() &&
				h.gives(page, m.Priority))
		}
	}
}

// Load takes host pages for contents from a store, by the rule of LoadPages, and returns
// what it has displaced.
func (o *Offloader) Load(m *protocol.LoadPages) (displaced []Displaced) {
	o.expect(idle, "Load")
	for p := range o.hosts {
		for _, b := range m.Keep[p] {
			if page := o.hosts[p].findSole(b); page != messages.NoPage {
				o.guard(messages.PoolID(p), page)
			}
		}
		if n := o.hosts[p].loadable(m.Priority, m.Tenant); len(m.Bytes[p]) > max(0, n) {
			panic(fmt.Sprintf("offloader: pool %s: load of %d pages, room for %d",
				o.hosts[p].name, len(m.Bytes[p]), n))
		}
	}
	m.Pages, m.Displaced = make([][]messages.PageID, len(o.hosts)),
		make([][]protocol.BlockID, len(o.hosts))
	v := protocol.Victim{Priority: m.Priority, Tenant: m.Tenant}
	for pool := range o.hosts {
		h := &o.hosts[pool]
		for range m.Bytes[pool] {
			d, _ := h.makeRoom(&v) // there is room, as loadable has counted
			if d.Block != protocol.NoBlock {
				d.Pool = messages.PoolID(pool)
				m.Displaced[pool] = append(m.Displaced[pool], d.Block)
				displaced = append(displaced, d)
			}
			p := h.takeFree()
			h.setTenant(p, loading, m.Tenant)
			m.Pages[pool] = append(m.Pages[pool], p)
		}
	}
	o.unguard()
	o.mustCheck()
	return displaced
}

// loadable is how many pages can be taken for contents of a priority. With quotas it is
// what is free within the tenant's quota: contents that nothing asks for yet displace
// none of a tenant's.
func (h *hostPool) loadable(priority messages.Priority, t protocol.Tenant) int {
	unused := h.limit - h.counts[sole] - h.counts[clean] - h.counts[loading]
	if h.order.Divided() {
		return min(unused, h.order.Room(t))
	}
	n := unused + h.counts[clean]
	for i := range h.pages {
		if h.gives(messages.PageID(i), priority) {
			n++
		}
	}
	return n
}

// gives tells whether a page has contents that those of a priority may displace.
func (h *hostPool) gives(p messages.PageID, priority messages.Priority) bool {
	return h.pages[p].state == sole && h.order.Waits(int32(p)) &&
		h.order.Page(int32(p)).Priority <= priority
}

// attachLoaded makes a page that was loaded the sole page of its block, the i-th of an
// effect.
func (h *hostPool) attachLoaded(b protocol.BlockID, e *protocol.Effect, i int) {
	p := e.Pages[i]
	if h.pages[p].state != loading || h.find(b) != messages.NoPage {
		panic(fmt.Sprintf(
			"offloader: pool %s: block %d on host page %d, which is %s; the block is on page %d",
			h.name, b, p, h.stateOf(p), h.find(b)))
	}
	h.hold(p, b, h.order.Page(int32(p)).Tenant, evict.Contents{
		Depth: e.Depth + int32(i), Priority: e.Priority, Useless: e.Useless,
	}, nil)
}
