package offloader

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// apply carries out one effect of the tree on host memory.
//
// Effects come before everything else in a Move: the tree has decided them before it named
// the victims, and the pages that they free make room for these.
func (o *Offloader) apply(e *protocol.Effect) {
	h := &o.hosts[e.Pool]
	for i, b := range e.Blocks {
		switch e.Kind {
		case protocol.HostYield:
			h.makeClean(h.mustSole(b, "yield"), o.move.Stamp)
		case protocol.HostForget:
			// The tree does not know which blocks have clean or ahead copies, so it
			// names blocks without any as well.
			if p := h.find(b); p != messages.NoPage {
				h.freePage(p)
			}
		// A clean or ahead copy gets the facts of its device page when that page is evicted, so it
		// needs none before.
		case protocol.HostReprioritize:
			if p := h.findSole(b); p != messages.NoPage {
				h.order.SetPriority(int32(p), e.Priority)
			}
		case protocol.HostAppraise:
			if p := h.findSole(b); p != messages.NoPage {
				h.order.SetUseless(int32(p), e.Useless)
			}
		case protocol.HostAttach:
			h.attachLoaded(b, e, i)
		default:
			panic(fmt.Sprintf("offloader: pool %s: effect %d is not of host memory", h.name, e.Kind))
		}
	}
}

// pin adds and ends pins of host contents, and notes uses.
func (o *Offloader) pin(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	for _, b := range pm.Pins {
		p := h.mustSole(b, "pin")
		h.dequeue(p)
		// Not queued again: a pinned page is in no order, so nothing can displace it.
		h.pages[p].pins++
	}
	for i := range pm.Unpins {
		u := &pm.Unpins[i]
		p := h.mustSole(u.Block, "unpin")
		if h.pages[p].pins == 0 {
			panic(fmt.Sprintf("offloader: pool %s: unpin of block %d, which has no pin", h.name, u.Block))
		}
		// The end of a pin is a use: contents that were protected until now were wanted.
		h.use(p, u.Use, 1)
	}
	for i := range pm.Touches {
		// A touch may be older than the use that the page has, and must not make it older.
		u := &pm.Touches[i]
		h.use(h.mustSole(u.Block, "use"), u.Use, 0)
	}
}

// use notes that a page is used now, and ends some of its pins.
func (h *hostPool) use(p messages.PageID, use protocol.Use, pins int32) {
	h.dequeue(p)
	h.pages[p].pins -= pins
	h.order.Touch(int32(p), use)
	h.order.UsedAlone(int32(p))
	h.enqueue(p)
}

// guardReads protects the host pages that the Move reads, and checks that they have the contents.
// It comes before the decisions, so that no victim displaces them.
func (o *Offloader) guardReads(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	for i := range pm.Onboards {
		on := &pm.Onboards[i]
		on.Failed = false
		o.guard(pool, h.mustSole(on.Block, "onboard"))
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
		// Pages of the device are protected by the pool, which counts their holders.
		if tier == messages.Primary {
			continue
		}
		if q := h.mustSole(c.Block, "copy"); q != p {
			panic(fmt.Sprintf("offloader: pool %s: copy of block %d from host page %d, which is on page %d",
				h.name, c.Block, p, q))
		}
		o.guard(pool, p)
	}
}

// guard pins a sole page until the Move is finished, so that nothing displaces it.
func (o *Offloader) guard(pool messages.PoolID, p messages.PageID) {
	h := &o.hosts[pool]
	h.dequeue(p)
	h.pages[p].pins++
	o.guarded = append(o.guarded, Slot{pool, messages.Secondary, p})
}

// unguard ends the pins of guard. No guarded page is freed before: nothing displaces it, and the
// undoing of failed transfers frees only pages that they were to write.
func (o *Offloader) unguard() {
	for _, g := range o.guarded {
		h := &o.hosts[g.Pool]
		h.pages[g.Page].pins--
		h.enqueue(g.Page)
	}
	o.guarded = o.guarded[:0]
}

// decide decides for each victim whether its contents go on in host memory, and plans
// the copies.
//
// Victims are placed in the order of their eviction, so a later one may displace an earlier
// one of the same Move. Both copies are then planned, and the ledger orders their writes.
func (o *Offloader) decide(pool messages.PoolID, pm *protocol.PoolMove) {
	h := &o.hosts[pool]
	pm.Outcomes = slices.Grow(pm.Outcomes[:0], len(pm.Victims))
	h.order.RankBy(pm.Ranking)
	defer h.order.RankBy(nil)
	pieces := pm.Pieces
	for i := range pm.Victims {
		v := &pm.Victims[i]
		for len(pieces) > 0 && pieces[0].End <= i {
			pieces = pieces[1:]
		}
		var known *protocol.EvictedPiece
		if len(pieces) > 0 {
			known = &pieces[0]
		}
		out, displaced := h.decideOutcome(v, known, o.cfg.MinPriority)
		if displaced.Block != protocol.NoBlock && o.cfg.TakeSavePage != nil &&
			displaced.Priority >= o.cfg.MinSavePriority {
			displaced.Pool = pool
			o.saveDisplaced(pm, i, displaced)
		}
		// The contents are in host memory for decisions, but a reader has to wait while a copy
		// is under way: this one, or the copy ahead that was made before.
		out.Waits = out.Copied ||
			out.Dirty && !o.ledger.done(o.ledger.look(Slot{pool, messages.Secondary, out.Host}).written)
		if out.Copied {
			o.add(item{
				kind: offloading, lane: Offload, pool: pool, index: int32(i),
				src: Slot{pool, messages.Primary, v.Page}, dst: Slot{pool, messages.Secondary, out.Host},
			})
		}
		pm.Outcomes = append(pm.Outcomes, out)
	}
}

// nothingDisplaced says that no contents were displaced.
var nothingDisplaced = Displaced{Block: protocol.NoBlock}

// dropped is the outcome of a victim whose contents do not go on.
var dropped = protocol.Outcome{Host: messages.NoPage, Displaced: protocol.NoBlock}

// decideOutcome decides where the contents of a victim go on, if they do.
// Known is what the device pool knew of the victim; nil: nothing.
func (h *hostPool) decideOutcome(
	v *protocol.Victim, known *protocol.EvictedPiece, floor messages.Priority,
) (protocol.Outcome, Displaced) {
	own := h.find(v.Block)
	if own != messages.NoPage && h.pages[own].state == sole {
		panic(fmt.Sprintf(
			"offloader: pool %s: victim page %d caches block %d, whose only contents are host page %d",
			h.name, v.Page, v.Block, own))
	}
	displaced, goesOn := nothingDisplaced, v.Priority >= floor
	// A clean copy has its room already. An ahead copy was counted as free until now, so it
	// needs room exactly as a new page does: decisions must be the same without it.
	if goesOn && (own == messages.NoPage || h.pages[own].state == ahead) {
		displaced, goesOn = h.makeRoom(v)
	}
	if !goesOn {
		// A copy would be found by the block's number later.
		if own != messages.NoPage {
			h.freePage(own)
		}
		return dropped, nothingDisplaced
	}
	// Dirty says that host memory changes as if a copy were made now. Copied says that one
	// is made. They differ for ahead copies only.
	copied := own == messages.NoPage
	dirty := copied || h.pages[own].state == ahead
	if copied {
		own = h.takeFree()
	} else {
		h.dequeue(own)
	}
	h.hold(own, v.Block, v.Tenant, evict.Contents{
		Use: v.Use, Depth: v.Depth, Priority: v.Priority, Useless: v.Useless,
	}, known)
	return protocol.Outcome{Host: own, Displaced: displaced.Block, Dirty: dirty, Copied: copied},
		displaced
}

// hold makes a page, which may not be displaced, the sole page of a block, and notes what is known
// of the contents. Known is what the device pool knew; nil: nothing.
func (h *hostPool) hold(
	p messages.PageID, b protocol.BlockID, t protocol.Tenant, c evict.Contents,
	known *protocol.EvictedPiece,
) {
	h.setBlock(p, b)
	h.setTenant(p, sole, t)
	c.Tie = int32(b)
	h.order.Store(int32(p), c)
	h.order.Note(int32(p), known)
	h.enqueue(p)
}

// makeRoom makes a host page available for a victim, and returns the block that lost
// its only contents for it, if any, without its pool. Ahead copies take no room: takeFree uses
// their pages whenever no page is free.
//
// Below the limit there is always a page for takeFree: sole + clean < limit means that some
// page is free or ahead. At the limit the freed page makes one.
func (h *hostPool) makeRoom(v *protocol.Victim) (displaced Displaced, ok bool) {
	displaced = nothingDisplaced
	// The limit is compared and not the number of free pages, which copies ahead change.
	if h.counts[sole]+h.counts[clean]+h.counts[loading] < h.limit {
		return displaced, true
	}
	p := h.victim(v)
	if p == messages.NoPage {
		return displaced, false
	}
	if h.pages[p].state == sole {
		displaced = Displaced{Block: h.pages[p].block, Page: p,
			Priority: h.order.Page(int32(p)).Priority}
	}
	h.freePage(p)
	return displaced, true
}

// finishOnboards makes the sources of the onboards clean copies, or free: the blocks
// are on the device now.
//
// It waits for the end of the Move, since an onboard that fails must leave the page sole, as
// the only contents of its block. The copy itself may still be under way.
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
			h.makeClean(p, o.move.Stamp)
		}
	}
}

// fail undoes the decision for a transfer that the device refused.
//
// Only refused items come here. Those that were queued and fail later on the device are a
// fault of the device, which this package cannot undo.
func (o *Offloader) fail(it *item) {
	h := &o.hosts[it.pool]
	switch it.kind {
	case copying:
		o.move.Pools[it.pool].Copies[it.index].Failed = true
	case onboarding:
		o.move.Pools[it.pool].Onboards[it.index].Failed = true
	case copyingAhead:
		h.freePage(it.dst.Page)
	case saving:
		o.saves[it.index].Failed = true
	case offloading:
		h.dropFailed(&o.move.Pools[it.pool], int(it.index))
	}
}

// dropFailed drops the contents of a victim whose copy was refused. If a later victim
// had displaced them, then that victim has displaced nothing.
func (h *hostPool) dropFailed(pm *protocol.PoolMove, i int) {
	block, out := pm.Victims[i].Block, &pm.Outcomes[i]
	// A later victim may have displaced the contents, and the page is that victim's now.
	if h.find(block) == out.Host {
		h.freePage(out.Host)
	}
	for j := i + 1; j < len(pm.Outcomes); j++ {
		if pm.Outcomes[j].Displaced == block {
			pm.Outcomes[j].Displaced = protocol.NoBlock
		}
	}
	// Displaced stays: the contents that this victim has displaced are gone in any case.
	*out = protocol.Outcome{Host: messages.NoPage, Displaced: out.Displaced, Failed: true}
}
