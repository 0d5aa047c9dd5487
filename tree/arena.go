package tree

// arena holds the nodes and their runs, and finds the node of a block. It knows
// nothing of how nodes are linked: that is what siblings adds.
//
// Nodes, counts and blocks are indexed by small numbers instead of linked by pointers:
// the collector has two pointers to follow for each node and none for each block, and
// a number stays valid when the array moves. A pointer into nodes is not valid after
// takeNode.
type arena struct {
	shape
	nodes     []node
	counts    []int32 // [node][pool][tier]: blocks of the run that lie there
	freeNodes []int32
	pool      arrayPool // of runs with tokens of their own
	numbers   arrayPool // of runs that refer to tokens in shared arrays: ids and locations alone
	shared    sharedArrays
	index     index
	// generation is at least that of every block, so a Cursor made now is followed by
	// no block that is made later.
	generation uint64 // runs that were made so far
	// moved counts the blocks that splits and joins have copied; the tests hold
	// its growth against n log n.
	moved int
}

// node is a run of consecutive blocks where nothing branches off. Numbers of nodes are
// used again after dropNode; nothing outside the tree knows them.
type node struct {
	run
	// depth is the depth of the parent plus the parent's n, for every node but a
	// root.
	depth int32 // index of the first block in its prefix
	// The bounds are by depth, not by index in the run, so both halves of a split
	// take them over as they are.
	fresh       int32 // the depth from which on generations.newest bounds the blocks
	generations generations
	root        int32 // index in roots of a namespace's root, which has no blocks; else none
	// cross is equal in all nodes below a root. Each node has a copy, because
	// heldByAll needs it for each element of a search and the root is a walk away.
	cross bool // cross pools hold the blocks, and no self pool; else the other way round
}

// segment is the blocks [lo, hi) of node's run, on the path from a root. 0 ≤ lo < hi
// ≤ n. Segments of one path follow one another without a gap. A segment is valid
// until its node is split, merged or freed.
type segment struct{ node, lo, hi int32 }

// takeNode returns a node without blocks: a free one, or one more. nodes and counts
// grow together: counts has 2×len(pools) elements for each node. The elements of
// counts for a free node are 0, so they need not be cleared here.
func (t *arena) takeNode() int32 {
	if n := len(t.freeNodes); n > 0 {
		x := t.freeNodes[n-1]
		t.freeNodes = t.freeNodes[:n-1]
		return x
	}
	t.nodes, t.counts = lengthen(t.nodes, 1), lengthen(t.counts, 2*len(t.pools))
	x := int32(len(t.nodes) - 1)
	t.nodes[x] = node{root: none}
	return x
}

// dropNode makes a node free whose blocks have left the tree or have moved to
// another node.
func (t *arena) dropNode(x int32) {
	t.recycle(&t.nodes[x].run)
	t.nodes[x] = node{root: none}
	clear(t.countsOf(x))
	t.freeNodes = append(t.freeNodes, x)
}

// placeBehind makes the blocks that node x will have follow those of parent.
func (t *arena) placeBehind(x, parent int32) {
	nd := &t.nodes[x]
	nd.depth, nd.cross = t.end(parent), t.nodes[parent].cross
}

// end returns the depth behind the last block of node x.
func (t *arena) end(x int32) int32 { return t.nodes[x].depth + t.nodes[x].n }
