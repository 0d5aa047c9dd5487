package tree

import "github.com/kvactor/kvactor/messages"

// The two questions that the treap of children answers about first blocks.
const (
	// Every candidate is a holder, so latest[candidates] ≤ latest[holders].
	candidates = 0 // has a page in every pool: may be reused in part
	holders    = 1 // some pool holds it
)

// parentOf returns the parent of a node that is no root. The elements of a treap do
// not know their parent, only the element at its top does: so a split does not have
// to visit 100,000 children. It costs the depth of the treap, which is logarithmic in
// the siblings, and is asked once for each node on a way up. above is ^parent, which
// is negative for every node, at the top and the number of an element elsewhere, so
// one field serves both.
func (t *Tree) parentOf(x int32) int32 {
	for t.nodes[x].above >= 0 {
		x = t.nodes[x].above
	}
	return ^t.nodes[x].above
}

// first returns the tokens of the first block of node x, by which it is ordered
// among its siblings.
func (t *Tree) first(x int32) []messages.Token { return t.tokensAt(x, 0) }

// stampOf returns the stamp of the first block of node x if the block counts, else
// 0.
func (t *Tree) stampOf(x int32, what int) uint32 {
	if what == candidates && !t.heldByAll(x, 0) || what != candidates && !t.held(x, 0) {
		return 0
	}
	return t.blocks.stamp[t.ids(x)[0]]
}

// latestOf returns latest of an element that may be none.
func (t *Tree) latestOf(x int32, what int) uint32 {
	if x == none {
		return 0
	}
	return t.nodes[x].latest[what]
}

// refresh computes latest of x from x and the two elements below it, and tells
// whether it has changed. It must be called from below upwards: an element reads the
// latest of those below it.
func (t *Tree) refresh(x int32) bool {
	nd := &t.nodes[x]
	var latest [2]uint32
	for what := range latest {
		latest[what] = max(t.stampOf(x, what), t.latestOf(nd.side[0], what), t.latestOf(nd.side[1], what))
	}
	changed := latest != nd.latest
	nd.latest = latest
	return changed
}

// refreshUpwards computes latest of x and of the elements above it, as far up as it
// changes. It stops where nothing changes, since an element higher up reads x only
// through that. It ends at the top of the treap, where above is negative.
func (t *Tree) refreshUpwards(x int32) {
	for x >= 0 && t.refresh(x) {
		x = t.nodes[x].above
	}
}

// replaceBelow makes x, which may be none, the element in the place of y below the
// element or the parent of y.
func (t *Tree) replaceBelow(x, y int32) {
	up := t.nodes[y].above
	switch {
	case up < 0:
		t.nodes[^up].children = x
	case t.nodes[up].side[0] == y:
		t.nodes[up].side[0] = x
	default:
		t.nodes[up].side[1] = x
	}
	if x != none {
		t.nodes[x].above = up
	}
}

// rotate makes x the element above the one that is above it now, and keeps the
// order of tokens.
func (t *Tree) rotate(x int32) {
	y := t.nodes[x].above
	s := 0
	if t.nodes[y].side[1] == x {
		s = 1
	}
	//	     y            x
	//	    / \          / \
	//	   x   c   ──▶  a   y        for x before y; else mirrored
	//	  / \              / \
	//	 a  inner       inner  c
	inner := t.nodes[x].side[1-s]
	t.replaceBelow(x, y)
	t.nodes[y].side[s] = inner
	if inner != none {
		t.nodes[inner].above = y
	}
	t.nodes[x].side[1-s] = y
	t.nodes[y].above = x
	// y is below x now, so it is refreshed first. What is above x is not refreshed
	// here: the elements below the place are the same as before.
	t.refresh(y)
	t.refresh(x)
}

// insert adds x to the children of parent. The order among siblings is that of first,
// and no two are equal: the caller has searched for the tokens before, or x is the
// only child.
func (t *Tree) insert(parent, x int32) {
	key := t.first(x)
	up, s := ^parent, 0
	for y := t.nodes[parent].children; y != none; y = t.nodes[y].side[s] {
		up, s = y, 0
		if t.compare(y, key) < 0 {
			s = 1
		}
	}
	// x begins at the bottom, as in a tree without weights, and is rotated up to its
	// weight.
	nd := &t.nodes[x]
	nd.above, nd.side, nd.weight, nd.head = up, [2]int32{none, none}, t.random(), key[0]
	if up < 0 {
		t.nodes[parent].children = x
	} else {
		t.nodes[up].side[s] = x
	}
	t.refresh(x)
	for t.nodes[x].above >= 0 && t.nodes[x].weight > t.nodes[t.nodes[x].above].weight {
		t.rotate(x)
	}
	t.refreshUpwards(t.nodes[x].above)
}

// remove removes x, a ghost, from its siblings. A ghost has no stamp that counts, so
// no latest above it changes. x goes down by rotations until nothing is below it. The
// element with the greater weight comes up each time, so the order of weights holds
// for all others.
func (t *Tree) remove(x int32) {
	for {
		a, b := t.nodes[x].side[0], t.nodes[x].side[1]
		if a == none && b == none {
			break
		}
		if a == none || b != none && t.nodes[b].weight > t.nodes[a].weight {
			a = b
		}
		t.rotate(a)
	}
	t.replaceBelow(none, x)
}

// replace makes y, which has got the first block of x, the element in the place of x.
// Only links and the place change. Weights are those of the place, so the treap has
// the same shape, and a split of a node with 100,000 siblings costs nothing for them.
func (t *Tree) replace(x, y int32) {
	t.replaceBelow(y, x)
	from, to := &t.nodes[x], &t.nodes[y]
	to.side, to.weight, to.latest, to.head = from.side, from.weight, from.latest, from.head
	from.side = [2]int32{none, none}
	for _, z := range to.side {
		if z != none {
			t.nodes[z].above = y
		}
	}
}

// random returns the weight of a new element: splitmix64 from a constant seed, so
// that every run builds the same treaps. The weights only keep the treap shallow:
// they decide the cost of a search, not its result.
func (t *Tree) random() uint32 {
	t.randomState += 0x9e3779b97f4a7c15
	z := t.randomState
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32((z ^ z>>31) >> 32)
}
