package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Survey lists every place where a pool keeps a block.
func (t *Tree) Survey(m *protocol.ListLocations) {
	m.Blocks = m.Blocks[:0]
	salt := ""
	for x := range t.walkAll() {
		if r := t.nodes[x].root; r != none {
			salt = t.roots[r].namespace.Salt
		}
		ids := t.ids(x)
		for p := range t.pools {
			for i, at := range t.locations(x, p) {
				if at == messages.Nowhere {
					continue
				}
				b := ids[i]
				t.expireNow(b)
				until, _ := t.timers.of(b)
				m.Blocks = append(m.Blocks, protocol.BlockLocation{
					Pool: messages.PoolID(p), Block: b, At: at, Depth: t.nodes[x].depth + int32(i), Priority: t.blocks.priority[b],
					Until: until, Salt: salt,
				})
			}
		}
	}
}
