package tree

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// siblings links the nodes: it keeps the children of each node in the order of the
// tokens of their first blocks, and finds parents. The children are a treap, whose
// elements are the nodes themselves.
//
// Each element knows the latest stamp below it, so that the best partial match among
// 100,000 children is found in the time of a few dozen comparisons. So siblings rests
// on the nodes, for tokens and for what pools hold, and on the attributes, for stamps.
type siblings struct {
	arena arena
	attributes
	elements    []element // by node
	randomState uint64    // state of the generator of weights
}

// element is a node as a parent of children and as one of the children of its parent.
// An element's parent in the radix tree is found only by way of above, up to the top
// of the treap.
type element struct {
	children int32    // the top of the treap of children, or none
	side     [2]int32 // the elements before and behind, or none
	above    int32    // the element above; at the top of the treap ^parent
	// head is the first token of the first block: most questions about the order are
	// answered by it, without a look at the tokens.
	head   messages.Token
	weight uint32 // no element weighs more than the one above it
	// own is the stamp of the first block if it counts as candidate, and as held, else
	// 0. It is a copy: the block's stamp and locations lie in the memory of the run, and
	// a way up the treap would wait for that of each element.
	own [2]uint32
	// latest is the greatest own of this element and those below it.
	latest [2]uint32
}

// unlinked is an element without children and in no treap.
var unlinked = element{children: none, side: [2]int32{none, none}, above: none}

// place is where an element would be among its siblings: on a side of another element, or if
// above is ^parent, alone.
type place struct{ above, side int32 }

// The two questions that the treap of children answers about first blocks.
const (
	// Every candidate is a holder, so latest[candidates] ≤ latest[holders].
	candidates = 0 // has a page in every pool: may be reused in part
	holders    = 1 // some pool holds it
)

// newNode returns a node without blocks, children and parent.
func (t *siblings) newNode() int32 {
	x := t.arena.takeNode()
	if int(x) == len(t.elements) {
		t.elements = lengthen(t.elements, 1)
	}
	t.elements[x] = unlinked
	return x
}

// freeNode makes a node free that is linked to nothing any more.
func (t *siblings) freeNode(x int32) {
	t.elements[x] = unlinked
	t.arena.dropNode(x)
}

// parentOf returns the parent of a node that is no root. The elements of a treap do
// not know their parent, only the element at its top does: so a split does not have
// to visit 100,000 children. It costs the depth of the treap, which is logarithmic in
// the siblings, and is asked once for each node on a way up. above is ^parent, which
// is negative for every node, at the top and the number of an element elsewhere, so
// one field serves both.
func (t *siblings) parentOf(x int32) int32 {
	for t.elements[x].above >= 0 {
		x = t.elements[x].above
	}
	return ^t.elements[x].above
}

// onlyChild returns the child of a node that has exactly one, else none.
func (t *siblings) onlyChild(x int32) int32 {
	y := t.elements[x].children
	if y == none || t.elements[y].side != [2]int32{none, none} {
		return none
	}
	return y
}

// isLeaf tells whether a node has no children.
func (t *siblings) isLeaf(x int32) bool { return t.elements[x].children == none }

// before returns the block before b in its prefix, or NoBlock.
func (t *siblings) before(b protocol.BlockID) protocol.BlockID {
	x, i := t.arena.at(b)
	return t.prior(x, i)
}

// prior returns the block before block i of node x, or NoBlock.
func (t *siblings) prior(x, i int32) protocol.BlockID {
	if i > 0 {
		return t.arena.ids(x)[i-1]
	}
	return t.arena.tail(t.parentOf(x))
}

// first returns the tokens of the first block of node x, by which it is ordered
// among its siblings.
func (t *siblings) first(x int32) []messages.Token { return t.arena.tokensAt(x, 0) }

// latestOf returns latest of an element that may be none.
func (t *siblings) latestOf(x int32, what int) uint32 {
	if x == none {
		return 0
	}
	return t.elements[x].latest[what]
}

// refresh computes own and latest of x, whose first block has changed.
func (t *siblings) refresh(x int32) {
	t.refreshOwn(x)
	t.combine(x)
}

// refreshOwn computes own of x, whose first block has changed.
func (t *siblings) refreshOwn(x int32) {
	e := &t.elements[x]
	e.own = [2]uint32{}
	if t.arena.held(x, 0) {
		e.own[holders] = t.blocks.stamp[t.arena.ids(x)[0]]
	}
	if t.arena.heldByAll(x, 0) {
		e.own[candidates] = e.own[holders]
	}
}

// combine computes latest of x from x and the two elements below it, and tells
// whether it has changed. It must be called from below upwards: an element reads the
// latest of those below it.
func (t *siblings) combine(x int32) bool {
	e := &t.elements[x]
	latest := e.own
	for _, y := range e.side {
		if y != none {
			below := &t.elements[y].latest
			latest[candidates] = max(latest[candidates], below[candidates])
			latest[holders] = max(latest[holders], below[holders])
		}
	}
	changed := latest != e.latest
	e.latest = latest
	return changed
}

// refreshUpwards computes own of x, and latest of x and of the elements above it, as far
// up as it changes. It stops where nothing changes, since an element higher up reads x
// only through that. It ends at the top of the treap, where above is negative.
func (t *siblings) refreshUpwards(x int32) {
	old := t.elements[x].own
	t.refreshOwn(x)
	own := t.elements[x].own
	// A new stamp is greater than all before it. So own has nearly always increased, and
	// the other elements that a latest is of need not be looked at.
	if own[candidates] >= old[candidates] && own[holders] >= old[holders] {
		for x >= 0 && t.elements[x].raise(own) {
			x = t.elements[x].above
		}
		return
	}
	for x >= 0 && t.combine(x) {
		x = t.elements[x].above
	}
}

// raise computes latest of an element after own of it, or latest below it, has increased to
// stamps, and tells whether it has changed.
func (e *element) raise(stamps [2]uint32) (changed bool) {
	for what, s := range stamps {
		if e.latest[what] < s {
			e.latest[what], changed = s, true
		}
	}
	return changed
}

// replaceBelow makes x, which may be none, the element in the place of y below the
// element or the parent of y.
func (t *siblings) replaceBelow(x, y int32) {
	up := t.elements[y].above
	switch {
	case up < 0:
		t.elements[^up].children = x
	case t.elements[up].side[0] == y:
		t.elements[up].side[0] = x
	default:
		t.elements[up].side[1] = x
	}
	if x != none {
		t.elements[x].above = up
	}
}

// rotate makes x the element above the one that is above it now, and keeps the
// order of tokens.
func (t *siblings) rotate(x int32) {
	y := t.elements[x].above
	s := 0
	if t.elements[y].side[1] == x {
		s = 1
	}
	//	     y            x
	//	    / \          / \
	//	   x   c   ──▶  a   y        for x before y; else mirrored
	//	  / \              / \
	//	 a  inner       inner  c
	inner := t.elements[x].side[1-s]
	t.replaceBelow(x, y)
	t.elements[y].side[s] = inner
	if inner != none {
		t.elements[inner].above = y
	}
	t.elements[x].side[1-s] = y
	t.elements[y].above = x
	// y is below x now, so it is computed first. What is above x is not computed
	// here: the elements below the place are the same as before.
	t.combine(y)
	t.combine(x)
}

// setParent says that x is below parent before it is in order among the children, so
// that a record of its blocks finds the block before them. insert sets it again.
func (t *siblings) setParent(x, parent int32) { t.elements[x].above = ^parent }

// insert adds x to the children of its parent, at a place that a search for the tokens of its
// first block has found since the last change of the children. No two siblings have equal
// tokens: the search has found no child.
func (t *siblings) insert(x int32, at place) {
	up, s := at.above, at.side
	// x begins at the bottom, as in a tree without weights, and is rotated up to its
	// weight.
	e := &t.elements[x]
	e.above, e.side, e.weight, e.head = up, [2]int32{none, none}, t.random(), t.first(x)[0]
	if up < 0 {
		t.elements[^up].children = x
	} else {
		t.elements[up].side[s] = x
	}
	t.refresh(x)
	for t.elements[x].above >= 0 && t.elements[x].weight > t.elements[t.elements[x].above].weight {
		t.rotate(x)
	}
	// What is above x is as if x had been below it all the time.
	for x = t.elements[x].above; x >= 0 && t.combine(x); {
		x = t.elements[x].above
	}
}

// remove removes x, a ghost, from its siblings. A ghost has no stamp that counts, so
// no latest above it changes.
func (t *siblings) remove(x int32) {
	t.replaceBelow(joined(t.elements, t.elements[x].side[0], t.elements[x].side[1]), x)
}

// joined makes one treap of two, either of which may be none, and returns its top. All
// elements of a come before those of b.
//
//	  a       b              a
//	 / \     / \    ──▶     / \             if a weighs more than b;
//	…   c   …   …          …   joined(c, b)   else mirrored
func joined(elements []element, a, b int32) int32 {
	switch {
	case a == none:
		return b
	case b == none:
		return a
	}
	x, y := &elements[a], &elements[b]
	if y.weight > x.weight {
		y.raise(x.latest)
		y.side[0] = joined(elements, a, y.side[0])
		elements[y.side[0]].above = b
		return b
	}
	x.raise(y.latest)
	x.side[1] = joined(elements, x.side[1], b)
	elements[x.side[1]].above = a
	return a
}

// replace makes y, which has got the first block of x, the element in the place of x.
// Only links and the place change. Weights are those of the place, so the treap has
// the same shape, and a split of a node with 100,000 siblings costs nothing for them.
func (t *siblings) replace(x, y int32) {
	t.replaceBelow(y, x)
	from, to := &t.elements[x], &t.elements[y]
	to.side, to.weight, to.own, to.latest, to.head = from.side, from.weight, from.own, from.latest, from.head
	from.side = [2]int32{none, none}
	for _, z := range to.side {
		if z != none {
			t.elements[z].above = y
		}
	}
}

// takeChildren makes the children of y those of x. Only the top of the treap names
// the parent, so the cost does not depend on the number of children.
func (t *siblings) takeChildren(x, y int32) {
	top := t.elements[y].children
	t.elements[x].children, t.elements[y].children = top, none
	if top != none {
		t.elements[top].above = ^x
	}
}

// random returns the weight of a new element: splitmix64 from a constant seed, so
// that every run builds the same treaps. The weights only keep the treap shallow:
// they decide the cost of a search, not its result.
func (t *siblings) random() uint32 {
	t.randomState += 0x9e3779b97f4a7c15
	z := t.randomState
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32((z ^ z>>31) >> 32)
}
