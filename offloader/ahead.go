package offloader

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// PlanAhead plans to copy device pages near eviction to free or spare host pages,
// while nobody waits for it, and tells how many. The candidates come in the order in
// which they would be evicted; those below the least priority or with a copy
// are passed over. Those that are held as yet take free pages only, so that looks
// that see others of them do not copy for ever, and not while they are written,
// so that no copy waits for a kernel. Next, Submitted and Finish follow as for a Move. No decision
// and no count tells that the copies are there; only the copying is spared if
// the page is evicted.
func (o *Offloader) PlanAhead(pool messages.PoolID, stamp uint64, seen *protocol.EvictionCandidates) int {
	o.enter(idle, "PlanAhead")
	if !o.cfg.Ahead {
		panic(fmt.Sprintf("offloader: pool %s: PlanAhead, which the configuration forbids", o.cfg.Pools[pool].Name))
	}
	o.open(nil, stamp)
	h := &o.hosts[pool]
	h.see(seen.Victims, stamp)
	o.spots = o.spots[:0]
	for i := range seen.Victims {
		v := &seen.Victims[i]
		if h.size == 0 && (i >= seen.Evictable || !h.stale(stamp)) {
			break
		}
		if v.Priority < o.cfg.MinPriority || h.find(v.Block) != messages.NoPage {
			continue
		}
		if i >= seen.Evictable && !o.passed(o.ledger.look(Slot{pool, messages.Primary, v.Page}).written) {
			continue // being written
		}
		it := item{kind: copyingAhead, lane: Offload, pool: pool, index: int32(i), src: Slot{pool, messages.Primary, v.Page}}
		o.ledger.mustHold(it.src)
		o.items = append(o.items, it)
		o.spots = append(o.spots, h.takeFree())
	}
	o.place(seen.Victims, stamp)
	o.checked()
	return len(o.items)
}

// place gives the copies their host pages: both in the order of their numbers,
// so that pages that are neighbours on the device are as often as can be
// neighbours in host memory, then and when they come back.
func (o *Offloader) place(victims []protocol.Victim, stamp uint64) {
	slices.SortFunc(o.items, func(a, b item) int { return cmp.Compare(a.src.Page, b.src.Page) })
	slices.Sort(o.spots)
	for i := range o.items {
		it, p := &o.items[i], o.spots[i]
		h, v := &o.hosts[it.pool], &victims[it.index]
		it.dst = Slot{it.pool, messages.Secondary, p}
		h.hold(p, v.Block)
		h.become(p, ahead)
		pg := &h.pages[p]
		pg.age, pg.depth, pg.born = stamp, v.Depth, uint32(stamp)
		h.settle(p)
	}
}

// see notes which copies are still near eviction. Their places in the order
// follow when somebody asks for the first of them: a look sees hundreds, and
// seldom needs one to go.
func (h *hostPool) see(candidates []protocol.Victim, stamp uint64) {
	for i := range candidates {
		if p := h.find(candidates[i].Block); p != messages.NoPage && h.pages[p].state == ahead {
			h.pages[p].born = uint32(stamp)
		}
	}
}

// seen is the stamp of the last look that saw an ahead page: not before its age,
// and less than 2³² requests after.
func (pg *hostPage) seen() uint64 { return pg.age + uint64(pg.born-uint32(pg.age)) }

// stalest gives the copy that was near eviction the longest time ago, or NoPage.
func (h *hostPool) stalest() messages.PageID {
	for {
		p := h.orders[ahead].top()
		if p == messages.NoPage || h.pages[p].seen() == h.pages[p].age {
			return p
		}
		h.lift(p)
		h.pages[p].age = h.pages[p].seen()
		h.settle(p)
	}
}

// stale tells whether a copy is there of which the device page is no longer near
// eviction: its page serves another better.
func (h *hostPool) stale(stamp uint64) bool {
	p := h.stalest()
	return p != messages.NoPage && h.pages[p].age < stamp
}
