package scheduler

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

func TestSample(t *testing.T) {
	logits := []float32{0, 2, 1, 2, -1}
	assert.Equal(t, messages.Token(1), Sampling{}.sample(logits, nil), "the first of the largest")
	counts := map[messages.Token]int{}
	s := Sampling{Temperature: 1, Seed: 1}
	rng := s.source(0)
	for range 10_000 {
		counts[s.sample(logits, rng)]++
	}
	// e^0, e^2, e^1, e^2 and e^-1 of their sum, 18.86.
	for token, want := range map[messages.Token]float64{0: 530, 1: 3917, 2: 1441, 3: 3917, 4: 195} {
		assert.InDelta(t, want, counts[token], 200, "token %d", token)
	}
	s.TopP = 0.7 // tokens 1 and 3 have 0.78
	rng = s.source(0)
	for range 1000 {
		assert.Contains(t, []messages.Token{1, 3}, s.sample(logits, rng))
	}
	s.TopP = 1e-9
	assert.Equal(t, messages.Token(1), s.sample(logits, s.source(0)))
}

// The numbers of a choice depend on the seed and the choice.
func TestSources(t *testing.T) {
	s := Sampling{Temperature: 1, Seed: 7}
	first, second := s.source(1).Uint64(), s.source(1).Uint64()
	assert.Equal(t, first, second)
	assert.NotEqual(t, s.source(1).Uint64(), s.source(2).Uint64())
	assert.NotEqual(t, s.source(1).Uint64(), Sampling{Seed: 8}.source(1).Uint64())
}

func TestLookUp(t *testing.T) {
	text := []messages.Token{1, 2, 3, 4, 5, 9, 2, 3, 7, 1, 2, 3}
	assert.Equal(t, []messages.Token{4, 5}, lookUp(text, 2), "the longer match goes before the later one")
	assert.Equal(t, []messages.Token{7, 8, 2, 3}, lookUp(append(text[:9:9], 8, 2, 3), 9), "the last match")
	assert.Empty(t, lookUp([]messages.Token{1, 2, 3}, 4))
	assert.Empty(t, lookUp(text, 0))
	assert.Empty(t, lookUp(text, -1))
	assert.Empty(t, lookUp(nil, 4))
}
