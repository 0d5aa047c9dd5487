package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// noteFacts describes a sequence that ends, for pools whose eviction policy learns from requests.
// computed is the number of its computed tokens. answer is the length of the answer as the host
// gives it; 0: the tokens behind the prompt. noteFacts returns nil for a sequence whose path says
// nothing: one that stores nothing, is lost, or has multimodal items or beams.
func (r *release) noteFacts(s *sequence.Sequence, computed, answer int) *protocol.RequestFacts {
	if s.IsLost() || s.NoStore || s.Width() > 1 || sequence.HoldsSymbols(s) {
		return nil
	}
	at, tokensPerBlock := lengthen(&r.facts), r.config.TokensPerBlock
	if *at == nil {
		*at = &protocol.RequestFacts{}
	}
	f := *at
	// What is not computed is not stored, so no later request can find it.
	tokens := s.Tokens(0)[:computed]
	if answer == 0 {
		answer = int(s.Length() - s.Prompt)
	}
	f.Arrived, f.Found, f.Answer = s.Arrived, int(s.ReusedBlocks()), answer
	// A sequence may end before its prompt is computed.
	f.Tokens = min(int(s.Prompt), len(tokens))
	f.Blocks, f.Prompt = len(tokens)/tokensPerBlock, f.Tokens/tokensPerBlock
	f.Signatures = appendSignatures(f.Signatures[:0], &s.Namespace, tokens, tokensPerBlock)
	return f
}

// appendSignatures appends the signatures of a request: a hash each over the namespace and all
// tokens up to an end. The weights are left out, since hosts ask for the same prefixes with the
// next ones.
func appendSignatures(
	list []uint64, space *messages.Namespace, tokens []messages.Token, tokensPerBlock int,
) []uint64 {
	named := *space
	named.Weights = ""
	span, h, begin := protocol.SpanOf(tokensPerBlock), signatureOf(&named), 0
	for k := range span.Signatures(len(tokens) / tokensPerBlock) {
		end := (span.Block(k) + 1) * tokensPerBlock
		for _, token := range tokens[begin:end] {
			h = multiplied(uint64(uint32(token))^odd, h)
		}
		h, begin = mix(h)|1<<63, end // no signature is 0
		list = append(list, h)
	}
	return list
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
