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
// that stores nothing, that is lost, or that has beams, which are several paths.
func (f *requestFacts) of(s *sequence.Sequence, tokensPerBlock, computed, answer int) *protocol.RequestFacts {
	if s.IsLost() || !s.Stores() || s.Width() > 1 {
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
	r.Arrived, r.Answer = s.Arrived, answer
	// A sequence may end before its prompt is computed.
	r.Tokens = min(int(s.Prompt), len(tokens))
	r.Blocks, r.Prompt = len(tokens)/tokensPerBlock, r.Tokens/tokensPerBlock
	r.Signatures = appendSignatures(r.Signatures[:0], &s.Namespace, tokens, tokensPerBlock)
	return r
}

// signatureSamples is how many tokens of a block its signature depends on, beside the last
// one, and spanSamples how many of a span of several blocks. A signature only tells a policy which
// prefixes it has seen before, so two prefixes that differ in other tokens alone may have the
// same one; reading all tokens would cost as much as the match of a prompt.
const (
	signatureSamples = 4
	spanSamples      = 8
	sampleTokens     = 8 // a sample for so many tokens at most
)

// appendSignatures appends the signatures of the whole blocks of a request: a hash each over the namespace
// and samples of all tokens up to the end of its last block. None is 0.
func appendSignatures(list []uint64, space *messages.Namespace, tokens []messages.Token, tokensPerBlock int) []uint64 {
	span, blocks := protocol.SpanOf(tokensPerBlock), len(tokens)/tokensPerBlock
	list = slices.Grow(list, span.Signatures(blocks))
	h := hashString(hashString(hashString(0x9e3779b97f4a7c15, space.Salt), space.LoRA), space.Encoder)
	// The first blocks have signatures of their own.
	first := min(blocks, int(span)) * tokensPerBlock
	list, h = appendHashes(list, h, tokens[:first], tokensPerBlock, max(1, min(signatureSamples, tokensPerBlock/sampleTokens)))
	samples := signatureSamples
	if span > 1 {
		samples = spanSamples
	}
	list, _ = appendHashes(list, h, tokens[first:], tokensPerBlock*int(span), samples)
	return list
}

// appendHashes appends a hash for each whole run of so many tokens, of samples of the run and of what comes before,
// and returns the last one.
//
// The samples of a run are multiplied each by a number of its own, so that a processor does
// it for many at once, and only their sum waits for the run before.
func appendHashes(list []uint64, h uint64, tokens []messages.Token, length, samples int) ([]uint64, uint64) {
	step := max(1, length/samples)
	for len(tokens) >= length {
		run := tokens[:length]
		sum, factor := uint64(uint32(run[len(run)-1])), uint64(0x94d049bb133111eb)
		for i := 0; i < len(run); i += step {
			sum += uint64(uint32(run[i])) * factor
			factor += 0xd6e8feb86659fd92 // even, so the factor stays odd
		}
		h = mix(h ^ sum)
		list = append(list, h|1)
		tokens = tokens[length:]
	}
	return list, h
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
