package scheduler

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/messages"
)

func TestSample(t *testing.T) {
	logits := []float32{0, 2, 1, 2, -1}
	assert.Equal(t, messages.Token(1), new(Sampling).sample(logits, nil, past{}),
		"the first of the largest")
	counts := map[messages.Token]int{}
	s := Sampling{Temperature: 1, Seed: 1}
	rng := s.source(0)
	for range 10_000 {
		counts[s.sample(logits, rng, past{})]++
	}
	// e^0, e^2, e^1, e^2 and e^-1 of their sum, 18.86.
	for token, want := range map[messages.Token]float64{0: 530, 1: 3917, 2: 1441, 3: 3917, 4: 195} {
		assert.InDelta(t, want, counts[token], 200, "token %d", token)
	}
	s.TopP = 0.7 // tokens 1 and 3 have 0.78
	rng = s.source(0)
	for range 1000 {
		assert.Contains(t, []messages.Token{1, 3}, s.sample(logits, rng, past{}))
	}
	s.TopP = 1e-9
	assert.Equal(t, messages.Token(1), s.sample(logits, s.source(0), past{}))
}

// Bias and penalties change the logits as vLLM does, and not those of the caller.
func TestAdjust(t *testing.T) {
	logits := []float32{0, 2, 1, 2, -1}
	before := past{prompt: []messages.Token{1}, generated: []messages.Token{2, 2, 4}}
	for want, s := range map[[5]float32]Sampling{
		{0, 2, 0, 2, -1.5}:  {FrequencyPenalty: 0.5},
		{0, 2, .5, 2, -1.5}: {PresencePenalty: 0.5},
		{0, 1, .5, 2, -2}:   {RepetitionPenalty: 2},
		{3, 2, 1, -98, -1}:  {Bias: map[messages.Token]float64{0: 3, 3: -100}},
		// The penalty of repetitions comes after the bias and before the others.
		{0, 2, 1, 2, -1}: {RepetitionPenalty: 2, PresencePenalty: -1, FrequencyPenalty: 0.25,
			Bias: map[messages.Token]float64{1: 2, 2: 0, 4: 0.5}},
	} {
		got := s.adjust(logits, before)
		if s.Bias[1] == 2 {
			assert.InDeltaSlice(t, []float32{0, 2, 1, 2, -.25}, got, 1e-6)
			continue
		}
		assert.InDeltaSlice(t, want[:], got, 1e-6)
	}
	assert.Equal(t, []float32{0, 2, 1, 2, -1}, logits)
	before.banned = map[messages.Token]bool{1: true, 3: true}
	assert.Equal(t, messages.Token(2), new(Sampling).sample(logits, nil, before))
}

// What TopK and MinP leave out is never chosen.
func TestLimits(t *testing.T) {
	logits := []float32{0, 2, 1, 2, -1}
	for _, c := range []struct {
		s    Sampling
		want []messages.Token
	}{
		{Sampling{Temperature: 2, TopK: 1}, []messages.Token{1}},
		{Sampling{Temperature: 2, TopK: 2}, []messages.Token{1, 3}},
		{Sampling{Temperature: 2, TopK: 99, MinP: 0.5}, []messages.Token{1, 3, 2}}, // token 2 has e^-½
		{Sampling{Temperature: 1, MinP: 0.5}, []messages.Token{1, 3}},
		// of the three, not of all
		{Sampling{Temperature: 2, TopK: 3, TopP: 0.5}, []messages.Token{1, 3}},
	} {
		rng, seen := c.s.source(0), map[messages.Token]bool{}
		for range 1000 {
			seen[c.s.sample(logits, rng, past{})] = true
		}
		for _, token := range c.want {
			assert.True(t, seen[token], "%+v", c)
		}
		assert.Len(t, seen, len(c.want), "%+v", c)
	}
}

// The numbers of a choice depend on the seed and the choice.
func TestSources(t *testing.T) {
	s := Sampling{Temperature: 1, Seed: 7}
	first, second := s.source(1).Uint64(), s.source(1).Uint64()
	assert.Equal(t, first, second)
	assert.NotEqual(t, s.source(1).Uint64(), s.source(2).Uint64())
	assert.NotEqual(t, s.source(1).Uint64(), (&Sampling{Seed: 8}).source(1).Uint64())
}

func TestLookUp(t *testing.T) {
	text := []messages.Token{1, 2, 3, 4, 5, 9, 2, 3, 7, 1, 2, 3}
	assert.Equal(t, []messages.Token{4, 5}, lookUp(text, 2),
		"the longer match goes before the later one")
	assert.Equal(t, []messages.Token{7, 8, 2, 3}, lookUp(append(text[:9:9], 8, 2, 3), 9),
		"the last match")
	assert.Empty(t, lookUp([]messages.Token{1, 2, 3}, 4))
	assert.Empty(t, lookUp(text, 0))
	assert.Empty(t, lookUp(text, -1))
	assert.Empty(t, lookUp(nil, 4))
}
