package coordinator

import "github.com/kvactor/kvactor/messages"

// signTokens is the number of tokens that disjunction takes at a time.
const signTokens = 32

// disjunction is the bitwise or of n tokens, a multiple of signTokens. It is implemented in
// assembly: eight tokens in an instruction where the processor has AVX2, else four. In Go it
// is two in a word, which takes three times as long for a prompt that the processor has in
// its second cache; AVX2 reads that at its full speed.
func disjunction(first *messages.Token, n int) messages.Token {
	if avx2 {
		return disjunctionAVX2(first, n)
	}
	return disjunctionSSE2(first, n)
}

// avx2 tells whether the processor has AVX2 and the system saves its registers.
var avx2 = hasAVX2()

func hasAVX2() bool

//go:noescape
func disjunctionAVX2(first *messages.Token, n int) messages.Token

//go:noescape
func disjunctionSSE2(first *messages.Token, n int) messages.Token
