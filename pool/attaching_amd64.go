package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// attachAll is attachEach, which does short runs: there the call of assembly costs more than it
// saves.
func attachAll(pages []page, ids []messages.PageID, blocks []protocol.BlockID, depth int32, priority messages.Priority) (done int) {
	blocks = blocks[:len(ids)]
	if len(ids) < 8 {
		return attachEach(pages, ids, blocks, depth, priority)
	}
	return attachBlocks(pages, ids, blocks, depth, priority)
}

// attachBlocks is attachEach in assembly, with half as many instructions: it writes block and
// depth in one word, and checks no bounds of arrays that are equally long.
//
//go:noescape
func attachBlocks(pages []page, ids []messages.PageID, blocks []protocol.BlockID, depth int32, priority messages.Priority) (done int)
