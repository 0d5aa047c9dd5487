package coordinator_test

import (
	"errors"
	"slices"
	"strings"
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// Forks share all pages; the append that computes into a shared page copies it
// for all but the last that holds it.
func TestForksCopyWhatTheyWrite(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 6))
	forks := w.fork(s, 2)
	w.assertCounts(0, 2, 0, 6)
	assert.Len(t, w.append(s, 70).NewPages[0], 1)
	assert.Len(t, w.append(forks[0], 71).NewPages[0], 1)
	assert.Empty(t, w.append(forks[1], 72).NewPages[0], "the last that holds it has it alone")
	assert.Equal(t, 2*2*1, w.memory.copies[offloader.Duplicate], "two tokens' K and V, twice")
	for i, l := range []*hostSequence{s, forks[0], forks[1]} {
		w.append(l, messages.Token(80+i))
	}
	w.assertCounts(0, 4, 0, 4)
	w.release(s)
	w.release(forks...)
	assert.Equal(t, 7, w.lookup(messages.Prefix{Tokens: append(run(0, 6), 72, 9)}).MatchedTokens)
	assert.Equal(t, 7, w.lookup(messages.Prefix{Tokens: append(run(0, 6), 70, 9)}).MatchedTokens)
}

// In one step the first copies and the last does not, whatever their order of
// release; without a page the first is refused and has changed nothing.
func TestForksInOneStep(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 3}}})
	s := w.start(run(0, 6))
	fork := w.fork(s, 1)[0]
	results := w.tryAppend(run(70, 1), s, fork)
	require.NoError(t, results[0].Err)
	require.NoError(t, results[1].Err)
	assert.Equal(t, []int{1, 0}, []int{len(results[0].NewPages[0]), len(results[1].NewPages[0])})
	w.release(s, fork)

	w = newWorld(t, setup{pages: []windows.PageCounts{{Primary: 2}}})
	s = w.start(run(0, 6))
	fork = w.fork(s, 1)[0]
	before := w.picture()
	results = w.tryAppend(run(70, 1), s, fork)
	for _, r := range results {
		assert.Equal(t, "pool wfullh1 needs 1 pages beside the 2 held, and has 2",
			refusal(t, r.Err).Error())
	}
	assert.Equal(t, before, w.picture())
	w.discard(fork) // released, it would store the page
	w.append(s, 70)
}

// A rewind into a stored block makes the next token copy it.
func TestARewindIntoAStoredBlockCopies(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 6))
	w.append(s, 6, 7, 8) // tokens 6 and 7 are computed: block 1 is stored
	require.NoError(t, w.rewind(s, 2))
	r := w.append(s, 60, 61)
	assert.Len(t, r.NewPages[0], 2, "a copy, and a new block")
	assert.Equal(t, 8, w.lookup(messages.Prefix{Tokens: run(0, 9)}).MatchedTokens,
		"what was stored is as it was")
	w.release(s)
}

func TestWhatARewindRefuses(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{8}, pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 10))
	w.append(s, run(50, 12)...)
	for _, c := range []struct {
		n    int
		want error
	}{{0, messages.ErrBadRequest}, {-1, messages.ErrBadRequest}, {13, messages.ErrBadRequest},
		{12, messages.ErrNotSupported}, {6, messages.ErrNotSupported}} {
		assert.ErrorIs(t, w.rewind(s, c.n), c.want, "rewind of %d", c.n)
	}
	// 21 tokens are computed, position 21 attends to 14 and later: blocks 0, 1, 2
	// have left. At 19 tokens the next attends to 12, in block 3, which is there.
	require.NoError(t, w.rewind(s, 3))
	w.append(s, 90)
	_, beams := w.admitAs(messages.AdmitRequest{Tokens: run(300, 3), BeamWidth: 2})
	w.prefill(beams)
	assert.ErrorIs(t, w.rewind(beams, 1), messages.ErrNotSupported)
	m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: beams.id, Count: 1}}}
	w.do(m)
	assert.ErrorIs(t, m.Results[0].Err, messages.ErrNotSupported)
}

func TestWhatAForkRefuses(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	_, l := w.admit(run(0, 6))
	for _, step := range []messages.ForkStep{{Sequence: l.id, Count: 1}, {Sequence: l.id, Count: 0},
		{Sequence: 99, Count: 1}} {
		before := w.picture()
		m := &messages.Fork{Steps: []messages.ForkStep{step}}
		w.do(m)
		assert.Error(t, m.Results[0].Err)
		assert.Empty(t, m.Results[0].Forks)
		assert.Equal(t, before, w.picture())
	}
}

// Beams follow their parents; pages are copied where they part.
func TestBeamsFollowTheirParents(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 12}}})
	a, l := w.admitAs(messages.AdmitRequest{Tokens: run(0, 6), BeamWidth: 3})
	require.Len(t, a.Tables[0], 3)
	w.prefill(l)
	w.assertCounts(0, 2, 0, 10)
	step := func(parents ...int) messages.StepResult {
		steps := make([]messages.BeamStep, 3)
		for i, p := range parents {
			steps[i] = messages.BeamStep{Parent: p, Token: messages.Token(100 + 10*l.length() + i)}
		}
		return w.tryBeams(l, steps...)
	}
	r := step(0, 1, 2)
	require.NoError(t, r.Err)
	assert.Len(t, r.NewPages[0], 2, "all but the last copy the block they write")
	require.NoError(t, step(1, 1, 1).Err, "two of three are copies of beam 1 now")
	w.assertCounts(0, 4, 0, 8)
	require.NoError(t, step(2, 0, 0).Err)
	require.NoError(t, step(0, 0, 0).Err)
	w.release(l)
	// Beam 0 is stored: four tokens, then the trailing block in part.
	assert.Equal(t, 6, w.lookup(messages.Prefix{Tokens: run(0, 7)}).MatchedTokens)
	w.assertCounts(0, 0, 3, 9)
}

func TestWhatABeamStepRefuses(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 3}}})
	_, l := w.admitAs(messages.AdmitRequest{Tokens: run(0, 6), BeamWidth: 3})
	assert.ErrorIs(t, w.tryBeams(l, messages.BeamStep{}, messages.BeamStep{}, messages.BeamStep{}).Err,
		messages.ErrBadRequest, "before the prompt is computed")
	w.prefill(l)
	before := w.picture()
	for _, steps := range [][]messages.BeamStep{
		{{}, {}}, {{}, {}, {}, {}}, {{Parent: 3}, {}, {}}, {{Parent: -1}, {}, {}}, {{Token: -1}, {}, {}},
	} {
		assert.ErrorIs(t, w.tryBeams(l, steps...).Err, messages.ErrBadRequest)
	}
	r := w.tryBeams(l, messages.BeamStep{Parent: 0}, messages.BeamStep{Parent: 1},
		messages.BeamStep{Parent: 2})
	assert.Equal(t, "pool wfullh1 needs 2 pages beside the 2 held, and has 3",
		refusal(t, r.Err).Error())
	assert.Equal(t, before, w.picture())
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Tokens: run(0, 1)}}}
	w.do(m)
	assert.ErrorIs(t, m.Results[0].Err, messages.ErrBadRequest)
}

// Steps of one append are decided in order: a later one may use what is left.
func TestStepsAreCheckedInOrder(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
	a, b, c := w.start(run(0, 4)), w.start(run(100, 4)), w.start(run(200, 3))
	results := w.tryAppend(run(900, 1), a, b, c)
	require.NoError(t, results[0].Err)
	assert.Equal(t, "pool wfullh1 needs 1 pages, 0 available", refusal(t, results[1].Err).Error())
	require.NoError(t, results[2].Err, "it needs none")
	w.release(a, b, c)
}

func TestWhatAnAppendRefuses(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 200}}})
	_, raw := w.admit(run(0, 6))
	long := w.start(run(1000, full-1))
	for _, c := range []struct {
		step messages.AppendStep
		want error
	}{
		{messages.AppendStep{Sequence: raw.id, Tokens: run(0, 1)}, messages.ErrBadRequest},
		{messages.AppendStep{Sequence: long.id}, messages.ErrBadRequest},
		{messages.AppendStep{Sequence: long.id, Tokens: []messages.Token{-1}}, messages.ErrBadRequest},
		{messages.AppendStep{Sequence: long.id, Tokens: run(0, 2)}, messages.ErrTooLong},
		{messages.AppendStep{Sequence: long.id, Tokens: run(0, 1), Computed: full + 1},
			messages.ErrBadRequest},
		{messages.AppendStep{Sequence: long.id, Tokens: run(0, 1), Computed: full - 2},
			messages.ErrBadRequest},
		{messages.AppendStep{Sequence: long.id, Beams: make([]messages.BeamStep, 1)},
			messages.ErrBadRequest},
		{messages.AppendStep{Sequence: 4711, Tokens: run(0, 1)}, messages.ErrUnknownSequence},
	} {
		before := w.picture()
		m := &messages.Append{Steps: []messages.AppendStep{c.step}}
		w.do(m)
		assert.ErrorIs(t, m.Results[0].Err, c.want)
		assert.Equal(t, before, w.picture())
	}
	w.append(long, 1)
}

// Sequences whose trailing blocks lie in one page, released together, store it
// once: a page caches one block, the first that was offered.
func TestForksReleasedTogetherStoreTheirPageOnce(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 4))
	w.append(s, 60, 61, 62) // six tokens are computed
	fork := w.fork(s, 1)[0]
	require.NoError(t, w.rewind(s, 2)) // five are, in the same page
	w.release(s, fork)
	assert.Equal(t, 5, w.lookup(messages.Prefix{Tokens: append(run(0, 4), 60, 61, 62)}).MatchedTokens)
	w.assertCounts(0, 0, 2, 6)
}

// What was lost with a handle stays lost: handles are not used again.
func TestHandlesAreNotUsedAgain(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	old := w.start(run(0, 4))
	w.release(old)
	fresh := w.start(run(100, 4))
	assert.NotEqual(t, old.id, fresh.id)
	m := &messages.Release{Steps: []messages.ReleaseStep{{Sequence: old.id}, {Sequence: fresh.id},
		{Sequence: fresh.id}, {}}}
	w.Do(m)
	delete(w.running, fresh.id)
	w.check()
	for i, want := range []error{messages.ErrUnknownSequence, nil, messages.ErrBadRequest,
		messages.ErrUnknownSequence} {
		if want == nil {
			assert.NoError(t, m.Results[i].Err)
			continue
		}
		assert.ErrorIs(t, m.Results[i].Err, want, "step %d", i)
	}
}

// A commit of what is committed, or a step that is refused, is no use: what the
// sequence drops later in the same request is as old as it was.
func TestWhatChangesNothingIsNoUse(t *gotesting.T) {
	for name, nothing := range map[string]func(*world, *hostSequence){
		"a commit again": func(w *world, l *hostSequence) {
			w.do(&messages.Commit{Steps: []messages.CommitStep{{Sequence: l.id, Computed: 4}}})
		},
		"a refused step": func(w *world, l *hostSequence) {
			require.ErrorIs(t, w.tryAppend(run(50, 12), l)[0].Err, messages.ErrOutOfPages)
		},
	} {
		t.Run(name, func(t *gotesting.T) {
			w := newWorld(t, setup{windows: []int{4}, pages: []windows.PageCounts{{Primary: 4}}})
			l := w.start(run(0, 4))
			m := &messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Tokens: run(4, 4)}}}
			w.Do(m)
			require.NoError(t, m.Results[0].Err)
			w.extend(l, run(4, 4))
			w.store(run(100, 4))
			nothing(w, l)
			w.commitTo(l, 8) // block 0 leaves the window
			w.store(run(200, 8))
			assert.Zero(t, w.lookup(messages.Prefix{Tokens: run(0, 5)}).MatchedTokens,
				"used before the other")
			assert.Equal(t, 4, w.lookup(messages.Prefix{Tokens: run(100, 5)}).MatchedTokens)
			w.release(l)
		})
	}
}

// Rewinds, forks and reads of tables are batches: each step is served or refused
// by itself, and a sequence that is named twice is served once.
func TestBatchesOfRewindsForksAndTables(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 40}}})
	sequences := []*hostSequence{w.start(run(0, 6)), w.start(run(100, 6)), w.start(run(200, 6))}
	for i, l := range sequences {
		w.append(l, messages.Token(50+i))
		w.append(l, messages.Token(60+i))
	}
	rewind := &messages.Rewind{Steps: []messages.RewindStep{
		{Sequence: sequences[0].id, Tokens: 1}, {Sequence: sequences[1].id, Tokens: 99},
		{Sequence: 77, Tokens: 1},
		{Sequence: sequences[2].id, Tokens: 2}, {Sequence: sequences[2].id, Tokens: 1},
	}}
	w.Do(rewind)
	require.NoError(t, rewind.Err)
	for i, want := range []error{nil, messages.ErrBadRequest, messages.ErrUnknownSequence, nil,
		messages.ErrBadRequest} {
		assert.Equal(t, rewind.Steps[i].Sequence, rewind.Results[i].Sequence)
		assert.ErrorIs(t, rewind.Results[i].Err, want, "step %d", i)
	}
	for i, n := range []int{1, 0, 2} {
		sequences[i].beams[0] = sequences[i].beams[0][:len(sequences[i].beams[0])-n]
		sequences[i].tokens = sequences[i].tokens[:sequences[i].length()]
		sequences[i].computed = min(sequences[i].computed, sequences[i].length())
	}
	w.check()

	fork := &messages.Fork{Steps: []messages.ForkStep{
		{Sequence: sequences[0].id, Count: 2}, {Sequence: sequences[1].id, Count: coordinator.MaxForks},
		{Sequence: sequences[0].id, Count: 1}, {Sequence: sequences[2].id, Count: 1},
	}}
	w.Do(fork)
	require.NoError(t, fork.Err)
	for i, want := range []int{2, 0, 0, 1} {
		assert.Len(t, fork.Results[i].Forks, want)
		assert.Equal(t, want == 0, errors.Is(fork.Results[i].Err, messages.ErrBadRequest))
	}
	read := &messages.ReadTables{Sequences: []messages.SequenceID{sequences[0].id, 77,
		fork.Results[0].Forks[1]}}
	for range 2 {
		w.Do(read)
		assert.ErrorIs(t, read.Results[1].Err, messages.ErrUnknownSequence)
		assert.Equal(t, read.Results[0].Tables, read.Results[2].Tables)
		assert.Len(t, read.Results[0].Tables[0][0], 2)
	}
	for _, result := range fork.Results {
		for _, id := range result.Forks {
			w.Do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: id, Discard: true}}})
		}
	}
	w.check()
	w.release(sequences...)
}

// A step says where each of its pages is in the tables, and which page a copy on
// write replaces.
func TestStepsSayWhereTheirPagesAre(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 12}}})
	s := w.start(run(0, 6))
	fork := w.fork(s, 1)[0]
	before := slices.Clone(w.tables(fork.id)[0][0])
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: fork.id, Tokens: run(50, 4)}}}
	w.Do(m)
	require.NoError(t, m.Results[0].Err)
	w.extend(fork, run(50, 4))
	after := w.tables(fork.id)[0][0]
	assert.Equal(t, []messages.PlacedPage{
		{Block: 1, Page: after[1], Replaced: before[1]}, {Block: 2, Page: after[2],
			Replaced: messages.NoPage},
	}, m.Results[0].Placed)
	assert.Equal(t, [][]messages.PageID{{after[1], after[2]}}, m.Results[0].NewPages)
	w.release(s, fork)
}

// A refusal for want of pages tells whether waiting helps.
func TestRefusalsThatLastForEver(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 6}}})
	s := w.start(run(0, 16))
	for _, c := range []struct {
		tokens int
		never  bool
	}{{12, false}, {24, false}, {25, true}} {
		_, _, err := w.tryAdmit(messages.AdmitRequest{Tokens: run(100, c.tokens)})
		var refusal *messages.Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, 6, refusal.Total)
		assert.Equal(t, c.never, refusal.Never, "a prompt of %d tokens", c.tokens)
	}
	_, _, err := w.tryAdmit(messages.AdmitRequest{Tokens: run(100, 25)})
	assert.EqualError(t, err, "pool wfullh1 needs 7 pages and has 6")
	_, _, err = w.tryAdmit(messages.AdmitRequest{Tokens: run(0, 28)})
	var refusal *messages.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, []int{3, 2}, []int{refusal.Need, refusal.Available})
	assert.True(t, refusal.Never, "with the four pages that it would share")
	assert.EqualError(t, err, "pool wfullh1 needs 3 pages beside the 4 held, and has 6")
	require.ErrorAs(t, w.tryAppend(run(50, 9), s)[0].Err, &refusal)
	assert.True(t, refusal.Never)
	w.release(s)
}

// Where memory moves by demand, only what no split could serve is refused for ever.
func TestRefusalsThatARebalanceMayEnd(t *gotesting.T) {
	for name, c := range map[string]struct {
		every, maxTokens, pages int // pages of full attention that the prompt needs
		refusal                 string
	}{
		"the host moves memory": {pages: 7, refusal: "pool wfullh1 needs 7 pages and has 6"},
		"memory moves by demand": {every: 9, pages: 11,
			refusal: "pool wfullh1 needs 11 pages, 6 available"},
		"one page stays": {every: 9, pages: 12,
			refusal: "pool wfullh1 needs 12 pages and can have 11"},
		"as many as max_tokens has": {every: 9, maxTokens: 36, pages: 9,
			refusal: "pool wfullh1 needs 9 pages, 6 available"},
		"one more than max_tokens": {every: 9, maxTokens: 36, pages: 10,
			refusal: "pool wfullh1 needs 10 pages and can have 9"},
		"max_tokens below the pages": {every: 9, maxTokens: 16, pages: 7,
			refusal: "pool wfullh1 needs 7 pages and has 6"},
	} {
		t.Run(name, func(t *gotesting.T) {
			w := newWorld(t, setup{
				windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 6}}, every: c.every,
				maxTokens: c.maxTokens,
			})
			_, _, err := w.tryAdmit(messages.AdmitRequest{Tokens: run(0, c.pages*tpb), ChunkTokens: tpb})
			var refusal *messages.Refusal
			require.ErrorAs(t, err, &refusal)
			assert.EqualError(t, err, c.refusal)
			assert.Equal(t, !strings.Contains(c.refusal, "available"), refusal.Never)
			assert.Equal(t, 6, refusal.Total)
		})
	}
}
