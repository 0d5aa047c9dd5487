package tree

import (
	"cmp"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages/inspect"
)

// maxCounted is how many nodes an overview counts: some milliseconds with cold caches
// (BenchmarkTopNodes).
const maxCounted = 1 << 15

// TopNodes answers the nodes with the most blocks below them.
//
// It counts breadth first, so a tree of more nodes than are counted lacks its deepest
// levels and not whole branches.
func (t *Tree) TopNodes(m *protocol.TopNodes) {
	o := overview{arena: &t.base.arena, blocks: &t.base.blocks}
	for i := range t.base.roots {
		if x := t.base.roots[i].node; x != none {
			o.add(x, -1)
		}
	}
	var children []int32
	for at := 0; at < len(o.nodes) && len(o.nodes) < maxCounted; at++ {
		children = t.base.childrenOf(children[:0], o.nodes[at])
		for _, x := range children {
			o.add(x, at)
		}
		o.opened++
	}
	m.Counted, m.Complete = len(o.nodes), o.opened == len(o.nodes)
	m.Nodes = o.largest(m.Limit, m.Nodes[:0])
}

// overview is a list of nodes, each behind its parent.
type overview struct {
	arena  *arena
	blocks *blocks
	nodes  []int32
	list   []inspect.PrefixNode // of nodes; Parent is an index of this list
	opened int                  // nodes whose children are in the list
}

// add appends a node, which follows the node at an index.
func (o *overview) add(x int32, parent int) {
	nd := &o.arena.nodes[x]
	p := inspect.PrefixNode{Parent: parent, Depth: int(nd.depth), Blocks: int(nd.n)}
	if ids := o.arena.ids(x); len(ids) > 0 {
		// A claim that ends inside the run has given its stamp to the first blocks only.
		p.Stamp = o.blocks.stamp[ids[0]]
	}
	o.nodes = append(o.nodes, x)
	o.list = append(o.list, p)
}

// largest sums up what is below each node and appends the largest nodes to out. Ties go to
// the node that was counted first.
func (o *overview) largest(limit int, out []inspect.PrefixNode) []inspect.PrefixNode {
	order := make([]int32, len(o.list))
	for i := len(o.list) - 1; i >= 0; i-- {
		n := &o.list[i]
		n.Below += n.Blocks
		if n.Parent >= 0 {
			o.list[n.Parent].Below += n.Below
		}
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(o.list[b].Below, o.list[a].Below), cmp.Compare(a, b))
	})
	// No node has more below it than its parent, and the parent was counted before: each
	// node of the selection comes with its parent.
	order = order[:min(limit, len(order))]
	slices.Sort(order)
	place := make(map[int]int, len(order))
	for _, i := range order {
		n := o.list[i]
		if n.Parent >= 0 {
			n.Parent = place[n.Parent]
		}
		place[int(i)] = len(out)
		out = append(out, n)
	}
	return out
}
