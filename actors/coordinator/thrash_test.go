package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// distinct is the k-th of prompts of so many tokens that differ in all of them.
func distinct(k, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(10_000*k + i)
	}
	return tokens
}

// A thrash remembers a prefix, to its last signature, until two to three times what the cache
// holds has come.
func TestThrashRemembersPrefixes(t *testing.T) {
	h := newThrash(&Config{
		Pools:          []windows.Pool{{TokensPerBlock: 16}},
		Counts:         []windows.PageCounts{{Primary: 200, Secondary: 56}}, // 4,096 tokens
		TokensPerBlock: 16, Reuse: true,
	})
	space := &messages.Namespace{}
	known := func(tokens []messages.Token) int {
		_, long := h.known(space, tokens, 0)
		return long
	}
	prompt := distinct(0, 700)
	h.note(space, prompt)
	assert.Equal(t, 688, known(prompt), "all whole blocks")
	assert.Equal(t, 18*16, known(prompt[:340]), "blocks 18 and 23 have signatures, 21 has none")
	other := append(distinct(0, 300), distinct(1, 400)...)
	assert.Equal(t, 18*16, known(other), "what both begin with")
	_, long := h.known(&messages.Namespace{Salt: "other"}, prompt, 0)
	assert.Zero(t, long)
	for k := range 2 * 4096 / 512 {
		h.note(space, distinct(100+k, 512))
		h.note(space, distinct(100+k, 512)) // the same once more is nothing that comes
		assert.Equal(t, 688, known(prompt), k)
	}
	for k := range 2 * 4096 / 512 {
		h.note(space, distinct(200+k, 512))
	}
	assert.Zero(t, known(prompt))
	assert.Equal(t, 512, known(distinct(215, 512)))
	assert.Zero(t, testing.AllocsPerRun(10, func() { h.note(space, prompt) }))
	h.forget()
	assert.Zero(t, known(distinct(215, 512)))
}

// A thrash follows the pools when they grow.
func TestThrashOfPoolsThatGrow(t *testing.T) {
	c := &Config{
		Pools: []windows.Pool{{TokensPerBlock: 4}}, Counts: []windows.PageCounts{{Primary: 16}},
		TokensPerBlock: 4, Reuse: true,
	}
	h := newThrash(c)
	known := func() (n int) {
		for k := range 12 {
			h.note(&messages.Namespace{}, distinct(k, 256))
		}
		for k := range 12 {
			_, long := h.known(&messages.Namespace{}, distinct(k, 256), 0)
			n += long
		}
		return n
	}
	assert.Less(t, known(), 1000)
	c.Counts[0].Primary = 512
	h.resize(c)
	assert.Equal(t, 12*256, known())
}

// Where a model has states, a thrash knows the ends of prefixes that had a checkpoint, to the
// block, and no others.
func TestThrashRemembersStates(t *testing.T) {
	h, space := newThrash(&Config{
		Pools: []windows.Pool{
			{TokensPerBlock: 4},
			{Kind: windows.KindState, StateBytes: 32, Checkpoints: true, TokensPerBlock: 4},
		},
		Counts:         []windows.PageCounts{{Primary: 64}, {Primary: 8}},
		TokensPerBlock: 4, Reuse: true,
	}), &messages.Namespace{}
	prompt := distinct(0, 40)
	known := func(most int) [2]int {
		short, long := h.known(space, prompt, most)
		return [2]int{short, long}
	}
	h.note(space, prompt[:12])
	h.note(space, prompt[:30]) // ends in a block: known to its begin
	assert.Equal(t, [2]int{28, 28}, known(40))
	assert.Equal(t, [2]int{12, 28}, known(27))
	assert.Equal(t, [2]int{0, 28}, known(8))
	_, long := h.known(space, append([]messages.Token{7}, prompt...), 40)
	assert.Zero(t, long)
	for k := range 56 {
		h.note(space, distinct(k+1, 400))
	}
	assert.Equal(t, [2]int{0, 0}, known(40), "7 times as many as the pool holds")
	h.note(space, prompt)
	h.forget()
	assert.Equal(t, [2]int{0, 0}, known(40))
}
