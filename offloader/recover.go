package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Adopt restores the sole pages of a pool in a new offloader that replaces a failed
// one. Nothing else is known about clean and ahead copies, so they are lost and their
// pages are free. So is the ledger: all transfers must have passed before.
func (o *Offloader) Adopt(pool messages.PoolID, kept []protocol.KeptPage) {
	o.expect(idle, "Adopt")
	h := &o.hosts[pool]
	for i := range kept {
		k := &kept[i]
		// Two owners of one page, or two pages of one block, contradict each other.
		if h.pages[k.Page].state != free || h.find(k.Block) != messages.NoPage {
			panic(fmt.Sprintf("offloader: pool %s: adoption of block %d on host page %d, which is %s; the block is on page %d",
				h.name, k.Block, k.Page, h.stateOf(k.Page), h.find(k.Block)))
		}
		h.setBlock(k.Page, k.Block)
		h.setTenant(k.Page, k.Tenant)
		h.setState(k.Page, sole)
		pg := &h.pages[k.Page]
		pg.age, pg.depth, pg.priority = uint64(k.Use), k.Depth, k.Priority
		h.setPins(k.Page, k.Pins)
		h.enqueue(k.Page)
	}
	// The ring was full of pages that have contents now, so it is made again from the states.
	h.head, h.size = 0, 0
	for i := range h.pages {
		if h.pages[i].state == free {
			h.idle[h.size] = messages.PageID(i)
			h.size++
		}
	}
	o.mustCheck()
}

// UseOf is the latest use of the host contents of a block; 0 if there are none.
func (o *Offloader) UseOf(pool messages.PoolID, b protocol.BlockID) protocol.Use {
	h := &o.hosts[pool]
	if p := h.find(b); p != messages.NoPage && h.pages[p].state == sole {
		return protocol.Use(h.pages[p].age)
	}
	return 0
}
