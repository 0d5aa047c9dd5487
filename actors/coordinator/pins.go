package coordinator

import "github.com/kvactor/kvactor/messages"

// pins remembers which blocks each pin holds in each pool. A pin is of blocks,
// not of pages: it stays when a block moves between the tiers, and what is
// forgotten is no longer pinned.
type pins struct {
	last   messages.PinID
	blocks map[messages.PinID][][]messages.BlockID // by pool
	counts []map[messages.BlockID]int              // by pool
}

func (p *pins) init(pools int) {
	p.blocks = map[messages.PinID][][]messages.BlockID{}
	p.counts = make([]map[messages.BlockID]int, pools)
	for i := range p.counts {
		p.counts[i] = map[messages.BlockID]int{}
	}
}

func (p *pins) empty() bool { return len(p.blocks) == 0 }

func (p *pins) count(pool int, block messages.BlockID) int { return p.counts[pool][block] }

// open makes a pin of the blocks, by pool.
func (p *pins) open(blocks [][]messages.BlockID) messages.PinID {
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
func (p *pins) forget(pool int, gone []messages.BlockID) {
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

func without(list []messages.BlockID, block messages.BlockID) []messages.BlockID {
	kept := list[:0]
	for _, b := range list {
		if b != block {
			kept = append(kept, b)
		}
	}
	return kept
}
