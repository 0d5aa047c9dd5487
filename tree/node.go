package tree

import "github.com/kvactor/kvactor/messages"

// node is a run of consecutive blocks that nothing branches off from, with its
// children behind the last block. It is an element of the treap of its parent's
// children, ordered by the tokens of first blocks.
type node struct {
	run
	depth    int32 // index of the first block in its prefix
	children int32 // the top of the treap of children, or none
	root     int32 // index in roots of a namespace's root, which has no blocks; else none

	side  [2]int32 // in the treap: the elements before and behind
	above int32    // in the treap: the element above; at its top ^parent
	// head, in the treap, is the first token of the first block: most questions
	// about the order are answered by it, without a look at the tokens.
	head   messages.Token
	weight uint32 // no element weighs more than the one above it
	// latest is the greatest stamp among the first blocks of this element and
	// those below it that count as candidates, and as held; 0: none counts.
	latest      [2]uint32
	generations generations
	cross       bool // cross pools hold the blocks, and no self pool; else the other way round
}

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

// freeNode returns a node whose blocks are gone or have moved.
func (t *Tree) freeNode(x int32) {
	t.recycle(t.nodes[x].arrays)
	t.nodes[x] = node{children: none, root: none, side: [2]int32{none, none}, above: none}
	clear(t.countsOf(x))
	t.freeNodes = append(t.freeNodes, x)
}

func (t *Tree) countsOf(x int32) []int32 {
	w := 2 * len(t.pools)
	return t.counts[int(x)*w : int(x+1)*w]
}

// end is the depth behind the last block of node x.
func (t *Tree) end(x int32) int32 { return t.nodes[x].depth + t.nodes[x].n }

// grow makes a child of parent with these tokens, whole blocks that no pool holds.
func (t *Tree) newChild(parent int32, tokens []messages.Token) int32 {
	x := t.newNode()
	nd := &t.nodes[x]
	nd.cross = t.nodes[parent].cross
	nd.depth = t.end(parent)
	nd.above = ^parent // for tellEntered, which asks for the block before
	t.extend(x, tokens)
	t.insert(parent, x)
	return x
}

// growPart makes a child of parent with the tokens of a block stored in part.
func (t *Tree) newPartialChild(parent int32, tokens []messages.Token) int32 {
	x := t.newNode()
	nd := &t.nodes[x]
	nd.cross = t.nodes[parent].cross
	nd.depth = t.end(parent)
	nd.above = ^parent
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

// relabel tells the blocks of a segment, which came from another node, where
// they are now, and takes what pools hold of them from that node's counts to
// those of theirs.
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
// there; the rest is its only child. The shorter part becomes the new node, so
// the cost is that of the shorter part.
func (t *Tree) split(x, i int32) int32 {
	y := t.newNode()
	t.nodes[y].generations, t.nodes[y].cross = t.nodes[x].generations, t.nodes[x].cross
	n := t.nodes[x].n
	if i <= n-i { // y takes the blocks before i
		t.reserve(y, margins{back: i})
		t.copyBlocks(y, segment{x, 0, i}, t.nodes[y].off)
		t.nodes[y].n = i
		t.nodes[y].depth = t.nodes[x].depth
		t.replace(x, y)
		nd := &t.nodes[x]
		nd.off, nd.n, nd.depth = nd.off+i, n-i, nd.depth+i
		t.relabel(segment{y, 0, i}, x)
		t.shrink(x)
		t.insert(y, x)
		return y
	}
	t.reserve(y, margins{back: n - i})
	t.copyBlocks(y, segment{x, i, n}, t.nodes[y].off)
	t.nodes[y].n = n - i
	t.nodes[y].depth = t.nodes[x].depth + i
	t.takeChildren(y, x)
	t.nodes[x].n = i
	t.relabel(segment{y, 0, n - i}, x)
	t.shrink(x)
	t.insert(x, y)
	return x
}

// adopt makes the children of y those of x.
func (t *Tree) takeChildren(x, y int32) {
	kids := t.nodes[y].children
	t.nodes[x].children, t.nodes[y].children = kids, none
	if kids != none {
		t.nodes[kids].above = ^x
	}
}

// fuse joins node x with its only child, if it has one of whole blocks. The
// longer of the two takes the other's blocks.
func (t *Tree) mergeWithChild(x int32) {
	y := t.nodes[x].children
	if y == none || t.nodes[x].root != none || t.nodes[y].side != [2]int32{none, none} || t.nodes[y].part > 0 {
		return
	}
	n, m := t.nodes[x].n, t.nodes[y].n
	t.nodes[x].children = none
	births := t.nodes[x].generations.merge(t.nodes[y].generations)
	t.nodes[x].generations, t.nodes[y].generations = births, births
	if n >= m {
		t.reserve(x, margins{back: m})
		t.copyBlocks(x, segment{y, 0, m}, t.nodes[x].off+n)
		t.nodes[x].n += m
		t.takeChildren(x, y)
		t.relabel(segment{x, n, n + m}, y)
		t.freeNode(y)
		return
	}
	t.reserve(y, margins{front: n})
	t.copyBlocks(y, segment{x, 0, n}, t.nodes[y].off-n)
	nd := &t.nodes[y]
	nd.off, nd.n, nd.depth = nd.off-n, n+m, nd.depth-n
	t.replace(x, y)
	t.relabel(segment{y, 0, n}, x)
	t.freeNode(x)
}

// cut removes the blocks from index n on, ghosts, of a leaf.
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

// prune removes the ghosts that nothing stands behind, from node x upwards,
// and joins what need not be apart any more. Nodes may change in it.
func (t *Tree) prune(x int32) {
	for t.nodes[x].children == none && t.nodes[x].root == none {
		if n := t.heldEnd(x); n > 0 {
			t.truncate(x, n)
			t.shrink(x)
			return
		}
		parent := t.parentOf(x)
		t.remove(x)
		t.truncate(x, 0)
		t.freeNode(x)
		x = parent
	}
	if t.nodes[x].root != none && t.nodes[x].children == none {
		t.removeRoot(x)
		return
	}
	t.mergeWithChild(x)
}

// births bound when the blocks of a node came to be, by the tree's count of
// births, so that a Cursor is known not to be of another block that had the id
// before. Two numbers for a run do: sequences that go on from one end, each
// behind the other, find the blocks before the newest as old as they are.
type generations struct {
	minGeneration uint64 // of blocks before depth fresh none is younger
	newest        uint64 // of blocks from there on none is
	fresh         int32
}

// bear tells that the blocks from this depth on are born now.
func (a *generations) bump(now uint64, depth int32) {
	*a = generations{minGeneration: max(a.minGeneration, a.newest), newest: now, fresh: depth}
}

// join are the births of a run that begins with those of a.
func (a generations) merge(behind generations) generations {
	behind.minGeneration = max(a.minGeneration, a.newest, behind.minGeneration)
	return behind
}

// of bounds the birth of the block of this depth.
func (a *generations) of(depth int32) uint64 {
	if depth < a.fresh {
		return a.minGeneration
	}
	return a.newest
}
