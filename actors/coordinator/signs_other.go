//go:build !amd64

package coordinator

import (
	"unsafe"

	"github.com/kvactor/kvactor/messages"
)

// signTokens is the number of tokens that disjunction takes at a time.
const signTokens = 16

// disjunction is the bitwise or of n tokens, a multiple of signTokens: two in a word and
// sixteen at a time, in four sums that do not wait for each other.
func disjunction(first *messages.Token, n int) messages.Token {
	var a, b, c, d uint64
	for rest := unsafe.Slice(first, n); len(rest) >= signTokens; rest = rest[signTokens:] {
		r := (*[8]uint64)(unsafe.Pointer((*[signTokens]messages.Token)(rest)))
		a |= r[0] | r[1]
		b |= r[2] | r[3]
		c |= r[4] | r[5]
		d |= r[6] | r[7]
	}
	all := a | b | c | d
	// The order of the two tokens in a word makes no difference to their disjunction.
	return messages.Token(all) | messages.Token(all>>32)
}
