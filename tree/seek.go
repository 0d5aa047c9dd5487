package tree

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// child returns the block behind a spot that has exactly these tokens, or NoBlock. It
// costs O(log siblings) comparisons.
func (t *arena) child(s spot, tokens []messages.Token) protocol.BlockID {
	b := t.top(s)
	for b != protocol.NoBlock && compareTokens(t.tokensOf(b), tokens) != 0 {
		b = t.blocks[b].side[t.sideOf(b, tokens)]
	}
	return b
}

// nearest returns, among the blocks behind a spot that count, the one that shares the most
// leading tokens with query, at least one; among equals the one with the latest stamp. What
// begins with some tokens of query begins with fewer as well, so their number is found by
// bisection.
func (t *arena) nearest(s spot, query []messages.Token, what int) (protocol.BlockID, int) {
	found := protocol.NoBlock
	shared := sort.Search(len(query), func(n int) bool {
		b := t.newest(t.top(s), query[:n+1], what, protocol.NoBlock)
		if b != protocol.NoBlock {
			found = b
		}
		return b == protocol.NoBlock
	})
	return found, shared
}

// newest returns, among the siblings from x down that count and begin with prefix, the one with
// the latest stamp, or best if its stamp is later. Those that begin with prefix are a range. A
// sibling above which none is outside of it is entered only if the latest stamp is below it, so
// the search costs O(log² siblings).
func (t *arena) newest(
	x protocol.BlockID, prefix []messages.Token, what int, best protocol.BlockID,
) protocol.BlockID {
	if t.latestOf(x, what) <= t.counting(best, what) {
		return best
	}
	c := t.against(x, prefix)
	if c == 0 && t.counting(x, what) > t.counting(best, what) {
		best = x
	}
	side, first := t.blocks[x].side, 0
	if t.latestOf(side[1], what) > t.latestOf(side[0], what) {
		first = 1
	}
	for _, s := range [2]int{first, 1 - first} {
		if s == 0 && c >= 0 || s == 1 && c <= 0 {
			best = t.newest(side[s], prefix, what, best)
		}
	}
	return best
}

// against returns 0 if block b begins with prefix, a negative number if it is before those
// that do, else a positive one.
func (t *arena) against(b protocol.BlockID, prefix []messages.Token) int {
	key := t.tokensOf(b)
	return compareTokens(key[:min(len(key), len(prefix))], prefix)
}

// sideOf returns the side of sibling x on which a block with these tokens is.
func (t *arena) sideOf(x protocol.BlockID, tokens []messages.Token) int {
	if compareTokens(t.tokensOf(x), tokens) < 0 {
		return 1
	}
	return 0
}

// compareTokens is slices.Compare at the speed of a memory compare: blocks that are
// compared are mostly equal, and slices.Compare looks at each token.
func compareTokens(a, b []messages.Token) int {
	if len(a) == len(b) && asString(a) == asString(b) {
		return 0
	}
	return slices.Compare(a, b)
}

// asString returns tokens as a string of their memory. Tokens have no padding and no
// pointers, so equal memory is equal tokens. The string must not outlive the
// comparison, since tokens may change later.
func asString(s []messages.Token) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
