package coordinator

import "github.com/kvactor/kvactor/messages"

// signTokens is the number of tokens that disjunction takes at a time.
const signTokens = 32

// disjunction is the bitwise or of n tokens, a multiple of signTokens. It is implemented in
// assembly: four tokens in an instruction. In Go it is two in a word, which takes twice
// the time of a prompt that the processor has in its second cache.
//
//go:noescape
func disjunction(first *messages.Token, n int) messages.Token
