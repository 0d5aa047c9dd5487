package pool

// A list keeps the pages that arrived out of order in a pairing heap: a tree in which
// no page is evicted before its parent, and each page has its children in a list. It
// is linked through the pages' records. Heaps in arrays would need 101 arrays for
// each order, each of which may grow to the size of the pool.
//
//	parent ── child ▶ a ── next ▶ b ── next ▶ c
//	                  a.prev = parent, b.prev = a, c.prev = b

// meld merges two heaps, either of which may be none, and returns the root. Roots
// have neither prev nor next.
//
// A state is not set here: the pages of a heap have the state heaped already.
func (o *order) meld(a, b int32) int32 {
	if a == none {
		return b
	}
	if b == none {
		return a
	}
	if o.before(b, a) {
		a, b = b, a
	}
	x, y := &o.pages[a], &o.pages[b]
	y.prev, y.next = a, x.child
	if x.child != none {
		o.pages[x.child].prev = b
	}
	x.child = b
	return a
}

// cut removes page i from the heap with the given root and returns the new root.
//
// The links of page i itself are left as they were; the caller overwrites them.
func (o *order) cut(root, i int32) int32 {
	g := &o.pages[i]
	below := o.meldAll(g.child)
	if i == root {
		return below
	}
	if parent := &o.pages[g.prev]; parent.child == i {
		parent.child = g.next
	} else {
		parent.next = g.next // page i has a left sibling
	}
	if g.next != none {
		o.pages[g.next].prev = g.prev
	}
	return o.meld(root, below)
}

// meldAll merges a list of siblings: in pairs from the left, then the pairs from the
// right, which is what bounds the amortised cost by O(log n). The pairs wait in a
// stack that is linked through next.
//
// Recursion was rejected: a node may have as many children as the pool has pages, when all
// of them arrived out of order.
func (o *order) meldAll(first int32) int32 {
	stack := none
	for first != none {
		a := first
		b := o.pages[a].next
		first = none
		if b != none {
			first = o.pages[b].next
			o.pages[b].prev, o.pages[b].next = none, none
		}
		o.pages[a].prev, o.pages[a].next = none, none
		pair := o.meld(a, b)
		o.pages[pair].next = stack
		stack = pair
	}
	root := none
	for stack != none {
		pair := stack
		stack = o.pages[pair].next
		o.pages[pair].next = none
		root = o.meld(root, pair)
	}
	return root
}
