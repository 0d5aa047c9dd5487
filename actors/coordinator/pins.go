package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// pins remembers which blocks each pin holds in each pool. A pin is of blocks,
// not of pages: it stays when a block moves between the tiers, and what is
// forgotten is no longer pinned.
type pins struct {
	// last is the newest pin. Numbers are never used twice, so a pin that has ended stays
	// unknown.
	last   messages.PinID
	blocks map[messages.PinID][][]protocol.BlockID // by pool
	// counts follow from blocks. They are kept because every page that changes its tier asks
	// for the pins of its block, and a walk over all pins would cost too much there.
	counts []map[protocol.BlockID]int // by pool: pins that hold a block, at least 1
}

func newPins(pools int) *pins {
	p := &pins{counts: make([]map[protocol.BlockID]int, pools)}
	p.clear()
	return p
}

// clear ends all pins.
func (p *pins) clear() {
	p.blocks = map[messages.PinID][][]protocol.BlockID{}
	for i := range p.counts {
		p.counts[i] = map[protocol.BlockID]int{}
	}
}

// count is the number of pins that hold a block in a pool.
func (p *pins) count(pool int, block protocol.BlockID) int { return p.counts[pool][block] }

// open makes a pin of the blocks, by pool.
func (p *pins) open(blocks [][]protocol.BlockID) messages.PinID {
	p.last++
	p.blocks[p.last] = blocks
	// A block may have several pins, of this host and of others; it is protected until the
	// last one ends.
	for pool, list := range blocks {
		for _, block := range list {
			p.counts[pool][block]++
		}
	}
	return p.last
}

// end removes a pin.
func (p *pins) end(pin messages.PinID) {
	// Blocks that were forgotten have been taken out of the pin, so each one that is left has a
	// count.
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
		// Most blocks are not pinned, and most engines have no pins: this is one look.
		if p.counts[pool][block] == 0 {
			continue
		}
		// All pins of the block at once: only what is stored can be pinned, and what is
		// stored once more later is not pinned.
		delete(p.counts[pool], block)
		for pin, pools := range p.blocks {
			// Only the pins that hold the block change; the others are walked, because pins are few
			// and blocks that are pinned and forgotten are fewer.
			p.blocks[pin][pool] = slices.DeleteFunc(pools[pool],
				func(b protocol.BlockID) bool { return b == block })
		}
	}
}

// forgetUnlisted takes all blocks out of the pins that the tree does not list where the pins
// hold them: it may have forgotten some in an answer that was lost.
func (p *pins) forgetUnlisted(list []protocol.BlockLocation) {
	stored := map[poolBlock]bool{}
	for i := range list {
		if list[i].At != protocol.Nowhere {
			stored[poolBlock{list[i].Pool, list[i].Block}] = true
		}
	}
	for pool, counts := range p.counts {
		for block := range counts {
			if !stored[poolBlock{messages.PoolID(pool), block}] {
				p.forget(pool, []protocol.BlockID{block})
			}
		}
	}
}

// check verifies that the counts are those of the pins.
func (p *pins) check() error {
	var problems []error
	for pool, counts := range p.counts {
		// Counted again from the pins themselves.
		n := map[protocol.BlockID]int{}
		for _, blocks := range p.blocks {
			for _, block := range blocks[pool] {
				n[block]++
			}
		}
		if !maps.Equal(n, counts) {
			problems = append(problems, fmt.Errorf("pool %d: pins hold blocks %v, counted %v",
				pool, n, counts))
		}
	}
	return errors.Join(problems...)
}
