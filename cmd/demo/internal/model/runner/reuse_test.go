package runner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// answerLen is how many tokens tests generate.
const answerLen = 6

// partials are the ways of partial reuse.
var partials = map[string]func(*windows.Config){
	"copy":     nil,
	"takeover": func(c *windows.Config) { c.CopyOnPartialReuse = false },
	"none":     func(c *windows.Config) { c.EnablePartialReuse = false },
}

// With reuse by copy, by takeover and without, and with chunks of every size,
// prompts have the bits that they have alone. Greedy tokens are the fixtures'.
func TestReuseAndChunks(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			f := fixture(t, name)
			a := newReference(t, f, runner.Config{})
			reused := map[string]int{}
			for _, chunk := range []int{0, 4, 8, 12} {
				for partial, adjust := range partials {
					r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: chunk, Adjust: adjust})
					for _, i := range []int{2, 3, len(f.Cases) - 1, 2, 1, 0, 3} {
						c := f.Cases[i]
						h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
						assert.Equal(t, c.Greedy[:answerLen], h.generate(t, r, answerLen), c.Name)
						h.check(t, a, fmt.Sprintf("%s, chunks of %d, partial reuse by %s", c.Name, chunk, partial))
						reused[partial] += h.Reused
						h.end(t, r)
					}
					reused[partial] += f.leaveAndBranch(t, r, a)
				}
			}
			assert.Positive(t, reused["none"])
			assert.Greater(t, reused["copy"], reused["none"])
			assert.Greater(t, reused["takeover"], reused["none"])
		})
	}
}

// leaveAndBranch leaves a prompt that ends inside a block, makes another take or copy
// the part of that block which they share, and makes a third one continue the first.
func (f *fixtureModel) leaveAndBranch(t *testing.T, r *runner.Runner, a *reference) int {
	t.Helper()
	c := f.Cases[2]
	branch := slices.Concat(c.Tokens[:21],
		[]messages.Token{(c.Tokens[21] + 1) % messages.Token(f.Vocab), 5})
	further := slices.Concat(c.Tokens[:22], []messages.Token{7, 5, 3})
	reused := 0
	for _, tokens := range [][]messages.Token{c.Tokens[:22], branch, further} {
		h := begin(t, r, runner.Request{Tokens: tokens, Encoder: c.Encoder, Salt: "branch"})
		h.check(t, a, "a branch inside a block")
		reused += h.Reused
		h.end(t, r)
	}
	return reused
}

// In every type of the cache the bits are those of the sequence alone in the same
// type, and other than in float32.
func TestCacheTypes(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		exact := newReference(t, f, runner.Config{})
		for _, dtype := range []windows.DType{windows.Float16, windows.BFloat16, windows.Int8,
			windows.FP8} {
			a := newReference(t, f, runner.Config{DType: dtype})
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, DType: dtype})
			for _, i := range []int{2, 3, 2} {
				c := f.Cases[i]
				h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})
				h.generate(t, r, answerLen)
				h.check(t, a, string(dtype))
				h.end(t, r)
			}
			c := f.Cases[2]
			_, other := differs(exact.logits(t, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})[20],
				a.logits(t, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder})[20])
			assert.True(t, other, "%s, %s rounds", name, dtype)
		}
	}
}

// counters adds up what happened in all pools.
func counters(t testing.TB, r *runner.Runner) (sum inspect.PoolCounters) {
	t.Helper()
	stats, err := r.Engine.Stats(t.Context())
	require.NoError(t, err)
	for _, p := range stats.Pools {
		sum.Offloaded += p.Offloaded
		sum.Onboarded += p.Onboarded
		sum.Evicted += p.Evicted
		sum.ReusedPartial += p.ReusedPartial
		sum.Dropped += p.Dropped
	}
	return sum
}

// tight is a count of device pages that one sequence of the tests below fills.
func (f *fixtureModel) tight() int {
	switch {
	case f.Encodes():
		return 9
	case f.Name == "mistral_swa":
		return 6 // all layers have a window
	}
	return 18
}

// Pages that went to host memory and came back have their bytes.
func TestOffloadAndOnboard(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			f := fixture(t, name)
			a := newReference(t, f, runner.Config{})
			for seed := range int64(3) {
				r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: f.tight(), HostPages: 60,
					Seed: seed})
				for _, i := range []int{3, 2, len(f.Cases) - 1, 3, 1, 2, 0, 3, 2} {
					c := f.Cases[i]
					h := begin(t, r, runner.Request{Tokens: c.Tokens, Encoder: c.Encoder, Salt: fmt.Sprint(i % 2)})
					h.generate(t, r, answerLen)
					h.check(t, a, c.Name)
					h.end(t, r)
				}
				did := counters(t, r)
				assert.Positive(t, did.Offloaded)
				assert.Positive(t, did.Onboarded)
			}
		})
	}
}

// Sliding windows drop pages; the bits are those of an engine that keeps all.
func TestWindowsDropPages(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).windowed) {
		f := fixture(t, name)
		keep := open(t, f,
			runner.Config{TokensPerBlock: 4, Adjust: func(c *windows.Config) { c.MaxAttentionWindow = nil }})
		require.Len(t, keep.Engine.Pools(), 1, "all layers keep everything")
		for _, chunk := range []int{0, 4, 8} {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: chunk})
			for _, c := range f.Cases {
				want, got := begin(t, keep, runner.Request{Tokens: c.Tokens}),
					begin(t, r, runner.Request{Tokens: c.Tokens})
				assert.Equal(t, c.Greedy, want.generate(t, keep, len(c.Greedy)))
				assert.Equal(t, c.Greedy, got.generate(t, r, len(c.Greedy)))
				n := min(len(want.rows), len(got.rows))
				for i := range n {
					_, other := differs(want.rows[len(want.rows)-1-i], got.rows[len(got.rows)-1-i])
					require.False(t, other, "%s, %s, %d from the end", name, c.Name, i)
				}
				assert.Equal(t, messages.NoPage, got.Tables()[0][0][0], "the window has passed the first block")
				want.end(t, keep)
				got.end(t, r)
			}
		}
	}
}

// Salts never meet: each has the bits that it has alone.
func TestSalts(t *testing.T) {
	for _, name := range fixtures {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 8, Pages: 40, HostPages: 80})
		for round := range 2 {
			for _, q := range []runner.Request{{}, {Salt: "s"}, {Salt: "t"}} {
				c := f.Cases[2+round]
				q.Tokens, q.Encoder = c.Tokens, c.Encoder
				h := begin(t, r, q)
				h.generate(t, r, 3)
				h.check(t, a, "a namespace")
				if round == 0 {
					assert.Zero(t, h.Reused, "no one else's pages")
				}
				h.end(t, r)
			}
		}
	}
}
