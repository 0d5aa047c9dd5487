package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// PlanAhead plans to copy device pages near eviction to free host pages, while
// nobody waits for it, and tells how many. The candidates come in the order in
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
	for i := range candidates {
		v := &candidates[i]
		if h.size == 0 {
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
