package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Attached lists, by pool, the device pages of all blocks, so that the tree and
// the pools can be held against each other.
func (t *Tree) Attached() [][]protocol.PageBlock {
	list := make([][]protocol.PageBlock, len(t.pools))
	for x := range t.walkAll() {
		ids := t.ids(x)
		for p := range t.pools {
			for i, l := range t.locations(x, p) {
				if page, tier, ok := l.Page(); ok && tier == messages.Primary {
					list[p] = append(list[p], protocol.PageBlock{Page: page, Block: ids[i]})
				}
			}
		}
	}
	return list
}
