package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// retainedPrefixes are the token prefixes of blocks that received this request's
// retention before a rewind took them away. Each ends at a block boundary, and none
// begins another. Forks share the list, so it is never changed in place.
type retainedPrefixes [][]messages.Token

// with adds a prefix and drops those that begin it.
func (l retainedPrefixes) with(tokens []messages.Token) retainedPrefixes {
	kept := make(retainedPrefixes, 0, len(l)+1)
	for _, known := range l {
		switch n := sharedTokens(known, tokens); {
		case n == len(tokens):
			return l
		case n < len(known):
			kept = append(kept, known)
		}
	}
	return append(kept, slices.Clone(tokens))
}

// blocks is the number of leading blocks of tokens that the list has.
func (l retainedPrefixes) blocks(tokens []messages.Token, tokensPerBlock int) BlockIndex {
	n := 0
	for _, known := range l {
		n = max(n, sharedTokens(known, tokens)/tokensPerBlock)
	}
	return BlockIndex(n)
}

// sharedTokens is the number of leading tokens that a and b have in common.
func sharedTokens(a, b []messages.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
