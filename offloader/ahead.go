package offloader

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// PlanAhead plans copies of device pages near eviction to free or spare host pages
// and returns their number. Next, Submitted and Finish follow as for a Move. When such
// a page is evicted its bytes need not be copied any more; no decision and no count
// depends on the copies.
//
// The candidates come in eviction order. Candidates below the least priority, or with
// a copy, are passed over. Candidates that are still held take free pages only:
// otherwise each look would replace the copies of the look before. A held page is not
// copied while a kernel writes to it, so that no copy waits for a kernel.
func (o *Offloader) PlanAhead(
	pool messages.PoolID, seen *protocol.EvictionCandidates,
) int {
	o.expect(idle, "PlanAhead")
	o.start(nil)
	h := &o.hosts[pool]
	// First, so that no look replaces the copy of a page that is still a candidate.
	kept := h.keepCopies(seen.Victims)
	o.hostPages = o.hostPages[:0]
	for i := range seen.Victims {
		v := &seen.Victims[i]
		// Without free pages only copies of pages that are no longer near eviction are replaced,
		// and only for pages that are expected to be evicted next.
		if h.size == 0 && (i >= seen.Evictable || h.ahead.Len() <= kept) {
			break
		}
		// The contents would not go on in host memory, or a copy is there already.
		if v.Priority < o.cfg.MinPriority || h.find(v.Block) != messages.NoPage {
			continue
		}
		if i >= seen.Evictable && !o.ledger.done(o.ledger.look(Slot{pool, messages.Primary,
			v.Page}).written) {
			continue // a kernel is writing to it
		}
		o.add(item{kind: copyingAhead, lane: Offload, pool: pool, index: int32(i),
			src: Slot{pool, messages.Primary, v.Page}})
		// The host page is only reserved here. Which copy gets it is decided when all pages
		// are known, see assignHostPages.
		o.hostPages = append(o.hostPages, h.takeFree())
	}
	o.assignHostPages(seen.Victims)
	o.mustCheck()
	return len(o.items)
}

// assignHostPages gives the copies their host pages. Device and host pages are sorted
// and paired in this order, so that neighbours on the device are often neighbours in
// host memory: they are copied as one run, now and when they are onboarded.
//
// A run costs one call of the device for many pages. That the copies are no longer submitted
// in eviction order matters little, since all of them are submitted at once.
func (o *Offloader) assignHostPages(victims []protocol.Victim) {
	slices.SortFunc(o.items, func(a, b item) int { return cmp.Compare(a.src.Page, b.src.Page) })
	slices.Sort(o.hostPages)
	for i := range o.items {
		it, p := &o.items[i], o.hostPages[i]
		h, v := &o.hosts[it.pool], &victims[it.index]
		it.dst = Slot{it.pool, messages.Secondary, p}
		// The page is ahead before its bytes have arrived. A victim that finds it waits for the
		// last write in the ledger, as for any other page.
		h.setBlock(p, v.Block)
		h.setState(p, ahead)
		h.pages[p].at = h.ahead.PushBack(p)
	}
}

// keepCopies moves the ahead copies of pages that are still near eviction behind all others, and
// counts them.
func (h *hostPool) keepCopies(candidates []protocol.Victim) (kept int) {
	for i := range candidates {
		if p := h.find(candidates[i].Block); p != messages.NoPage && h.pages[p].state == ahead {
			h.ahead.MoveToBack(h.pages[p].at)
			kept++
		}
	}
	return kept
}
