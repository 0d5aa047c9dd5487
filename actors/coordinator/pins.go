package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pins remembers which blocks each pin holds in each pool. A pin is of blocks,
// not of pages: it stays when a block moves between the tiers, and what is
// forgotten is no longer pinned.
type pins struct {
	last   messages.PinID
	blocks map[messages.PinID][][]protocol.BlockID // by pool
	counts []map[protocol.BlockID]int              // by pool
}

func (p *pins) init(pools int) {
	p.blocks = map[messages.PinID][][]protocol.BlockID{}
	p.counts = make([]map[protocol.BlockID]int, pools)
	for i := range p.counts {
		p.counts[i] = map[protocol.BlockID]int{}
	}
}

func (p *pins) empty() bool { return len(p.blocks) == 0 }

func (p *pins) count(pool int, block protocol.BlockID) int { return p.counts[pool][block] }

// open makes a pin of the blocks, by pool.
func (p *pins) open(blocks [][]protocol.BlockID) messages.PinID {
	p.last++
	p.blocks[p.last] = blocks
	for pool, list := range blocks {
		for _, block := range list {
			p.counts[pool][block]++
		}
	}
	return p.last
}

// end removes a pin.
func (p *pins) end(pin messages.PinID) {
	for pool, list := range p.blocks[pin] {
		for _, block := range list {
			if p.counts[pool][block]--; p.counts[pool][block] == 0 {
				delete(p.counts[pool], block)
			}
		}
	}
	delete(p.blocks, pin)
}

// forget takes blocks out of all pins.
func (p *pins) forget(pool int, gone []protocol.BlockID) {
	for _, block := range gone {
		if p.counts[pool][block] == 0 {
			continue
		}
		delete(p.counts[pool], block)
		for pin, pools := range p.blocks {
			p.blocks[pin][pool] = without(pools[pool], block)
		}
	}
}

func without(list []protocol.BlockID, block protocol.BlockID) []protocol.BlockID {
	kept := list[:0]
	for _, b := range list {
		if b != block {
			kept = append(kept, b)
		}
	}
	return kept
}
