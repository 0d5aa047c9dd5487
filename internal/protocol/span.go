package protocol

import "math/bits"

// Span is how many blocks of a request share one signature. A policy needs to know what two
// requests have in common, but not to the block: signatures are a third of what it costs.
//
// Some of the first blocks have one each, so that short prompts are known as well: after 1, 2, 4
// and so on. With a span of 8:
//
//	block      0 1 2 3 4 5 6 7 8 … 15 … 23 …
//	signature  0 1   2       3      4    5
type Span int

// spanTokens is what one signature adds, unless a block is longer. On the traces of
// docs/policies.md 64, 128 and 256 tokens give the same hit rates.
const spanTokens = 256

// SpanOf is the span of blocks of so many tokens.
func SpanOf(tokensPerBlock int) Span { return Span(max(1, spanTokens/tokensPerBlock)) }

// Signatures is how many signatures the first blocks of a request have.
func (s Span) Signatures(blocks int) int {
	if blocks < int(s) {
		return bits.Len(uint(blocks))
	}
	return s.First() + blocks/int(s)
}

// Block is the block that a signature of a request ends with.
func (s Span) Block(signature int) int {
	if signature < s.First() {
		return 1<<signature - 1
	}
	return (signature-s.First()+1)*int(s) - 1
}

// First is how many signatures end within the first span.
func (s Span) First() int { return bits.Len(uint(s - 1)) }
