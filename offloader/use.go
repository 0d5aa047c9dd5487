package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// UseOf is the latest use of the host contents of a block; 0 if there are none.
func (o *Offloader) UseOf(pool messages.PoolID, b protocol.BlockID) protocol.Use {
	h := &o.hosts[pool]
	if p := h.find(b); p != messages.NoPage && h.pages[p].state == sole {
		return protocol.Use(h.pages[p].age)
	}
	return 0
}
