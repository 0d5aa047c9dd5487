package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func chunked(tokens []messages.Token, chunk int) messages.AdmitRequest {
	return messages.AdmitRequest{Tokens: tokens, ChunkTokens: chunk}
}

func commit(w *world, l *hostSequence, n int) error {
	m := &messages.Commit{Steps: []messages.CommitStep{{Sequence: l.id, Computed: n}}}
	w.Do(m)
	return m.Results[0].Err
}

// With window 8 and chunks of 8 a prefill of 40 tokens holds, in the limited
// pool, at most two pages of window and two of chunk, and reserves as many.
func TestAChunkedPrefillReserves(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 6}, {Primary: 20}}})
	_, l := w.admitAs(chunked(run(0, 40), 8))
	w.assertCounts(0, 2, 0, 4)
	w.assertCounts(1, 10, 0, 10)

	_, _, err := w.tryAdmit(request(run(500, 12)))
	r := refusal(t, err)
	assert.Equal(t, "pool w8h1 needs 3 pages, 2 available", r.Error())

	for l.computed < l.prompt {
		w.commitTo(l, l.reach())
		assert.LessOrEqual(t, w.stats().Pools[0].Primary.Used, 4)
		if l.computed < l.prompt {
			_, _, err := w.tryAdmit(request(run(500, 12)))
			assert.ErrorIs(t, err, messages.ErrOutOfPages, "after %d tokens", l.computed)
		}
	}
	w.start(run(500, 12)) // the reserve has ended
	w.release(l)
}

// A reserve is never more than the blocks that are not reused whole.
func TestAReserveIsNoMoreThanThePrompt(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{8, full}, sink: 4,
		pages: []windows.PageCounts{{Primary: 12}, {Primary: 12}}})
	w.store(run(0, 8))
	for _, c := range []struct{ tokens, reserve int }{{12, 1}, {16, 2}, {20, 3}, {32, 5}, {40, 5}} {
		// ⌈7/4⌉ of window, 2 of the chunk, 1 of the sink: 5 at most.
		_, l := w.admitAs(chunked(run(0, c.tokens), 8))
		_, _, err := w.tryAdmit(messages.AdmitRequest{Tokens: run(500, 4*13)})
		held := w.Pools[0].Counts().Held
		assert.Equal(t, 12-held-c.reserve, refusal(t, err).Available, "%d tokens", c.tokens)
		w.prefill(l)
		w.release(l)
		w.do(&messages.Invalidate{Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: run(0,
			9)}}})
	}
}

// The commits of a chunked prompt never fail, whoever claims its blocks.
func TestTheCommitsOfAChunkedPrefillNeverFail(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 40}}})
	_, l := w.admitAs(chunked(run(0, 40), 8))
	w.commitTo(l, 8)
	// Who claims its pages pays for them: two claimed, one page to compute.
	_, other := w.admit(run(0, 9))
	_, _, err := w.tryAdmit(request(run(300, 8)))
	assert.Equal(t, 1, refusal(t, err).Available)
	w.prefill(l)
	w.prefill(other)
	w.release(l, other)
}

// A pin may not take what a chunked prefill counts on.
func TestAPinHeedsReserves(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{8}, pages: []windows.PageCounts{{Primary: 5}}})
	w.store(run(500, 12)) // three cached pages; at position 12 two are in the window
	_, l := w.admitAs(chunked(run(0, 40), 8))
	_, err := w.tryPin(run(500, 12))
	assert.Equal(t, "pool w8h1 needs 2 pages, 1 available", refusal(t, err).Error())
	w.pin(run(500, 4))
	w.prefill(l)
}

// A takeover may not either, though it takes no page.
func TestATakeoverHeedsReserves(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{8}, pages: []windows.PageCounts{{Primary: 4}}})
	w.store(run(500, 2))
	_, l := w.admitAs(chunked(run(0, 40), 8))
	_, _, err := w.tryAdmit(request(run(500, 4)))
	assert.ErrorIs(t, err, messages.ErrOutOfPages)
	w.prefill(l)
}

func TestWhereChunksMayEnd(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 12}, {Primary: 12}}})
	_, l := w.admitAs(chunked(run(0, 22), 8))
	for _, n := range []int{-1, 3, 9, 12, 22, 23} {
		assert.ErrorIs(t, commit(w, l, n), messages.ErrBadRequest, "first commit of %d", n)
	}
	require.NoError(t, commit(w, l, 0), "what is committed may be committed again")
	w.commitTo(l, 4)
	assert.ErrorIs(t, commit(w, l, 16), messages.ErrBadRequest)
	w.commitTo(l, 12)
	w.commitTo(l, 20)
	assert.ErrorIs(t, commit(w, l, 12), messages.ErrBadRequest)
	w.commitTo(l, 22)
	w.append(l, 900)
	w.release(l)
}

// Without chunks a commit before the prompt's last ends at a boundary too.
func TestWhereCommitsMayEnd(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 12}}})
	_, l := w.admit(run(0, 14))
	assert.ErrorIs(t, commit(w, l, 7), messages.ErrBadRequest)
	w.commitTo(l, 8)
	assert.Equal(t, 8, w.lookup(messages.Prefix{Tokens: run(0, 14)}).MatchedTokens,
		"at once, for others")
	w.commitTo(l, 14)
	assert.ErrorIs(t, commit(w, l, 15), messages.ErrBadRequest)
	twice := &messages.Commit{Steps: []messages.CommitStep{{Sequence: l.id, Computed: 14},
		{Sequence: l.id, Computed: 14}}}
	w.do(twice)
	assert.NoError(t, twice.Results[0].Err)
	assert.ErrorIs(t, twice.Results[1].Err, messages.ErrBadRequest)
}

// Pages for the next chunk are taken by the commit, and announced by it.
func TestACommitAnswersThePagesOfTheNextChunk(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 6}, {Primary: 8}}})
	a, l := w.admitAs(chunked(run(0, 24), 8))
	assert.Len(t, a.Tables[0][0], 2)
	assert.Len(t, a.Tables[1][0], 6)
	r := w.commitTo(l, 8)
	assert.Len(t, r.NewPages[0], 2)
	assert.Empty(t, r.NewPages[1])
	r = w.commitTo(l, 16)
	assert.Len(t, r.NewPages[0], 2)
	table := w.tables(l.id)[0][0]
	// Position 16 attends to 9 and later: blocks 0 and 1 have left.
	assert.Equal(t, []bool{true, true, false, false, false, false}, without(table))
	r = w.commitTo(l, 24)
	assert.Empty(t, r.NewPages[0])
}

// without tells which blocks have no page.
func without(table []messages.PageID) []bool {
	var none []bool
	for _, page := range table {
		none = append(none, page == messages.NoPage)
	}
	return none
}

// A pin of host contents must not move to the sheltered page of a prefill that
// computes the same block: its reserve would no longer do.
func TestAPinInHostMemoryLeavesTheReserve(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{4}, pages: []windows.PageCounts{{Primary: 4, Secondary: 2}}})
	_, l := w.admitAs(chunked(run(1, 16), 4))
	w.store(run(1, 8))
	w.admitAs(request(run(100, 8)))
	w.commitTo(l, 4)
	pin := &messages.PinPrefix{Prefix: messages.Prefix{Tokens: run(1, 8)}}
	w.do(pin)
	require.NoError(t, pin.Err)
	w.commitTo(l, 8)
	w.commitTo(l, 12)
	w.commitTo(l, 16)
	w.release(l)
}

// What other sequences of the commit drop is free for the next chunk, wherever
// they stand in it.
func TestAChunkTakesWhatTheCommitDrops(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{4}, pages: []windows.PageCounts{{Primary: 4}}})
	w.store(run(900, 4))
	_, sequences := w.admitBatch(chunked(run(0, 12), 4), request(append(run(0, 4), run(50, 4)...)))
	w.assertCounts(0, 3, 1, 0)
	first := w.tables(sequences[1].id)[0][0][0]
	w.write(sequences[0], 0, 4)
	w.write(sequences[1], 0, 8)
	m := &messages.Commit{Steps: []messages.CommitStep{{Sequence: sequences[0].id, Computed: 4},
		{Sequence: sequences[1].id, Computed: 8}}}
	w.Do(m)
	assert.Equal(t, []messages.PageID{first}, m.Results[0].NewPages[0])
	assert.Zero(t, w.stats().Pools[0].Evicted)
}

// A prompt in chunks that is lost keeps what it holds until it is released, but its
// reserve ends with the recovery; every call about it says so.
func TestAChunkedPrefillThatIsLost(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 6}, {Primary: 20}}})
	_, l := w.admitAs(chunked(run(0, 40), 8))
	w.commitTo(l, 8)
	room := func() int {
		_, _, err := w.tryAdmit(request(run(500, 36)))
		return refusal(t, err).Available
	}
	before := room()
	n := injection{world: w, own: true}
	require.True(t,
		n.serve(&messages.Commit{Steps: []messages.CommitStep{{Sequence: l.id, Computed: 16}}}))
	require.True(t, n.aborted)
	delete(w.running, l.id)
	w.quiet = true
	assert.Equal(t, before, room(), "the reserve of four pages has ended, four are held")
	assert.ErrorIs(t, commit(w, l, 16), messages.ErrSequenceLost)
	fork := &messages.Fork{Steps: []messages.ForkStep{{Sequence: l.id, Count: 1}}}
	w.Do(fork)
	assert.ErrorIs(t, fork.Results[0].Err, messages.ErrSequenceLost)
	w.releaseLost(messages.StepResult{Sequence: l.id, Err: messages.ErrSequenceLost})
	assert.Equal(t, 6, room())
	w.check()
}
