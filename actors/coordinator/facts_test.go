package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

// TestSignaturesNamePrefixes: equal prefixes have equal signatures, and prefixes that
// differ in a sampled token, in their namespace or in what comes before have not.
func TestSignaturesNamePrefixes(t *testing.T) {
	tokens := make([]messages.Token, 70)
	for i := range tokens {
		tokens[i] = messages.Token(i * i)
	}
	of := func(space messages.Namespace, tokens []messages.Token) []uint64 {
		return appendSignatures(nil, &space, tokens, 16)
	}
	all := of(messages.Namespace{}, tokens)
	assert.Len(t, all, 4, "whole blocks only")
	assert.NotContains(t, all, uint64(0))
	assert.Equal(t, all[:2], of(messages.Namespace{}, tokens[:40]))
	other := append([]messages.Token{7}, tokens[1:]...)
	salted := of(messages.Namespace{Salt: "a"}, tokens)
	for i, s := range of(messages.Namespace{}, other) {
		assert.NotEqual(t, all[i], s)
		assert.NotEqual(t, all[i], salted[i])
	}
	assert.NotEqual(t, of(messages.Namespace{LoRA: "a"}, tokens), salted)
	assert.Len(t, appendSignatures(nil, &messages.Namespace{}, tokens[:7], 2), 3, "blocks shorter than the samples")
}
