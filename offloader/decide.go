package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// apply carries out one effect of the tree on host memory.
func (o *Offloader) apply(e *protocol.Effect) {
	h := &o.hosts[e.Pool]
	for _, b := range e.Blocks {
		switch e.Kind {
		case protocol.HostYield:
			h.makeClean(h.mustSole(b, "yield"), o.stamp)
		case protocol.HostForget:
			// The tree does not know which blocks have clean or ahead copies, so it
			// names blocks without any as well.
			if p := h.find(b); p != messages.NoPage {
				h.freePage(p)
			}
		case protocol.HostReprioritize:
			h.reprioritize(b, e.Priority)
		default:
			panic(fmt.Sprintf("offloader: pool %s: effect %d is not of host memory", h.name, e.Kind))
		}
	}
}

// reprioritize changes the priority of sole contents. A clean or ahead copy gets the
// priority of its device page when that page is evicted, so it needs none before.
func (h *hostPool) reprioritize(b protocol.BlockID, priority messages.Priority) {
	p := h.find(b)
	if p == messages.NoPage || h.pages[p].state != sole {
		return
	}
	h.dequeue(p)
	h.pages[p].priority = priority
	h.enqueue(p)
}

// pin adds and ends pins of host contents, and notes uses.
func (o *Offloader) pin(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	for _, b := range pm.Pins {
		p := h.mustSole(b, "pin")
		h.dequeue(p)
		h.setPins(p, h.pages[p].pins+1)
	}
	for i := range pm.Unpins {
		u := &pm.Unpins[i]
		p := h.mustSole(u.Block, "unpin")
		if h.pages[p].pins == 0 {
			panic(fmt.Sprintf("offloader: pool %s: unpin of block %d, which has no pin", h.name, u.Block))
		}
		h.dequeue(p)
		h.setPins(p, h.pages[p].pins-1)
		h.pages[p].age = uint64(u.Use)
		h.enqueue(p)
	}
	for i := range pm.Touches {
		u := &pm.Touches[i]
		p := h.mustSole(u.Block, "use")
		h.dequeue(p)
		h.pages[p].age = max(h.pages[p].age, uint64(u.Use))
		h.enqueue(p)
	}
}

// guardReads protects the host pages that the Move reads. It comes before the
// decisions, so that no victim displaces them.
func (o *Offloader) guardReads(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	for i := range pm.Onboards {
		on := &pm.Onboards[i]
		on.Failed = false
		p := h.mustSole(on.Block, "onboard")
		if h.pages[p].protected {
			panic(fmt.Sprintf("offloader: pool %s: block %d is onboarded twice", h.name, on.Block))
		}
		o.guard(pool, p)
	}
	for i := range pm.Copies {
		c := &pm.Copies[i]
		c.Failed = false
		if c.Zero {
			continue
		}
		p, tier, ok := c.From.Page()
		if !ok {
			panic(fmt.Sprintf("offloader: pool %s: copy to page %d without a source", h.name, c.To))
		}
		if tier == messages.Primary {
			continue
		}
		if q := h.mustSole(c.Block, "copy"); q != p {
			panic(fmt.Sprintf("offloader: pool %s: copy of block %d from host page %d, which is on page %d", h.name, c.Block, p, q))
		}
		o.guard(pool, p)
	}
}

// guard protects one page until the Move is finished.
func (o *Offloader) guard(pool messages.PoolID, p messages.PageID) {
	h := &o.hosts[pool]
	if h.pages[p].protected {
		return
	}
	h.dequeue(p)
	h.pages[p].protected = true
	o.guarded = append(o.guarded, guard{pool, p})
}

// unguard ends all protection. Pages that were freed meanwhile stay free.
func (o *Offloader) unguard() {
	for _, g := range o.guarded {
		h := &o.hosts[g.pool]
		h.pages[g.page].protected = false
		h.enqueue(g.page)
	}
	o.guarded = o.guarded[:0]
}

// decide decides for each victim whether its contents go on in host memory, and plans
// the copies.
func (o *Offloader) decide(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	pm.Outcomes = pm.Outcomes[:0]
	for i := range pm.Victims {
		v := &pm.Victims[i]
		out := h.place(v, o.cfg.MinPriority)
		out.Waits = out.Copied || out.Dirty && !o.passed(o.ledger.look(Slot{pool, messages.Secondary, out.Host}).written)
		if out.Copied {
			o.items = append(o.items, item{
				kind: offloading, lane: Offload, pool: pool, index: int32(i),
				src: Slot{pool, messages.Primary, v.Page}, dst: Slot{pool, messages.Secondary, out.Host},
			})
		}
		pm.Outcomes = append(pm.Outcomes, out)
	}
}

// place decides where the contents of a victim go on, if they do.
func (h *hostPool) place(v *protocol.Victim, floor messages.Priority) protocol.Outcome {
	dropped := protocol.Outcome{Host: messages.NoPage, Displaced: protocol.NoBlock}
	own := h.find(v.Block)
	if own != messages.NoPage && h.pages[own].state == sole {
		panic(fmt.Sprintf("offloader: pool %s: victim page %d caches block %d, whose only contents are host page %d",
			h.name, v.Page, v.Block, own))
	}
	if len(h.pages) == 0 || v.Priority < floor {
		if own != messages.NoPage {
			h.freePage(own)
		}
		return dropped
	}
	displaced := protocol.NoBlock
	if own == messages.NoPage || h.pages[own].state == ahead {
		var ok bool
		if displaced, ok = h.makeRoom(v); !ok {
			if own != messages.NoPage {
				h.freePage(own)
			}
			return dropped
		}
	}
	copied := own == messages.NoPage
	dirty := copied || h.pages[own].state == ahead
	if copied {
		own = h.takeFree()
		h.setBlock(own, v.Block)
	} else {
		h.dequeue(own)
	}
	h.setFacts(own, v)
	return protocol.Outcome{Host: own, Displaced: displaced, Dirty: dirty, Copied: copied}
}

// setFacts makes a page, which is in no order, the sole page of a victim's contents,
// with the priority, use and depth that they had on the device.
func (h *hostPool) setFacts(p messages.PageID, v *protocol.Victim) {
	h.setTenant(p, v.Tenant)
	h.setState(p, sole)
	pg := &h.pages[p]
	pg.age, pg.depth, pg.priority = uint64(v.Use), v.Depth, v.Priority
	h.enqueue(p)
}

// makeRoom makes a host page available for a victim, and returns the block that lost
// its only contents for it, if any. Ahead copies take no room: takeFree uses their
// pages whenever no page is free.
func (h *hostPool) makeRoom(v *protocol.Victim) (displaced protocol.BlockID, ok bool) {
	displaced = protocol.NoBlock
	if h.counts[sole]+h.counts[clean] < h.limit {
		return displaced, true
	}
	p := h.victim(v)
	if p == messages.NoPage {
		return displaced, false
	}
	if h.pages[p].state == sole {
		displaced = h.pages[p].block
	}
	h.freePage(p)
	return displaced, true
}

// finishOnboards makes the sources of the onboards clean copies, or free: the blocks
// are on the device now.
func (o *Offloader) finishOnboards(pool messages.PoolID, onboards []protocol.Onboard) {
	h := &o.hosts[pool]
	for i := range onboards {
		on := &onboards[i]
		if on.Failed {
			continue
		}
		p := h.mustSole(on.Block, "end of onboard")
		if on.Free {
			h.freePage(p)
		} else {
			h.makeClean(p, o.stamp)
		}
	}
}

// fail undoes the decision for a transfer that the device refused.
func (o *Offloader) fail(it *item) {
	h := &o.hosts[it.pool]
	switch it.kind {
	case copying:
		o.move.Pools[it.pool].Copies[it.index].Failed = true
	case onboarding:
		o.move.Pools[it.pool].Onboards[it.index].Failed = true
	case copyingAhead:
		h.freePage(it.dst.Page)
	case offloading:
		h.dropFailed(&o.move.Pools[it.pool], int(it.index))
	}
}

// dropFailed drops the contents of a victim whose copy was refused. If a later victim
// had displaced them, then that victim has displaced nothing.
func (h *hostPool) dropFailed(pm *protocol.PoolMove, i int) {
	block, out := pm.Victims[i].Block, &pm.Outcomes[i]
	if h.find(block) == out.Host {
		h.freePage(out.Host)
	}
	for j := i + 1; j < len(pm.Outcomes); j++ {
		if pm.Outcomes[j].Displaced == block {
			pm.Outcomes[j].Displaced = protocol.NoBlock
		}
	}
	*out = protocol.Outcome{Host: messages.NoPage, Displaced: out.Displaced, Failed: true}
}
