package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// requestFacts makes the facts of released sequences for pools whose eviction policy
// learns from requests. The records are used again: those of one wave are lent to the
// pools until the wave is answered. Used says how many of the list are lent.
type requestFacts struct {
	list []*protocol.RequestFacts
	used int
}

// reset takes the records back.
func (f *requestFacts) reset() { f.used = 0 }

// of describes a sequence that ends with so many computed tokens. The answer is what the host
// says of it, or else the tokens behind the prompt. It returns nil for a sequence whose path says nothing: one
// that stores nothing, that is lost, that has multimodal items, or that has beams, which are
// several paths.
func (f *requestFacts) of(s *sequence.Sequence, tokensPerBlock, computed, answer int) *protocol.RequestFacts {
	if s.IsLost() || !s.Stores() || s.Width() > 1 || sequence.HoldsSymbols(s) {
		return nil
	}
	if f.used == len(f.list) {
		f.list = append(f.list, &protocol.RequestFacts{})
	}
	r := f.list[f.used]
	f.used++
	// What is not computed is not stored, so no later request can find it.
	tokens := s.Tokens(0)[:computed]
	if answer == 0 {
		answer = int(s.Length() - s.Prompt)
	}
	r.Arrived, r.Found, r.Answer = s.Arrived, int(s.ReusedBlocks()), answer
	// A sequence may end before its prompt is computed.
	r.Tokens = min(int(s.Prompt), len(tokens))
	r.Blocks, r.Prompt = len(tokens)/tokensPerBlock, r.Tokens/tokensPerBlock
	r.Signatures = appendSignatures(r.Signatures[:0], &s.Namespace, tokens, tokensPerBlock)
	return r
}

// signatureSamples is how many tokens a signature depends on beside those of the signature before and the last token. A signature
// only tells a policy which prefixes it has seen before, so two prefixes that differ in other tokens alone may have the
// same one; reading all tokens would cost as much as the match of a prompt. Most prompts that differ at one place do
// so behind it too, since what is inserted shifts all else.
const signatureSamples = 2

// appendSignatures appends the signatures of a request: a hash each over the namespace and samples of all tokens
// up to the end of its last block. None is 0.
//
// The samples of a signature are multiplied each by a number of its own, so that a processor does
// it for many at once, and only their sum waits for the signature before.
func appendSignatures(list []uint64, space *messages.Namespace, tokens []messages.Token, tokensPerBlock int) []uint64 {
	span, blocks := protocol.SpanOf(tokensPerBlock), len(tokens)/tokensPerBlock
	n := span.Signatures(blocks)
	list = slices.Grow(list, n)
	h := hashString(hashString(hashString(0x9e3779b97f4a7c15, space.Salt), space.LoRA), space.Encoder)
	begin := 0
	for k := range n {
		end := (span.Block(k) + 1) * tokensPerBlock
		h = mix(h ^ sampled(tokens[begin:end]))
		list = append(list, h|1)
		begin = end
	}
	return list
}

// sampled is a sum of samples of tokens.
func sampled(tokens []messages.Token) uint64 {
	sum, factor := uint64(uint32(tokens[len(tokens)-1])), uint64(0x94d049bb133111eb)
	for i := 0; i < len(tokens); i += max(1, len(tokens)/signatureSamples) {
		sum += uint64(uint32(tokens[i])) * factor
		factor += 0xd6e8feb86659fd92 // even, so the factor stays odd
	}
	return sum
}

func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = mix(h ^ uint64(s[i]))
	}
	return mix(h ^ uint64(len(s))<<32)
}

// mix is a step of a multiplicative hash.
func mix(h uint64) uint64 {
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>29
}
