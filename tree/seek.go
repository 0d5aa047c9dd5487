package tree

import (
	"slices"
	"unsafe"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// child returns the block behind a spot that has exactly these tokens, or NoBlock. It
// costs O(log siblings) comparisons.
func (t *arena) child(s spot, tokens []messages.Token) protocol.BlockID {
	b, _ := t.childOrPlace(s, tokens)
	return b
}

// childOrPlace is child, and if there is protocol.NoBlock, the place where it would be.
func (t *arena) childOrPlace(s spot, tokens []messages.Token) (b protocol.BlockID, at place) {
	at = place{spot: s, above: protocol.NoBlock}
	for b = t.top(s); b != protocol.NoBlock; b = t.blocks[b].side[at.side] {
		c := compareTokens(t.tokensOf(b), tokens)
		if c == 0 {
			return b, at
		}
		at.above, at.side = b, sideOf(c)
	}
	return protocol.NoBlock, at
}

// lastUpTo returns the last block behind a spot that is query or comes before
// it in the order of tokens, or protocol.NoBlock.
func (t *arena) lastUpTo(s spot, query []messages.Token) protocol.BlockID {
	found := protocol.NoBlock
	for x := t.top(s); x != protocol.NoBlock; {
		if compareTokens(t.tokensOf(x), query) <= 0 {
			found, x = x, t.blocks[x].side[1]
		} else {
			x = t.blocks[x].side[0]
		}
	}
	return found
}

// nearest returns, among the blocks behind a spot that count, the one
// that shares the most leading tokens with query, at least one; among equals the
// one with the latest stamp. Children that share a prefix are neighbours in token
// order, so the best is next to where query would be inserted, and its equals are a
// range around it: O(log children).
func (t *arena) nearest(s spot, query []messages.Token, what int) (x protocol.BlockID, shared int) {
	top := t.top(s)
	// One neighbour on each side is enough to know how many tokens can be shared at
	// all.
	for _, y := range t.neighbours(top, query, what) {
		if y != protocol.NoBlock {
			shared = max(shared, firstDifference(t.tokensOf(y), query))
		}
	}
	if shared == 0 {
		return protocol.NoBlock, 0
	}
	// The latest of the equals is taken, as a match promises.
	return t.newest(top, query[:shared], what), shared
}

// neighbours returns the siblings that count and are closest to query, from x down: the one
// before query and the one behind it, or twice the one that has its tokens. It walks down
// once. An sibling that does not count is passed, and the subtree on its side away from
// query is remembered as far, if anything counts there, by its top alone; a second walk in
// far finds the closest sibling. A walk back up would need a stack.
func (t *arena) neighbours(
	x protocol.BlockID, query []messages.Token, what int,
) (found [2]protocol.BlockID) {
	far := unlinked // where the closest is, if found does not have it
	found = far
	pass := func(x protocol.BlockID, dir int) {
		if t.own(x)[what] != 0 {
			found[dir], far[dir] = x, protocol.NoBlock
		} else if y := t.blocks[x].side[dir]; t.latestOf(y, what) != 0 {
			found[dir], far[dir] = protocol.NoBlock, y
		}
	}
	// latest 0 says that nothing from here down counts, so the search ends at once.
	for x != protocol.NoBlock && t.blocks[x].latest[what] != 0 {
		c := compareTokens(t.tokensOf(x), query)
		if c <= 0 {
			pass(x, 0)
		}
		if c >= 0 {
			pass(x, 1)
		}
		if c == 0 {
			break
		}
		x = t.blocks[x].side[sideOf(c)]
	}
	for dir, x := range far {
		if x != protocol.NoBlock {
			found[dir] = t.outermost(x, what, 1-dir)
		}
	}
	return found
}

// outermost returns the last sibling that counts in the order towards dir, from x down,
// where some sibling counts.
func (t *arena) outermost(x protocol.BlockID, what, dir int) protocol.BlockID {
	for {
		if y := t.blocks[x].side[dir]; t.latestOf(y, what) != 0 {
			x = y
		} else if t.own(x)[what] != 0 {
			return x
		} else {
			x = t.blocks[x].side[1-dir]
		}
	}
}

// newest returns, among the siblings that count and begin with prefix, the one with
// the latest stamp. The siblings that begin with prefix are a range. Below the first
// of them that the search meets, the range has two edges, and every sibling between
// an edge and that first one is in whole subtrees, of which latest is the answer:
//
//	      x              x begins with prefix
//	    /   \
//	  y       y'         each edge: either y is outside, and the
//	 / \     / \         search goes inwards, or y and its inner
//	y   ▲   ▲   y'       subtree ▲ are inside
func (t *arena) newest(x protocol.BlockID, prefix []messages.Token, what int) protocol.BlockID {
	for c := t.against(x, prefix); c != 0; c = t.against(x, prefix) {
		x = t.blocks[x].side[sideOf(c)]
	}
	best, stamp := x, t.own(x)[what]
	for dir := range 2 {
		for y := t.blocks[x].side[dir]; y != protocol.NoBlock; {
			if t.against(y, prefix) != 0 {
				y = t.blocks[y].side[1-dir]
				continue
			}
			if s := t.own(y)[what]; s > stamp {
				best, stamp = y, s
			}
			if z := t.blocks[y].side[1-dir]; t.latestOf(z, what) > stamp {
				best, stamp = z, t.blocks[z].latest[what]
			}
			y = t.blocks[y].side[dir]
		}
	}
	// Stamps of siblings may be equal only within one claim or store; the side before
	// is tried first, so the choice is the same in each run.
	for t.own(best)[what] != stamp { // best is the top of the part that has it
		y := t.blocks[best].side[0]
		if t.latestOf(y, what) != stamp {
			y = t.blocks[best].side[1]
		}
		best = y
	}
	return best
}

// against returns 0 if block b begins with prefix, a negative number if it is before those
// that do, else a positive one.
func (t *arena) against(b protocol.BlockID, prefix []messages.Token) int {
	key := t.tokensOf(b)
	return compareTokens(key[:min(len(key), len(prefix))], prefix)
}

// compareTokens is slices.Compare at the speed of a memory compare: blocks that are
// compared are mostly equal, and slices.Compare looks at each token.
func compareTokens(a, b []messages.Token) int {
	if len(a) == len(b) && asString(a) == asString(b) {
		return 0
	}
	return slices.Compare(a, b)
}

// sideOf returns the side of an sibling on which to continue a search whose
// comparison gave c.
func sideOf(c int) int {
	if c < 0 {
		return 1
	}
	return 0
}

// firstDifference returns the number of leading tokens that a and b share.
func firstDifference(a, b []messages.Token) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}

// asString returns tokens as a string of their memory. Tokens have no padding and no
// pointers, so equal memory is equal tokens. The string must not outlive the
// comparison, since tokens may change later.
func asString(s []messages.Token) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
