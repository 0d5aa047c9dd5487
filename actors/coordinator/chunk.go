package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// keepReserve withholds the pages of a chunked prefill from the tree where they
// could take the place of contents in host memory that a pin holds: the pin
// would hold them then, beside the reserve that covers them, and a later chunk
// could find no page. Pools with pages to spare for that are left alone.
func (c *Coordinator) keepReserve(it *step, to int) {
	s := it.sequence
	if it.store < 0 || s.chunk == 0 || c.pins.empty() {
		return
	}
	from, end := s.computed/c.TokensPerBlock, to/c.TokensPerBlock
	for p := range c.Pools {
		if !c.sheltered(s, p) || len(c.pins.counts[p]) == 0 || c.available(p) >= end-from {
			continue
		}
		if it.offered == nil {
			it.offered = make([][]messages.PageID, len(c.Pools))
			for q := range c.Pools {
				it.offered[q] = s.pools[q].tables[0]
			}
		}
		offered := slices.Clone(it.offered[p])
		for b := from; b < min(end, len(offered)); b++ {
			offered[b] = messages.NoPage
		}
		it.offered[p] = offered
	}
}
