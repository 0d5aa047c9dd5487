package coordinator

import (
	"maps"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

// keepReserve lets what a pin holds in host memory stay there where a chunked
// prefill computes the same block, and no page is to spare: the pin would hold
// the prefill's page then, beside the reserve that covers it, and a later chunk
// could find none. The prefill keeps its page as a duplicate.
func (c *Coordinator) keepReserve(it *step, to int) {
	s := it.sequence
	if it.store < 0 || s.chunk == 0 || c.pins.empty() {
		return
	}
	blocks := to/c.TokensPerBlock - s.computed/c.TokensPerBlock
	var stay [][]protocol.BlockID
	for p := range c.Pools {
		if !c.sheltered(s, p) || len(c.pins.counts[p]) == 0 {
			continue
		}
		if spared := &c.stepping.taken[p]; c.available(p)-*spared >= blocks {
			*spared += blocks
			continue
		}
		if stay == nil {
			stay = make([][]protocol.BlockID, len(c.Pools))
		}
		stay[p] = slices.Collect(maps.Keys(c.pins.counts[p]))
	}
	c.apply.Stores[it.store].KeepOnHost = stay
}
