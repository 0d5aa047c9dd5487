package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// settled is what a sequence had rewound of its blocks that have had its request's
// retention: a request sets priority and timer of a block once, also if it comes
// to the same tokens again. Each entry is the sequence's tokens up to the end of
// such blocks, as they were before a rewind; none begins another.
type settled [][]messages.Token

// with adds an entry; the list that forks share stays as it is.
func (l settled) with(tokens []messages.Token) settled {
	kept := make(settled, 0, len(l)+1)
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

// blocks is how many leading blocks of tokens the list knows.
func (l settled) blocks(tokens []messages.Token, tokensPerBlock int) int {
	n := 0
	for _, known := range l {
		n = max(n, sharedTokens(known, tokens)/tokensPerBlock)
	}
	return n
}

// sharedTokens is the number of leading tokens that a and b have in common.
func sharedTokens(a, b []messages.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
