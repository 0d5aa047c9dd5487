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

// maxVisited is how many blocks an overview looks at.
const maxVisited = 1 << 20

// TopNodes answers the nodes with the most blocks below them. A node is a run of blocks
// where nothing branches off.
//
// It counts breadth first, so a tree of more nodes than are counted lacks its deepest
// levels and not whole branches.
func (t *Tree) TopNodes(m *protocol.TopNodes) {
	var o overview
	for i := range t.arena.roots {
		if t.arena.roots[i].children != protocol.NoBlock {
			o.add(spot{int32(i), protocol.NoBlock}, inspect.PrefixNode{Parent: -1})
		}
	}
	var children, run []protocol.BlockID
	opened, visited := 0, 0
	for ; opened < len(o.nodes) && len(o.nodes) < maxCounted && visited < maxVisited; opened++ {
		children = t.arena.appendChildren(children[:0], o.nodes[opened])
		for _, b := range children {
			run = t.arena.appendRun(run[:0], b)
			visited += len(run)
			// A claim that ends inside the run has given its stamp to the first blocks only.
			o.add(t.arena.behind(run[len(run)-1]), inspect.PrefixNode{
				Parent: opened, Depth: int(t.arena.blocks[b].depth), Blocks: len(run),
				Stamp: t.arena.blocks[b].stamp,
			})
		}
	}
	m.Counted, m.Complete = len(o.nodes), opened == len(o.nodes)
	m.Nodes = o.largest(m.Limit, m.Nodes[:0])
}

// overview is a list of nodes, each behind its parent.
type overview struct {
	nodes []spot               // the place behind each node
	list  []inspect.PrefixNode // of nodes; Parent is an index of this list
}

// add appends a node.
func (o *overview) add(behind spot, n inspect.PrefixNode) {
	o.nodes, o.list = append(o.nodes, behind), append(o.list, n)
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
