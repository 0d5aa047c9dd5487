package host

import (
	"encoding/binary"
	"math/bits"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Chain is the value that stands for a prefix: namespace, multimodal content
// and all tokens up to one.
type Chain uint64

// Odd constants without structure, the digits of well-known irrationals: what
// they are does not matter, that they differ does.
const (
	saltKey  = 0x9e3779b97f4a7c15 // golden ratio
	loraKey  = 0x6a09e667f3bcc909 // √2
	tokenKey = 0xbb67ae8584caa73b // √3
	coverKey = 0x3c6ef372fe94f82b // √5
	rowKey   = 0xa54ff53a5f1d36f1 // √7
	wordKey  = 0x510e527fade682d1 // √11
	stateKey = 0x9b05688c2b3e6c1f // √13
	rankKey  = 0x1f83d9abfb41bd6b // √17
)

// mix folds the 128-bit product of its arguments. Neither factor may be a
// constant zero; both are xored with a key by all callers.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// absorb adds a string, its length included, so that "ab","c" and "a","bc" differ.
func absorb(h uint64, s string, key uint64) uint64 {
	h = mix(h^key, uint64(len(s))^wordKey)
	for i := range len(s) {
		h = mix(h^key, uint64(s[i])^wordKey)
	}
	return h
}

// Root is the chain before the first token of a namespace.
func Root(ns messages.Namespace) Chain {
	h := absorb(saltKey, ns.Salt, saltKey)
	if ns.HasLoRA {
		h = absorb(h, ns.LoRA, loraKey)
	}
	if ns.Encoder != "" {
		h = absorb(h, ns.Encoder, rowKey)
	}
	if ns.Weights != "" {
		h = absorb(h, ns.Weights, wordKey)
	}
	return Chain(h)
}

// Next is the chain after one more token, which cover covers.
func (c Chain) Next(token messages.Token, cover messages.Cover) Chain {
	h := mix(uint64(c)^tokenKey, uint64(token)^wordKey)
	if cover.Covered {
		h = mix(h^coverKey, uint64(cover.Position)^wordKey)
		for i := 0; i < len(cover.Hash); i += 8 {
			h = mix(h^coverKey, binary.LittleEndian.Uint64(cover.Hash[i:])^wordKey)
		}
	}
	return Chain(h)
}

// Chains gives the chain after each token of a prompt. The items are valid:
// disjoint and inside the prompt.
func Chains(p messages.Prefix) []Chain {
	chains := make([]Chain, len(p.Tokens))
	covers := protocol.CoversOf(p.Multimodal, len(p.Tokens))
	at := Root(p.Namespace)
	for i, token := range p.Tokens {
		var cover messages.Cover
		if covers != nil {
			cover = covers[i]
		}
		at = at.Next(token, cover)
		chains[i] = at
	}
	return chains
}
