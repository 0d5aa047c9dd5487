package tree

import "github.com/kvactor/kvactor/messages"

// node is a run of consecutive blocks where nothing branches off, with its children
// behind the last block. It is also an element of the treap of its parent's children,
// which are ordered by the tokens of their first blocks. Numbers of nodes are used
// again after freeNode; nothing outside the tree knows them.
type node struct {
	run
	// depth is the depth of the parent plus the parent's n, for every node but a
	// root.
	depth    int32 // index of the first block in its prefix
	children int32 // the top of the treap of children, or none
	root     int32 // index in roots of a namespace's root, which has no blocks; else none

	// The elements of a treap are the siblings: an element's parent in the radix tree
	// is found only by way of above, up to the top of the treap.
	side  [2]int32 // in the treap: the elements before and behind
	above int32    // in the treap: the element above; at its top ^parent
	// head, in the treap, is the first token of the first block: most questions
	// about the order are answered by it, without a look at the tokens.
	head   messages.Token
	weight uint32 // no element weighs more than the one above it
	// latest is the greatest stamp among the first blocks of this element and
	// those below it that count as candidates, and as held; 0: none counts.
	latest [2]uint32

	// The bounds are by depth, not by index in the run, so both halves of a split
	// take them over as they are.
	generations generations
	fresh       int32 // the depth from which on generations.newest bounds the blocks
	// cross is equal in all nodes below a root. Each node has a copy, because
	// heldByAll needs it for each element of a search and the root is a walk away.
	cross bool // cross pools hold the blocks, and no self pool; else the other way round
}

// newNode returns an empty node: a free one, or one more. nodes and counts grow
// together: counts has 2×len(pools) elements for each node. The elements of counts
// for a free node are 0, so they need not be cleared here.
func (t *Tree) newNode() int32 {
	fresh := node{children: none, root: none, side: [2]int32{none, none}, above: none}
	if n := len(t.freeNodes); n > 0 {
		x := t.freeNodes[n-1]
		t.freeNodes = t.freeNodes[:n-1]
		t.nodes[x] = fresh
		return x
	}
	t.nodes, t.counts = lengthen(t.nodes, 1), lengthen(t.counts, 2*len(t.pools))
	x := int32(len(t.nodes) - 1)
	t.nodes[x] = fresh
	return x
}

// freeNode makes a node free whose blocks have left the tree or have moved to
// another node.
func (t *Tree) freeNode(x int32) {
	t.recycle(t.nodes[x].arrays)
	t.nodes[x] = node{children: none, root: none, side: [2]int32{none, none}, above: none}
	clear(t.countsOf(x))
	t.freeNodes = append(t.freeNodes, x)
}

// countsOf returns how many blocks of node x each pool holds in each tier,
// [pool][tier].
func (t *Tree) countsOf(x int32) []int32 {
	w := 2 * len(t.pools)
	return t.counts[int(x)*w : int(x+1)*w]
}

// end returns the depth behind the last block of node x.
func (t *Tree) end(x int32) int32 { return t.nodes[x].depth + t.nodes[x].n }

// newChild makes a child of parent with these tokens: whole blocks that no pool
// holds yet.
func (t *Tree) newChild(parent int32, tokens []messages.Token) int32 {
	x := t.newNode()
	nd := &t.nodes[x]
	nd.cross = t.nodes[parent].cross
	nd.depth = t.end(parent)
	// extend records the blocks with the block before them, which is found through
	// above. insert then sets above again, to the element that x comes below. insert
	// must come last: it orders x by its tokens.
	nd.above = ^parent // for tellEntered, which asks for the block before
	t.extend(x, tokens)
	t.insert(parent, x)
	return x
}

// newPartialChild makes a child of parent for a block that is stored in part.
func (t *Tree) newPartialChild(parent int32, tokens []messages.Token) int32 {
	x := t.newNode()
	nd := &t.nodes[x]
	nd.cross = t.nodes[parent].cross
	nd.depth = t.end(parent)
	nd.above = ^parent
	// The run is made here and not by extend, since a block stored in part never
	// grows: when the sequence goes on, the longer block becomes a sibling, and this
	// one stays as it was computed. The arrays have room for one whole block, of
	// which the first part tokens count.
	nd.run = run{arrays: t.newArrays(1), n: 1, part: int32(len(tokens))}
	copy(t.tokensIn(&nd.arrays), tokens)
	t.newBlocks(t.ids(x), x, nd.depth)
	for p := range t.pools {
		fillNowhere(t.locations(x, p))
	}
	t.recordEntered(x, 0)
	t.symbols.retain(tokens)
	t.insert(parent, x)
	return x
}

// relabel notes where the blocks of a segment are that has been copied from another
// node, and moves what pools hold of them from the counts of that node to those of
// theirs. It costs the blocks of the segment times the pools. So the callers pass the
// shorter part, and the longer one keeps its node.
func (t *Tree) relabel(s segment, from int32) {
	for _, b := range t.ids(s.node)[s.lo:s.hi] {
		t.blocks.node[b] = s.node
	}
	for p := range t.pools {
		for _, l := range t.locations(s.node, p)[s.lo:s.hi] {
			if _, tier, ok := l.Page(); ok {
				*t.count(s.node, p, tier)++
				*t.count(from, p, tier)--
			}
		}
	}
}

// split cuts node x before block i, 0 < i < n, and returns the node that ends
// there; the rest is its only child. The shorter part becomes the new node, so the
// cost is that of the shorter part: a prompt of a million tokens that branches near
// its end costs only its end.
func (t *Tree) split(x, i int32) int32 {
	y := t.newNode()
	// newNode may have moved nodes, so pointers are taken after it.
	from, to := &t.nodes[x], &t.nodes[y]
	to.generations, to.fresh, to.cross = from.generations, from.fresh, from.cross
	n := t.nodes[x].n
	//	before   x: [b0 … bn−1] ─ children
	//	after    y: [b0 … bi−1] ── x: [bi … bn−1] ─ children    the front is shorter
	//	         x: [b0 … bi−1] ── y: [bi … bn−1] ─ children    the rear is shorter
	if i <= n-i { // y takes the blocks before i
		t.reserve(y, margins{back: i})
		t.copyBlocks(y, segment{x, 0, i}, t.nodes[y].off)
		t.nodes[y].n = i
		t.nodes[y].depth = t.nodes[x].depth
		// The first block, which orders the node among its siblings, is in y now. So
		// y takes the place of x as it is, and no sibling is compared.
		t.replace(x, y)
		nd := &t.nodes[x]
		nd.off, nd.n, nd.depth = nd.off+i, n-i, nd.depth+i
		t.relabel(segment{y, 0, i}, x)
		t.shrink(x)
		// Only now has x its own first block and counts, on which order and latest
		// depend.
		t.insert(y, x)
		return y
	}
	t.reserve(y, margins{back: n - i})
	t.copyBlocks(y, segment{x, i, n}, t.nodes[y].off)
	t.nodes[y].n = n - i
	t.nodes[y].depth = t.nodes[x].depth + i
	// The children stay behind the last block, which has moved to y.
	t.takeChildren(y, x)
	t.nodes[x].n = i
	t.relabel(segment{y, 0, n - i}, x)
	t.shrink(x)
	t.insert(x, y)
	return x
}

// takeChildren makes the children of y those of x. Only the top of the treap names
// the parent, so the cost does not depend on the number of children.
func (t *Tree) takeChildren(x, y int32) {
	top := t.nodes[y].children
	t.nodes[x].children, t.nodes[y].children = top, none
	if top != none {
		t.nodes[top].above = ^x
	}
}

// mergeWithChild merges node x with its only child, if it has one of whole blocks.
// The longer of the two takes the other's blocks, for the reason that is given at
// split. Without the merge a prefix that was split once would stay in pieces after
// the branch has gone, and a match would pay a search among children for each piece.
func (t *Tree) mergeWithChild(x int32) {
	y := t.nodes[x].children
	if y == none || t.nodes[x].root != none || t.nodes[y].side != [2]int32{none, none} || t.nodes[y].part > 0 {
		return
	}
	n, m := t.nodes[x].n, t.nodes[y].n
	t.nodes[x].children = none
	// No block is newer than one that follows it: a block stays in the tree while
	// others follow it. So the newer bounds of y hold for all, once its older bound
	// covers x.
	t.nodes[y].generations.minGeneration = max(t.nodes[x].generations.max(), t.nodes[y].generations.minGeneration)
	t.nodes[x].generations, t.nodes[x].fresh = t.nodes[y].generations, t.nodes[y].fresh
	if n >= m {
		// y has no siblings, so it is not in a treap of more than one element and
		// needs no remove.
		t.reserve(x, margins{back: m})
		t.copyBlocks(x, segment{y, 0, m}, t.nodes[x].off+n)
		t.nodes[x].n += m
		t.takeChildren(x, y)
		t.relabel(segment{x, n, n + m}, y)
		t.freeNode(y)
		return
	}
	// The room before the run of y is for this case: its own blocks do not move.
	t.reserve(y, margins{front: n})
	t.copyBlocks(y, segment{x, 0, n}, t.nodes[y].off-n)
	nd := &t.nodes[y]
	nd.off, nd.n, nd.depth = nd.off-n, n+m, nd.depth-n
	t.replace(x, y)
	t.relabel(segment{y, 0, n}, x)
	t.freeNode(x)
}

// truncate removes the blocks from index n on from a leaf. No pool holds them. The
// symbols are released first, while the tokens still belong to the run. Neither
// counts nor the treap change, since the blocks are ghosts; but if n is 0 the caller
// has removed the node from its siblings.
func (t *Tree) truncate(x, n int32) {
	nd := &t.nodes[x]
	switch {
	case t.symbols.none():
	case nd.part > 0:
		t.symbols.release(t.tokensAt(x, 0))
	default:
		t.symbols.release(t.tokens(x)[int(n)*t.tpb:])
	}
	t.freeBlocks(t.ids(x)[n:])
	nd.n = n
}

// prune removes the ghosts that nothing stands behind, from node x upwards, and
// merges nodes that need not be apart any more. Nodes may be freed by it.
func (t *Tree) prune(x int32) {
	for t.nodes[x].children == none && t.nodes[x].root == none {
		if n := t.heldEnd(x); n > 0 {
			t.truncate(x, n)
			t.shrink(x)
			return
		}
		// The parent is found through the treap, so it is read before x leaves the
		// treap. remove comes before truncate, because its rotations still ask for
		// the first block of x.
		parent := t.parentOf(x)
		t.remove(x)
		t.truncate(x, 0)
		t.freeNode(x)
		x = parent
	}
	// x is the first node upwards that keeps a child, or a root. It has lost a child
	// if the loop ran at all, so it may be left with one child, which need not be
	// apart.
	if t.nodes[x].root != none && t.nodes[x].children == none {
		t.removeRoot(x)
		return
	}
	t.mergeWithChild(x)
}

// generations bound when the blocks of a node were made, in generations of the
// tree: one for each run that is made. They show that a Cursor is not of another
// block that had the same id before.
//
// A run keeps two bounds: blocks before depth node.fresh were made no later than
// minGeneration, the others no later than newest. Two are enough for sequences that
// extend one run in turn, each behind the blocks of the other: they find the blocks
// before the newest ones as old as they are.
type generations struct {
	minGeneration uint64
	newest        uint64
}

// max returns the bound of all blocks.
func (g generations) max() uint64 { return max(g.minGeneration, g.newest) }

// bump notes that the blocks from this depth on are made in generation now. The
// bounds become less precise for earlier blocks: a cursor to one of those may be
// refused although its block is there, which costs a walk from the root and is never
// wrong.
func (nd *node) bump(now uint64, depth int32) {
	nd.generations = generations{minGeneration: nd.generations.max(), newest: now}
	nd.fresh = depth
}

// generationOf returns the latest generation in which the block of this depth can
// have been made.
func (nd *node) generationOf(depth int32) uint64 {
	if depth < nd.fresh {
		return nd.generations.minGeneration
	}
	return nd.generations.newest
}
