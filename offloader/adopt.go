package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Kept is one block whose only contents are a host page, as its owners
// remember it.
type Kept struct {
	Page     messages.PageID
	Block    protocol.BlockID
	Depth    int32
	Priority messages.Priority
	Use      protocol.Use
	Tenant   protocol.Tenant
	Pins     int
}

// Adopt puts contents back into a new offloader that follows one that died.
// Copies are not known to anyone else, so they are lost: their pages are free.
// So is the ledger: all transfers must be over before.
func (o *Offloader) Adopt(pool messages.PoolID, kept []Kept) {
	o.enter(idle, "Adopt")
	h := &o.hosts[pool]
	for i := range kept {
		k := &kept[i]
		if h.pages[k.Page].state != free || h.find(k.Block) != messages.NoPage {
			panic(fmt.Sprintf("offloader: pool %s: adoption of block %d on host page %d, which is %s; the block is on page %d",
				h.name, k.Block, k.Page, h.stateOf(k.Page), h.find(k.Block)))
		}
		h.hold(k.Page, k.Block)
		h.lend(k.Page, k.Tenant)
		h.become(k.Page, sole)
		pg := &h.pages[k.Page]
		pg.age, pg.depth, pg.priority = uint64(k.Use), k.Depth, k.Priority
		h.setPins(k.Page, int32(k.Pins))
		h.settle(k.Page)
	}
	h.head, h.size = 0, 0
	for i := range h.pages {
		if h.pages[i].state == free {
			h.idle[h.size] = messages.PageID(i)
			h.size++
		}
	}
	o.checked()
}
