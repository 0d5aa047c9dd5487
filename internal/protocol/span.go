package protocol

// Span is how many blocks of a request share one signature. A policy needs to know what two requests have
// in common, but not to the block: signatures are a third of what it costs.
//
// The first blocks have one each, so that short prompts are known as well. With a span of 4:
//
//	block      0 1 2 3 4 5 6 7 8 9 10 11 12 …
//	signature  0 1 2 3       4         5
type Span int

// spanTokens is what one signature adds, unless a block is longer. On the traces of docs/policies.md 64, 128 and 256
// tokens give the same hit rates.
const spanTokens = 256

// SpanOf is the span of blocks of so many tokens.
func SpanOf(tokensPerBlock int) Span { return Span(max(1, spanTokens/tokensPerBlock)) }

// Signatures is how many signatures the first blocks of a request have.
func (s Span) Signatures(blocks int) int {
	if blocks <= int(s) {
		return blocks
	}
	return int(s) + blocks/int(s) - 1
}

// Block is the block that a signature of a request ends with.
func (s Span) Block(signature int) int {
	if signature < int(s) {
		return signature
	}
	return (signature-int(s)+2)*int(s) - 1
}
