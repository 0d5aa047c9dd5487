package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// PlanAhead plans to copy device pages near eviction to free or spare host pages,
// while nobody waits for it, and tells how many. The candidates come in the order in
// which they would be evicted; those below the least priority or with a copy
// are passed over. Next, Submitted and Finish follow as for a Move. No decision
// and no count tells that the copies are there; only the copying is spared if
// the page is evicted.
func (o *Offloader) PlanAhead(pool messages.PoolID, stamp uint64, candidates []messages.Victim) int {
	o.enter(idle, "PlanAhead")
	if !o.cfg.Ahead {
		panic(fmt.Sprintf("offloader: pool %s: PlanAhead, which the configuration forbids", o.cfg.Pools[pool].Name))
	}
	o.open(nil, stamp)
	h := &o.hosts[pool]
	h.refresh(candidates, stamp)
	for i := range candidates {
		v := &candidates[i]
		if h.size == 0 && !h.stale(stamp) {
			break
		}
		if v.Priority < o.cfg.MinPriority || h.find(v.Block) != messages.NoPage {
			continue
		}
		p := h.takeFree()
		h.hold(p, v.Block)
		h.become(p, ahead)
		h.pages[p].age, h.pages[p].depth = stamp, v.Depth
		h.settle(p)
		it := item{
			kind: copyingAhead, lane: Offload, pool: pool, index: int32(i),
			src: Slot{pool, messages.Primary, v.Page}, dst: Slot{pool, messages.Secondary, p},
		}
		o.ledger.mustHold(it.src)
		o.items = append(o.items, it)
	}
	o.checked()
	return len(o.items)
}

// refresh notes which copies are still near eviction.
func (h *hostPool) refresh(candidates []messages.Victim, stamp uint64) {
	for i := range candidates {
		if p := h.find(candidates[i].Block); p != messages.NoPage && h.pages[p].state == ahead {
			h.lift(p)
			h.pages[p].age = stamp
			h.settle(p)
		}
	}
}

// stale tells whether a copy is there of which the device page is no longer near
// eviction: its page serves another better.
func (h *hostPool) stale(stamp uint64) bool {
	p := h.orders[ahead].top()
	return p != messages.NoPage && h.pages[p].age < stamp
}
