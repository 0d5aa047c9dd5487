package runner_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// Forks go on from shared pages, each with the bits of a sequence of its own.
func TestForks(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for _, c := range f.Cases[1:3] { // 6 and 23 tokens: inside a block
			r := open(t, f, runner.Config{TokensPerBlock: 4})
			h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
			h.generate(t, r, 1)
			forks, err := r.Fork(t.Context(), h.Sequence, 3)
			require.NoError(t, err)
			forked := []*history{h}
			for _, s := range forks {
				forked = append(forked, &history{Sequence: s, ask: h.ask, from: h.from,
					rows: append([][]float32(nil), h.rows...)})
			}
			for step := range 6 {
				for i, member := range forked {
					member.extend(t, r, messages.Token((7*i+5*step+1)%f.Vocab))
				}
			}
			for _, member := range forked {
				member.check(t, a, "a fork")
				member.end(t, r)
			}
		}
	}
}

// Beam search over the engine's tables finds what the fixture's search without
// any cache found, and each beam has the bits of a sequence of its own.
func TestBeams(t *testing.T) {
	for _, name := range []string{"llama_gqa", "gpt_oss"} {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		c := f.Cases[2]
		require.Equal(t, f.Beams.Prompt, c.Name)
		for _, chunk := range []int{0, 8} {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: chunk})
			s, err := r.Admit(t.Context(), runner.Request{Tokens: c.Tokens, Beams: f.Beams.Width})
			require.NoError(t, err)
			require.NoError(t, r.Prefill(t.Context(), s))
			for i, step := range f.Beams.Steps {
				beams := make([]messages.BeamStep, len(step.Parents))
				for b := range beams {
					beams[b] = messages.BeamStep{Parent: step.Parents[b], Token: messages.Token(step.Tokens[b])}
				}
				require.NoError(t, r.AppendBeams(t.Context(), s, beams))
				errs, err := r.Compute(t.Context(), s)
				require.NoError(t, errors.Join(append(errs, err)...))
				require.Len(t, s.Logits, f.Beams.Width)
				for b, tail := range s.Beams() {
					tokens := append(append([]messages.Token(nil), c.Tokens...), tail...)
					require.Len(t, tail, i+1)
					a.compare(t, runner.Request{Tokens: tokens}, len(tokens)-1, s.Logits[b:b+1], "a beam")
				}
			}
			assert.Equal(t, f.Beams.Sequences, s.Beams())
			require.NoError(t, r.Release(t.Context(), s))
		}
	}
}

// Beams of every model, with parents drawn at random, have the bits of sequences of
// their own.
func TestBeamsOfEveryModel(t *testing.T) {
	const width = 3
	for i, name := range fixturesWith(t, (*fixtureModel).beams) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		c := f.Cases[1]
		rng := rand.New(rand.NewPCG(uint64(i), 2))
		r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8})
		s, err := r.Admit(t.Context(), runner.Request{Tokens: c.Tokens, Encoder: c.Encoder, Beams: width})
		require.NoError(t, err)
		require.NoError(t, r.Prefill(t.Context(), s))
		for range 8 {
			beams := make([]messages.BeamStep, width)
			for b := range beams {
				beams[b] = messages.BeamStep{Parent: rng.IntN(width), Token: messages.Token(rng.IntN(f.Vocab))}
			}
			require.NoError(t, r.AppendBeams(t.Context(), s, beams))
			errs, err := r.Compute(t.Context(), s)
			require.NoError(t, errors.Join(append(errs, err)...))
			for b, tail := range s.Beams() {
				q := runner.Request{Tokens: slices.Concat(c.Tokens, tail), Encoder: c.Encoder}
				a.compare(t, q, len(q.Tokens)-1, s.Logits[b:b+1], "a beam")
			}
		}
		require.NoError(t, r.Release(t.Context(), s))
	}
}

// Drafts that are verified in one step and taken back where they were wrong
// change nothing.
func TestDrafts(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		c := f.Cases[2]
		r := open(t, f, runner.Config{TokensPerBlock: 4})
		h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
		var got []messages.Token
		rejected := 0
		for step := 0; len(got) < 20; step++ {
			// The sampled token, then drafts: the right ones up to some point.
			right := c.Greedy[len(got):min(len(got)+4, len(c.Greedy))]
			drafts := append([]messages.Token{h.Next()}, right[1:]...)
			for i := 1 + step%3; i < len(drafts); i++ {
				drafts[i] = (drafts[i] + 1) % messages.Token(f.Vocab)
			}
			got, rejected = verify(t, r, h, got, drafts, rejected)
		}
		assert.Equal(t, c.Greedy[:len(got)], got, name)
		assert.Positive(t, rejected)
		h.check(t, a, "after drafts")
		h.end(t, r)
	}
}

// verify appends a token and drafts, computes them, commits those that greedy
// decoding would have chosen and rewinds the rest.
func verify(
	t *testing.T, r *runner.Runner, h *history, got, drafts []messages.Token, rejected int,
) ([]messages.Token, int) {
	t.Helper()
	errs, err := r.Append(t.Context(), []*runner.Sequence{h.Sequence}, [][]messages.Token{drafts})
	require.NoError(t, errors.Join(append(errs, err)...))
	before := h.Computed()
	require.NoError(t, r.ComputeOnly(t.Context(), h.Sequence))
	accepted := 1
	for accepted < len(drafts) && greedyOf(h.Logits[accepted-1]) == drafts[accepted] {
		accepted++
	}
	h.rows = append(h.rows, h.Logits[:accepted]...)
	last := h.Logits[accepted-1 : accepted]
	errs, err = r.Commit(t.Context(), []*runner.Sequence{h.Sequence}, []int{before + accepted})
	require.NoError(t, errors.Join(append(errs, err)...))
	if n := len(drafts) - accepted; n > 0 {
		require.NoError(t, r.RewindOne(t.Context(), h.Sequence, n))
		rejected += n
	}
	h.Logits = last
	return append(got, drafts[:accepted]...), rejected
}

func greedyOf(logits []float32) messages.Token {
	top := 0
	for i, x := range logits {
		if x > logits[top] {
			top = i
		}
	}
	return messages.Token(top)
}

// A sequence that was released in the middle and admitted again goes on as if
// nothing had happened, whether its pages are still there or not.
func TestPreemption(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for _, c := range f.Cases[1:4] {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: 24, HostPages: 24})
			h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
			var got []messages.Token
			for round := range 4 {
				got = append(got, h.generate(t, r, 3+round)...)
				h.check(t, a, "before it is preempted")
				h.end(t, r)
				if round%2 == 1 { // another prompt takes the pages
					other := begin(t, r, runner.Request{Tokens: f.Cases[3].Tokens, Encoder: f.Cases[3].Encoder,
						Salt: "other"})
					other.check(t, a, "the other prompt")
					other.end(t, r)
				}
				h = begin(t, r, runner.Request{Tokens: h.Tokens, Encoder: c.Encoder})
			}
			assert.Equal(t, c.Greedy[:len(got)], got)
			h.check(t, a, "in the end")
			h.end(t, r)
		}
	}
}

// A prompt that was cancelled inside a chunked prefill leaves what it had
// computed, and nothing else, to the next one with its prefix.
func TestCancelInsidePrefill(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		c := f.Cases[3]
		for chunks := range 5 {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4})
			ctx, cancel := context.WithCancel(t.Context())
			s, err := r.Admit(ctx, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
			require.NoError(t, err)
			for range min(chunks, (len(c.Tokens)-1)/4) {
				errs, err := r.Compute(ctx, s)
				require.NoError(t, errors.Join(append(errs, err)...))
			}
			cancel()
			require.ErrorIs(t, r.Prefill(ctx, s), context.Canceled)
			require.NoError(t, r.Release(t.Context(), s))
			for round := range 2 {
				h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
				if round == 0 {
					assert.LessOrEqual(t, h.Reused, 4*chunks, "not what was never computed")
				} else {
					assert.GreaterOrEqual(t, h.Reused, (len(c.Tokens)-1)/4*4,
						"the last block boundary has a checkpoint")
				}
				h.generate(t, r, 3)
				h.check(t, a, "after a cancelled prefill")
				h.end(t, r)
			}
		}
	}
}

// Contexts and generations of many sequences in one step.
func TestMixedSteps(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4})
		var running []*history
		for step := range 30 {
			if step < len(f.Cases) {
				c := f.Cases[step]
				s, err := r.Admit(t.Context(), runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
				require.NoError(t, err)
				s.AllLogits = true
				running = append(running, &history{Sequence: s, ask: runner.Request{Encoder: c.Encoder},
					from: s.Reused})
			}
			var batch []*runner.Sequence
			for _, h := range running {
				if h.Computed() == len(h.Tokens) {
					errs, err := r.Append(t.Context(), []*runner.Sequence{h.Sequence},
						[][]messages.Token{{h.Next()}})
					require.NoError(t, errors.Join(append(errs, err)...))
				}
				batch = append(batch, h.Sequence)
			}
			errs, err := r.Compute(t.Context(), batch...)
			require.NoError(t, errors.Join(append(errs, err)...))
			for _, h := range running {
				h.rows = append(h.rows, h.Logits...)
			}
		}
		for _, h := range running {
			h.check(t, a, "in mixed steps")
			h.end(t, r)
		}
	}
}
