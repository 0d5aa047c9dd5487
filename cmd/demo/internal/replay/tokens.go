package replay

import (
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/messages"
)

// Token values are in two halves: identities below, tokens of one request above.
const (
	privateSpace = 1 << 30
	privateMask  = 1<<30 - 1
)

// mix scatters a number over 64 bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// appendBlock appends the first n tokens of a block of a trace.
func appendBlock(tokens []messages.Token, block int32, n int) []messages.Token {
	if n == 0 {
		return tokens
	}
	tokens = append(tokens, messages.Token(block))
	x := mix(uint64(block))
	for range n - 1 {
		x = x*6364136223846793005 + 1442695040888963407
		tokens = append(tokens, messages.Token(x>>33))
	}
	return tokens
}

// newRequest makes a request of a trace's, with the number that tells it from others:
// tokens for its prompt, appended to the given ones, and for its answer. size is the
// tokens of the trace's blocks.
func newRequest(t *trace.Request, number, size int, tokens []messages.Token) serve.Request {
	left := t.PromptTokens
	for _, block := range t.Blocks {
		tokens = appendBlock(tokens, block, min(size, left))
		left -= min(size, left)
	}
	known := len(tokens)
	for i := range left {
		tokens = append(tokens, private(number, i))
	}
	if len(tokens) == 0 {
		tokens = append(tokens, private(number, 0)) // nothing cannot be asked
	}
	tail := len(tokens)
	return serve.Request{
		Number: number, Tokens: tokens, Prompt: tail, Known: known, Answer: t.AnswerTokens,
		Sample:  func(i int) messages.Token { return private(number, tail+i) },
		Arrival: t.Arrival,
	}
}

// private is the token at an index behind the identified part of a request.
// Two requests differ from each other and from every block in the first one.
func private(request, index int) messages.Token {
	if index == 0 {
		return messages.Token(privateSpace + request&privateMask)
	}
	return messages.Token(privateSpace + mix(uint64(request)<<32^uint64(index))&privateMask)
}
