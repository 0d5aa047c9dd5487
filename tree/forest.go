package tree

import "github.com/kvactor/kvactor/messages"

// forest changes which nodes there are: it makes, grows, splits, merges and removes
// them, and keeps the invariants of the package that concern the shape of the trees.
// Each change is one of runs, which arena makes, one of links, which siblings makes,
// and a record of the blocks that entered or left, which reporter makes.
type forest struct {
	// base is the layers below: a forest changes nodes by their methods only.
	base reporter
}

// newChild makes a child of parent, at a place that a search has found, for the rest of a
// prompt: whole blocks that no pool holds yet. array is the shared array to refer to, or
// noArray.
func (t *forest) newChild(parent int32, at place, prompt []messages.Token, array int32) int32 {
	x := t.base.newNode()
	t.base.arena.placeBehind(x, parent)
	// extend records the blocks, with the block before them, which it finds by the
	// parent. insert comes last: it reads the first token and whether the block counts.
	t.base.setParent(x, parent)
	t.extend(x, prompt, array)
	t.base.insert(x, at)
	return x
}

// newPartialChild makes a child of parent, at a place that a search has found, for a block
// that is stored in part.
func (t *forest) newPartialChild(parent int32, at place, tokens []messages.Token) int32 {
	x := t.base.newNode()
	t.base.arena.placeBehind(x, parent)
	t.base.setParent(x, parent)
	t.base.arena.setPart(x, tokens)
	t.enterBlocks(x, 0, tokens)
	t.base.insert(x, at)
	return x
}

// extend adds the blocks of a prompt that follow the run of node x, which no pool
// holds yet, to the run. array is the shared array to refer to, or noArray.
func (t *forest) extend(x int32, prompt []messages.Token, array int32) {
	n := t.base.arena.nodes[x].n
	t.base.arena.addBlocks(x, prompt, array)
	t.enterBlocks(x, n, t.base.arena.tokensFrom(x, n))
}

// extendLeaf is extend for a leaf, and returns the node that the blocks are in. A leaf
// that had tokens of its own may be in a shared array now, and then need not be apart
// from its parent any more.
func (t *forest) extendLeaf(x int32, prompt []messages.Token, array int32) int32 {
	own := t.base.arena.nodes[x].shared == noArray
	t.extend(x, prompt, array)
	if own && array != noArray {
		return t.mergeWithParent(x)
	}
	return x
}

// enterBlocks does what is to be done for new blocks beside the run: from i on those of
// node x, which have these tokens.
func (t *forest) enterBlocks(x, i int32, tokens []messages.Token) {
	t.base.blocks.cover(len(t.base.arena.index.node))
	t.base.recordEntered(x, i)
	t.base.symbols.retain(tokens)
}

// split cuts node x before block i, 0 < i < n, and returns the node that ends
// there; the rest is its only child. The shorter part becomes the new node, so the
// cost is that of the shorter part: a prompt of a million tokens that branches near
// its end costs only its end.
func (t *forest) split(x, i int32) int32 {
	y := t.base.newNode()
	//	before   x: [b0 … bn−1] ─ children
	//	after    y: [b0 … bi−1] ── x: [bi … bn−1] ─ children    the front is shorter
	//	         x: [b0 … bi−1] ── y: [bi … bn−1] ─ children    the rear is shorter
	if i <= t.base.arena.nodes[x].n-i {
		// The first block, which orders the node among its siblings, goes to y. So
		// y takes the place of x as it is, and no sibling is compared.
		t.base.replace(x, y)
		t.base.arena.moveFront(y, x, i)
		// Only now has x its own first block and counts, on which order and latest
		// depend.
		t.base.insert(x, place{above: ^y})
		return y
	}
	// The children stay behind the last block, which goes to y.
	t.base.takeChildren(y, x)
	t.base.arena.moveRear(y, x, i)
	t.base.insert(y, place{above: ^x})
	return x
}

// mergeWithChild merges node x with its only child, if it has one and the two can be
// joined, and returns the node that has the blocks of x. The longer of the two takes the
// other's blocks, for the reason that is given at split. Without the merge a prefix that
// was split once would stay in pieces after the branch has gone, and a match would pay a
// search among children for each piece.
func (t *forest) mergeWithChild(x int32) int32 {
	y := t.base.onlyChild(x)
	if y == none || t.base.arena.nodes[x].root != none || !t.base.arena.joinable(x, y) {
		return x
	}
	// y has no siblings, so no other element of a treap changes.
	if t.base.arena.nodes[x].n >= t.base.arena.nodes[y].n {
		t.base.takeChildren(x, y)
		t.base.arena.joinBehind(x, y)
		t.base.freeNode(y)
	} else {
		t.base.replace(x, y)
		t.base.arena.joinBefore(y, x)
		t.base.freeNode(x)
		x = y
	}
	// The blocks of x may have got into a shared array by the merge.
	return t.mergeWithParent(x)
}

// mergeWithParent merges node x with its parent if x is its only child and has got into
// a shared array, and returns the node that has the blocks of x.
func (t *forest) mergeWithParent(x int32) int32 {
	up := t.base.parentOf(x)
	if t.base.arena.nodes[x].shared == noArray || t.base.arena.nodes[up].root != none || t.base.onlyChild(up) != x {
		return x
	}
	return t.mergeWithChild(up)
}

// copyOut gives the runs of arrays that are used by less than half tokens of their own,
// if such arrays keep too much in memory. It looks at every node. That is no cost for
// each message: as many tokens have left the tree since the last time as the arrays may
// keep, and a node has at least one block.
func (t *forest) copyOut() {
	a := &t.base.arena
	if !a.shared.tooSparse() {
		return
	}
	for x := range int32(len(a.nodes)) {
		if s := a.nodes[x].shared; s != noArray && a.shared.list[s].unused() > 0 {
			a.rebuild(x, margins{}, noArray)
			t.mergeWithChild(x)
		}
	}
}

// truncate removes the blocks from index n on from a leaf. No pool holds them. The
// symbols are released first, while the tokens still belong to the run. Neither
// counts nor the treap change, since the blocks are ghosts; but if n is 0 the caller
// has removed the node from its siblings.
func (t *forest) truncate(x, n int32) {
	switch {
	case t.base.symbols.none():
	case t.base.arena.nodes[x].part > 0:
		t.base.symbols.release(t.base.arena.tokensAt(x, 0))
	default:
		t.base.symbols.release(t.base.arena.tokens(x)[int(n)*t.base.arena.tpb:])
	}
	t.base.recordLeft(t.base.arena.ids(x)[n:])
	t.base.arena.removeBlocks(x, n)
}

// prune removes the ghosts that nothing stands behind, from node x upwards, and
// merges nodes that need not be apart any more. Nodes may be freed by it.
func (t *forest) prune(x int32) {
	for t.base.isLeaf(x) && t.base.arena.nodes[x].root == none {
		if n := t.base.arena.heldEnd(x); n > 0 {
			t.truncate(x, n)
			t.base.arena.shrink(x)
			return
		}
		// The parent is found through the treap, so it is read before x leaves the
		// treap. remove comes before truncate, because its rotations still ask for
		// the first block of x.
		parent := t.base.parentOf(x)
		t.base.remove(x)
		t.truncate(x, 0)
		t.base.freeNode(x)
		x = parent
	}
	// x is the first node upwards that keeps a child, or a root. It has lost a child
	// if the loop ran at all, so it may be left with one child, which need not be
	// apart.
	if t.base.arena.nodes[x].root != none && t.base.isLeaf(x) {
		t.base.removeRoot(x)
		return
	}
	t.mergeWithChild(x)
}
