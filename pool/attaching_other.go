//go:build !amd64

package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attachAll is attachEach: there is assembly for amd64 alone.
func attachAll(pages []page, ids []messages.PageID, blocks []protocol.BlockID, depth int32, priority messages.Priority) (done int) {
	return attachEach(pages, ids, blocks, depth, priority)
}
