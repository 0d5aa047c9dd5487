package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Locate answers where each pool keeps blocks; Nowhere for those that have left the
// tree.
func (t *Tree) Locate(l *protocol.Locate) {
	l.Pages = resize(l.Pages, len(t.pools))
	for p := range t.pools {
		l.Pages[p] = resize(l.Pages[p], len(l.Blocks))
		for k, b := range l.Blocks {
			l.Pages[p][k] = protocol.Nowhere
			if t.alive(b) {
				x, i := t.at(b)
				l.Pages[p][k] = t.locations(x, p)[i]
			}
		}
	}
}

// Contents answers every block of the tree.
func (t *Tree) Contents(c *protocol.Contents) {
	c.Blocks = c.Blocks[:0]
	index := make([]int, len(t.blocks.node)) // in c.Blocks, by block
	var ns messages.Namespace
	for x := range t.walkAll() {
		if r := t.nodes[x].root; r != none {
			ns = t.roots[r].namespace
			continue
		}
		// Parents come first in the walk, so the index of the parent is known.
		parent := -1
		if b := t.tail(t.parentOf(x)); b != protocol.NoBlock {
			parent = index[b]
		}
		for i, b := range t.ids(x) {
			tokens := t.tokensAt(x, int32(i))
			tokens = tokens[:len(tokens)-int(t.padding(x, int32(i)))]
			pages := make([]protocol.Location, len(t.pools))
			for p := range pages {
				pages[p] = t.locations(x, p)[i]
			}
			c.Blocks = append(c.Blocks, protocol.Content{
				Parent: parent, Namespace: ns, Depth: int(t.nodes[x].depth) + i, Cross: t.nodes[x].cross,
				Tokens: t.symbols.originals(tokens), Covers: t.symbols.covers(tokens), Pages: pages,
			})
			parent = len(c.Blocks) - 1
			index[b] = parent
		}
	}
}

// walkAll visits all nodes, namespace by namespace, parents before children, children
// in token order. The tree must not change during the walk. The order is the same in
// each run, because no map is ranged over.
func (t *Tree) walkAll() func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		var stack []int32
		for i := range t.roots {
			if t.roots[i].node == none {
				continue
			}
			stack = append(stack[:0], t.roots[i].node)
			for n := len(stack); n > 0; n = len(stack) {
				x := stack[n-1]
				stack = stack[:n-1]
				if !yield(x) {
					return
				}
				stack = t.childrenOf(stack, x)
			}
		}
	}
}

// ListLocations lists every place where a pool keeps a block.
func (t *Tree) ListLocations(m *protocol.ListLocations) {
	m.Blocks = m.Blocks[:0]
	salt := ""
	for x := range t.walkAll() {
		if r := t.nodes[x].root; r != none {
			salt = t.roots[r].namespace.Salt
		}
		ids := t.ids(x)
		for p := range t.pools {
			for i, at := range t.locations(x, p) {
				if at == protocol.Nowhere {
					continue
				}
				b := ids[i]
				// The answer restores pools after a failure, and they must not get a
				// priority that has ended.
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

// Attached lists, by pool, the device pages of all blocks, so that a check can
// compare the tree with the pools.
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
