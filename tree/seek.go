package tree

import (
	"cmp"
	"unsafe"

	"github.com/kvactor/kvactor/messages"
)

// child returns the child of parent whose first block has exactly these tokens, or
// none. It costs O(log children) comparisons, most of them of the head alone.
func (t *siblings) child(parent int32, tokens []messages.Token) int32 {
	x, _ := t.childOrPlace(parent, tokens)
	return x
}

// childOrPlace is child, and if there is none, the place where it would be.
func (t *siblings) childOrPlace(parent int32, tokens []messages.Token) (x int32, at place) {
	at = place{above: ^parent}
	for x = t.elements[parent].children; x != none; x = t.elements[x].side[at.side] {
		c := t.compare(x, tokens)
		if c == 0 {
			return x, at
		}
		at = place{above: x, side: sideOf(c)}
	}
	return none, at
}

// lastUpTo returns the last child of a node whose first block is query or comes before
// it in the order of tokens, or none.
func (t *siblings) lastUpTo(parent int32, query []messages.Token) int32 {
	found := none
	for x := t.elements[parent].children; x != none; {
		if t.compare(x, query) <= 0 {
			found, x = x, t.elements[x].side[1]
		} else {
			x = t.elements[x].side[0]
		}
	}
	return found
}

// nearest returns, among the children of parent whose first block counts, the one
// that shares the most leading tokens with query, at least one; among equals the
// one with the latest stamp. Children that share a prefix are neighbours in token
// order, so the best is next to where query would be inserted, and its equals are a
// range around it: O(log children).
func (t *siblings) nearest(parent int32, query []messages.Token, what int) (x int32, shared int) {
	top := t.elements[parent].children
	// One neighbour on each side is enough to know how many tokens can be shared at
	// all.
	for _, y := range t.neighbours(top, query, what) {
		if y != none {
			shared = max(shared, firstDifference(t.first(y), query))
		}
	}
	if shared == 0 {
		return none, 0
	}
	// The latest of the equals is taken, as a match promises.
	return t.newest(top, query[:shared], what), shared
}

// neighbours returns the elements that count and are closest to query, from x down: the one
// before query and the one behind it, or twice the one that has its tokens. It walks down
// once. An element that does not count is passed, and the subtree on its side away from
// query is remembered as far, if anything counts there, by its top alone; a second walk in
// far finds the closest element. A walk back up would need a stack.
func (t *siblings) neighbours(x int32, query []messages.Token, what int) (found [2]int32) {
	far := [2]int32{none, none} // where the closest is, if found does not have it
	found = far
	pass := func(x int32, dir int) {
		if t.elements[x].own[what] != 0 {
			found[dir], far[dir] = x, none
		} else if y := t.elements[x].side[dir]; t.latestOf(y, what) != 0 {
			found[dir], far[dir] = none, y
		}
	}
	// latest 0 says that nothing from here down counts, so the search ends at once.
	for x != none && t.elements[x].latest[what] != 0 {
		c := t.compare(x, query)
		if c <= 0 {
			pass(x, 0)
		}
		if c >= 0 {
			pass(x, 1)
		}
		if c == 0 {
			break
		}
		x = t.elements[x].side[sideOf(c)]
	}
	for dir, x := range far {
		if x != none {
			found[dir] = t.outermost(x, what, 1-dir)
		}
	}
	return found
}

// outermost returns the last element that counts in the order towards dir, from x down,
// where some element counts.
func (t *siblings) outermost(x int32, what, dir int) int32 {
	for {
		if y := t.elements[x].side[dir]; t.latestOf(y, what) != 0 {
			x = y
		} else if t.elements[x].own[what] != 0 {
			return x
		} else {
			x = t.elements[x].side[1-dir]
		}
	}
}

// newest returns, among the elements that count and begin with prefix, the one with
// the latest stamp. The elements that begin with prefix are a range. Below the first
// of them that the search meets, the range has two edges, and every element between
// an edge and that first one is in whole subtrees, of which latest is the answer:
//
//	      x              x begins with prefix
//	    /   \
//	  y       y'         each edge: either y is outside, and the
//	 / \     / \         search goes inwards, or y and its inner
//	y   ▲   ▲   y'       subtree ▲ are inside
func (t *siblings) newest(x int32, prefix []messages.Token, what int) int32 {
	for c := t.against(x, prefix); c != 0; c = t.against(x, prefix) {
		x = t.elements[x].side[sideOf(c)]
	}
	best, stamp := x, t.elements[x].own[what]
	for dir := range 2 {
		for y := t.elements[x].side[dir]; y != none; {
			if t.against(y, prefix) != 0 {
				y = t.elements[y].side[1-dir]
				continue
			}
			if s := t.elements[y].own[what]; s > stamp {
				best, stamp = y, s
			}
			if z := t.elements[y].side[1-dir]; t.latestOf(z, what) > stamp {
				best, stamp = z, t.elements[z].latest[what]
			}
			y = t.elements[y].side[dir]
		}
	}
	// Stamps of siblings may be equal only within one claim or store; the side before
	// is tried first, so the choice is the same in each run.
	for t.elements[best].own[what] != stamp { // best is the top of the part that has it
		y := t.elements[best].side[0]
		if t.latestOf(y, what) != stamp {
			y = t.elements[best].side[1]
		}
		best = y
	}
	return best
}

// childrenOf adds the children of x to list, the last in order first: that is the
// order in which a stack is filled.
func (t *siblings) childrenOf(list []int32, x int32) []int32 {
	return t.childrenWith(list, t.elements[x].children, nil)
}

// childrenWith adds the elements from x down whose first block begins with prefix
// to list, the last in order first. It recurses as deep as the treap, which is
// logarithmic.
func (t *siblings) childrenWith(list []int32, x int32, prefix []messages.Token) []int32 {
	if x == none {
		return list
	}
	c := t.against(x, prefix)
	// Elements that begin with prefix are a range. x is before it (c < 0), in it or
	// behind it, and only the sides that the range reaches are searched.
	if c <= 0 {
		list = t.childrenWith(list, t.elements[x].side[1], prefix)
	}
	if c == 0 {
		list = append(list, x)
	}
	if c >= 0 {
		list = t.childrenWith(list, t.elements[x].side[0], prefix)
	}
	return list
}

// against returns 0 if the first block of x begins with prefix, a negative number if
// x is before those that do, else a positive one. The head decides most comparisons:
// it lies in the node, the tokens do not.
func (t *siblings) against(x int32, prefix []messages.Token) int {
	if len(prefix) > 0 && t.elements[x].head != prefix[0] {
		return cmp.Compare(t.elements[x].head, prefix[0])
	}
	key := t.first(x)
	return compareTokens(key[:min(len(key), len(prefix))], prefix)
}

// compare orders the first block of an element and tokens.
func (t *siblings) compare(x int32, tokens []messages.Token) int {
	if len(tokens) > 0 && t.elements[x].head != tokens[0] {
		return cmp.Compare(t.elements[x].head, tokens[0])
	}
	return compareTokens(t.first(x), tokens)
}

// compareTokens is slices.Compare at the speed of a memory compare: blocks that are
// compared are mostly equal, and slices.Compare looks at each token.
func compareTokens(a, b []messages.Token) int {
	i := firstDifference(a, b)
	if i < len(a) && i < len(b) {
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

// sideOf returns the side of an element on which to continue a search whose
// comparison gave c.
func sideOf(c int) int32 {
	if c < 0 {
		return 1
	}
	return 0
}

// compareChunk is how many tokens are compared at once while they are equal: 1 KiB,
// where the memory compare has reached its full speed. The comparison tells only
// whether memory is equal, so the chunk with the difference is compared again in
// smaller steps.
const compareChunk = 256

// firstDifference returns the number of leading tokens that a and b share.
func firstDifference(a, b []messages.Token) int {
	n := min(len(a), len(b))
	i := 0
	// A chunk that differs, or that would pass the end, is tried again at a quarter
	// of its size: 256, 64, 16. The loop over tokens does the rest.
	for step := compareChunk; step >= 8; {
		if i+step <= n && same(a[i:i+step], b[i:i+step]) {
			i += step
			continue
		}
		step /= 4
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// same compares tokens as memory: the comparison of strings in the runtime is a
// vector loop, a loop over tokens is not.
func same(a, b []messages.Token) bool { return asString(a) == asString(b) }

// asString returns tokens as a string of their memory. Tokens have no padding and no
// pointers, so equal memory is equal tokens. The string must not outlive the
// comparison, since tokens may change later.
func asString(s []messages.Token) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
