package runner_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// everyBlock makes a checkpoint at each block of four tokens.
func everyBlock(c *windows.Config) { c.StateCheckpointInterval = 4 }

// stateCounters are those of the state pool, the last one.
func stateCounters(t testing.TB, r *runner.Runner) inspect.PoolStats {
	t.Helper()
	stats, err := r.Engine.Stats(t.Context())
	require.NoError(t, err)
	return stats.Pools[len(stats.Pools)-1]
}

// Prompts resume at checkpoints: at the last block boundary of a prompt that was
// computed, at the branch from the third prompt with a common beginning on, and at
// the very end of what a sequence left.
func TestReuseResumesAtCheckpoints(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for _, chunk := range []int{0, 4, 8} {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: chunk})
			ask := func(want int, checkpoints []int, tokens ...messages.Token) *history {
				h := begin(t, r, runner.Request{Tokens: tokens})
				assert.Equal(t, want, h.Reused)
				assert.Equal(t, checkpoints, h.Checkpoints())
				h.check(t, a, "behind a checkpoint")
				return h
			}
			common := f.Cases[3].Tokens[:10]
			with := func(end ...messages.Token) []messages.Token { return slices.Concat(common, end) }
			first := ask(0, []int{12}, with(1, 2, 3, 4, 5)...)
			first.generate(t, r, 3) // 15 tokens and three, of which all are computed
			first.end(t, r)
			ask(0, []int{8, 12}, with(6, 7, 8, 9)...).end(t, r) // no state at the branch: it makes one
			ask(8, []int{12}, with(11, 12, 13, 14)...).end(t, r)
			ask(14, nil, with(11, 12, 13, 14, 15)...).end(t, r) // what the one before left
			ask(18, nil, append(slices.Clone(first.Tokens), 9)...).end(t, r)
			assert.Equal(t, int64(0), stateCounters(t, r).CheckpointsSkipped)
		}
	}
}

// A prompt that resumes with another state than its own has other bits: the tests
// of this package can fail.
func TestAWrongStateShows(t *testing.T) {
	changes := map[string]func([]byte){
		"no state":      func(page []byte) { clear(page) },
		"one wrong bit": func(page []byte) { page[len(page)-2] ^= 0x40 },
	}
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		c := f.Cases[2]
		for about, change := range changes {
			r := open(t, f, runner.Config{TokensPerBlock: 4})
			begin(t, r, runner.Request{Tokens: c.Tokens}).end(t, r)
			s, err := r.Admit(t.Context(), runner.Request{Tokens: c.Tokens})
			require.NoError(t, err)
			require.Positive(t, s.Reused)
			s.AllLogits = true
			require.NoError(t, r.ChangeState(t.Context(), s, change))
			require.NoError(t, r.Prefill(t.Context(), s))
			_, other := differs(a.logits(t, runner.Request{Tokens: c.Tokens})[s.Reused], s.Logits[0])
			assert.True(t, other, "%s, %s", name, about)
			require.NoError(t, r.Release(t.Context(), s))
		}
	}
}

// Drafts cross checkpoints, and are accepted up to each place before, at and behind
// them. The state that is left is that of the accepted tokens, for the sequence, for
// its fork, and for the prompt that finds the checkpoint of its release.
func TestDraftsOfStates(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for accepted := 1; accepted <= 6; accepted++ {
			for start := 5; start <= 8; start++ {
				r := open(t, f, runner.Config{TokensPerBlock: 4, Adjust: everyBlock})
				h := begin(t, r, runner.Request{Tokens: f.Cases[3].Tokens[:start]})
				h.draft(t, r, f.Cases[3].Tokens[start:start+6], accepted)
				forks, err := r.Fork(t.Context(), h.Sequence, 1)
				require.NoError(t, err)
				fork := &history{Sequence: forks[0], ask: h.ask, from: h.from, rows: slices.Clone(h.rows)}
				fork.extend(t, r, 3)
				fork.check(t, a, "a fork after drafts")
				h.generate(t, r, 1)
				h.check(t, a, "after drafts")
				tokens := slices.Clone(h.Tokens)
				h.end(t, r)
				fork.end(t, r)
				again := begin(t, r, runner.Request{Tokens: append(tokens, 5)})
				assert.Equal(t, len(tokens), again.Reused)
				again.check(t, a, "behind what a sequence with drafts has left")
				again.end(t, r)
			}
		}
	}
}

// draft appends tokens, computes them in one step and keeps the first ones.
func (h *history) draft(t *testing.T, r *runner.Runner, tokens []messages.Token, accepted int) {
	t.Helper()
	errs, err := r.Append(t.Context(), []*runner.Sequence{h.Sequence}, [][]messages.Token{tokens})
	require.NoError(t, errors.Join(append(errs, err)...))
	before := h.Computed()
	require.NoError(t, r.ComputeOnly(t.Context(), h.Sequence))
	_, err = r.Fork(t.Context(), h.Sequence, 1)
	require.ErrorIs(t, err, messages.ErrNotSupported, "the state is not decided")
	errs, err = r.Commit(t.Context(), []*runner.Sequence{h.Sequence}, []int{before + accepted})
	require.NoError(t, errors.Join(append(errs, err)...))
	if n := len(tokens) - accepted; n > 0 {
		require.NoError(t, r.RewindOne(t.Context(), h.Sequence, n))
	}
	h.rows = append(h.rows, h.Logits[:accepted]...)
	h.Logits = h.Logits[accepted-1 : accepted]
}

// Drafts that were committed are taken back to each of them: the pages that the append has asked
// for have their states.
func TestCommittedDraftsAreTakenBack(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for accepted := range 6 {
			r := open(t, f, runner.Config{TokensPerBlock: 4, Adjust: everyBlock})
			h := begin(t, r, runner.Request{Tokens: f.Cases[3].Tokens[:6]})
			tokens := f.Cases[3].Tokens[6:12]
			errs, err := r.Append(t.Context(), []*runner.Sequence{h.Sequence}, [][]messages.Token{tokens})
			require.NoError(t, errors.Join(append(errs, err)...))
			errs, err = r.Compute(t.Context(), h.Sequence)
			require.NoError(t, errors.Join(append(errs, err)...))
			require.NoError(t, r.RewindOne(t.Context(), h.Sequence, len(tokens)-accepted), accepted)
			if accepted > 0 {
				h.rows = append(h.rows, h.Logits[:accepted]...)
				h.Logits = h.Logits[accepted-1 : accepted]
			}
			errs, err = r.Append(t.Context(), []*runner.Sequence{h.Sequence}, [][]messages.Token{{3}})
			require.NoError(t, errors.Join(append(errs, err)...))
			errs, err = r.Compute(t.Context(), h.Sequence)
			require.NoError(t, errors.Join(append(errs, err)...))
			h.rows = append(h.rows, h.Logits...)
			h.check(t, a, "after committed drafts")
			h.end(t, r)
		}
	}
}

// A rewind below the state is refused. A host that must go back ends the sequence,
// and the shorter one resumes at the checkpoint before.
func TestRewindPastACheckpoint(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		r := open(t, f, runner.Config{TokensPerBlock: 4, Adjust: everyBlock})
		h := begin(t, r, runner.Request{Tokens: f.Cases[3].Tokens[:6]})
		h.generate(t, r, 8)
		for _, n := range []int{1, 3, 8} {
			require.ErrorIs(t, r.RewindOne(t.Context(), h.Sequence, n), messages.ErrNotSupported)
		}
		require.Len(t, h.Tokens, 14)
		// A sampled token that is computed and not committed is in the state, too.
		errs, err := r.Append(t.Context(), []*runner.Sequence{h.Sequence}, [][]messages.Token{{3}})
		require.NoError(t, errors.Join(append(errs, err)...))
		require.NoError(t, r.ComputeOnly(t.Context(), h.Sequence))
		require.ErrorIs(t, r.RewindOne(t.Context(), h.Sequence, 1), messages.ErrNotSupported)
		tokens := slices.Clone(h.Tokens)
		// Its working page is ahead of what the engine knows: the release stores none.
		before := stateCounters(t, r).Checkpoints
		h.end(t, r)
		assert.Equal(t, before, stateCounters(t, r).Checkpoints)
		for n := len(tokens); n > 1; n-- {
			again := begin(t, r, runner.Request{Tokens: tokens[:n], Salt: ""})
			assert.GreaterOrEqual(t, again.Reused, min(n-1, 13)/4*4)
			again.check(t, a, "a shorter one")
			again.end(t, r)
		}
	}
}

// Beams are refused: their states would be one a beam.
func TestBeamsOfStatesAreRefused(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		r := open(t, f, runner.Config{TokensPerBlock: 4})
		_, err := r.Admit(t.Context(), runner.Request{Tokens: f.Cases[0].Tokens, Beams: 2})
		require.ErrorIs(t, err, messages.ErrNotSupported)
	}
}

// Few state pages are no fault: checkpoints are evicted, offloaded, brought back or
// skipped, and the bits stay.
func TestFewStatePages(t *testing.T) {
	for _, name := range fixturesWith(t, (*fixtureModel).Recurrent) {
		f := fixture(t, name)
		a := newReference(t, f, runner.Config{})
		for _, pages := range []int{1, 2, 3, 5} {
			for _, hostPages := range []int{0, 3} {
				r := open(t, f, runner.Config{TokensPerBlock: 4, Chunk: 4, Pages: 30, HostPages: 30,
					States: windows.PageCounts{Primary: pages, Secondary: hostPages}, Adjust: everyBlock})
				reused := 0
				for _, i := range []int{2, 3, 2, 1, 0, 3, 2} {
					h := begin(t, r, runner.Request{Tokens: f.Cases[i].Tokens})
					h.generate(t, r, answerLen)
					h.check(t, a, "few state pages")
					reused += h.Reused
					h.end(t, r)
				}
				did := stateCounters(t, r)
				switch {
				case pages == 1 && hostPages == 0:
					assert.Zero(t, reused, "the only page for the state is the working page")
				case pages >= 3:
					assert.Positive(t, reused)
					assert.Positive(t, did.Evicted)
				}
				if hostPages > 0 && pages > 1 {
					assert.Positive(t, did.Offloaded)
				}
				if pages == 1 {
					assert.Positive(t, did.CheckpointsSkipped)
				}
			}
		}
	}
}
