package oracle_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/oracle"
	"github.com/kvactor/kvactor/messages"
)

// holes draws a table: a dash for a block whose window has passed.
func holes(table []messages.PageID) string {
	s := ""
	for _, pg := range table {
		if pg == messages.NoPage {
			s += "-"
		} else {
			s += "x"
		}
	}
	return s
}

func TestBlocksLeaveTheWindowAndSinksStay(t *testing.T) {
	sinking := limited(12, 0)
	sinking.Sink = 3
	b := world(t, limited(12, 0), func() oracle.PoolConfig {
		p := sinking
		p.Name, p.KVHeads = "w5h2", 2
		return p
	}(), full(12, 0))
	tests := []struct {
		length      int
		plain, sink string
	}{
		{7, "xx", "xx"},
		{8, "-x", "xx"}, // token 3 lies before 8−5+1
		{11, "-xx", "xxx"},
		{12, "--x", "x-x"},
		{13, "--xx", "x-xx"},
	}
	for _, x := range tests {
		a := b.prefill(messages.AdmitRequest{Tokens: count(100*x.length, x.length)})
		require.Equal(t, x.plain, holes(b.table(a.Sequence, 0)), "%d tokens", x.length)
		require.Equal(t, x.sink, holes(b.table(a.Sequence, 1)), "%d tokens", x.length)
		b.releaseAll(a.Sequence)
	}
}

func TestAMatchNeedsTheWindowOnly(t *testing.T) {
	b := world(t, limited(4, 0), full(12, 0))
	b.visit(count(1, 12)) // 1, 2 left the window at the admission, 3 at the release
	b.visit(count(50, 8)) // takes the free page and that of block 1, the deepest of those
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 13)})
	require.Equal(t, 12, a.ReusedTokens)
	require.Equal(t, "--xx", holes(b.table(a.Sequence, 0)))
	require.Equal(t, 1, a.Reuse[0].Full)
	require.Equal(t, 3, a.Reuse[1].Full)
}

func TestChunkedPrefill(t *testing.T) {
	b := world(t, limited(6, 0), full(12, 0))
	a := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 22), ChunkTokens: 4})
	require.Equal(t, "x", holes(b.table(a.Sequence, 0)))
	require.Equal(t, "xxxxxx", holes(b.table(a.Sequence, 1)))

	// It reserves ⌈4/4⌉ + 1 = 2 of 6: 4 are left, and its own page is none of them.
	_, err := b.Admit(ctx, messages.AdmitRequest{Tokens: count(100, 20)})
	b.refused(err, 5, 4)

	for _, wrong := range []int{3, 8, 22} { // off a boundary, past the chunk
		r, err := b.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: wrong}})
		require.NoError(t, err)
		b.code(messages.ErrBadRequest, r[0].Err)
	}
	require.Len(t, b.computed(a.Sequence, 4).NewPages[0], 1)
	require.Empty(t, b.computed(a.Sequence, 4).NewPages[0], "again: nothing changes")

	// Who claims a page of its own pays for it.
	c := b.admitOnly(messages.AdmitRequest{Tokens: count(1, 5)})
	require.Equal(t, 4, c.ReusedTokens)
	_, err = b.Admit(ctx, messages.AdmitRequest{Tokens: count(100, 12)})
	b.refused(err, 3, 2)

	for _, next := range []int{8, 12, 16, 20, 22} {
		b.computed(a.Sequence, next)
	}
	require.Equal(t, "----xx", holes(b.table(a.Sequence, 0)))
	// Its reserve has ended: it holds 2, the other 2.
	_, err = b.Admit(ctx, messages.AdmitRequest{Tokens: count(100, 12)})
	b.refused(err, 3, 2)
}

func TestCopyOnWriteAmongForks(t *testing.T) {
	b := world(t, full(5, 0))
	a := b.tokens(count(1, 6))
	forks, err := forkOf(b, a.Sequence, 2)
	require.NoError(t, err)
	require.Equal(t, 2, b.pool(0).Primary.Used)
	require.Len(t, b.add(a.Sequence, 7).NewPages[0], 1)
	require.Len(t, b.add(forks[0], 8).NewPages[0], 1)
	require.Empty(t, b.add(forks[1], 9).NewPages[0], "the last holder writes in place")
	require.Equal(t, 4, b.pool(0).Primary.Used)

	// The next block: one page is left.
	require.NoError(t, b.add(a.Sequence, 1, 2).Err)
	b.refused(b.add(forks[0], 1, 2).Err, 1, 0)
	require.NoError(t, b.add(forks[0], 1).Err, "a refused step has changed nothing")
}

func TestRewindIntoAStoredBlockCopiesIt(t *testing.T) {
	b := world(t, full(6, 0))
	a := b.tokens(count(1, 4))
	b.add(a.Sequence, count(5, 5)...)
	b.computed(a.Sequence, 8)
	require.NoError(t, b.RewindOne(ctx, a.Sequence, 3))
	b.code(messages.ErrBadRequest, b.RewindOne(ctx, a.Sequence, 3))
	require.Len(t, b.add(a.Sequence, 99).NewPages[0], 1)
	require.Equal(t, 8, shareOf(b, count(1, 8)), "what is stored stays whole")
}

func TestRewindBehindTheWindowIsRefused(t *testing.T) {
	b := world(t, limited(8, 0))
	a := b.tokens(count(1, 6))
	b.add(a.Sequence, count(7, 6)...)
	b.computed(a.Sequence, 11)
	require.Equal(t, "-xx", holes(b.table(a.Sequence, 0)))
	b.code(messages.ErrNotSupported, b.RewindOne(ctx, a.Sequence, 5)) // token 7 attends to 3
	require.NoError(t, b.RewindOne(ctx, a.Sequence, 4))
	require.Equal(t, "-x", holes(b.table(a.Sequence, 0)))
}

func TestDraftsAreNotStored(t *testing.T) {
	b := world(t, full(6, 0))
	a := b.tokens(count(1, 4))
	b.add(a.Sequence, count(5, 6)...)
	b.computed(a.Sequence, 6)
	b.releaseAll(a.Sequence)
	require.Equal(t, 6, b.found(count(1, 12)).MatchedTokens)
}

func TestBeams(t *testing.T) {
	b := world(t, full(12, 0))
	a := b.prefill(messages.AdmitRequest{Tokens: count(1, 6), BeamWidth: 2})
	step := func(x, y messages.BeamStep) messages.StepResult {
		n := 7
		if s := b.table(a.Sequence, 0); len(s) > 2 {
			n = 9
		}
		r, err := b.Append(ctx,
			[]messages.AppendStep{{Sequence: a.Sequence, Beams: []messages.BeamStep{x, y}, Computed: n - 1}})
		require.NoError(t, err)
		return r[0]
	}
	require.Len(t, step(messages.BeamStep{Parent: 0, Token: 7},
		messages.BeamStep{Parent: 0, Token: 70}).NewPages[0], 1)
	require.Equal(t, 4, b.found(count(1, 9)).MatchedTokens, "only the prompt's full blocks are stored")
	require.Len(t, step(messages.BeamStep{Parent: 1, Token: 8},
		messages.BeamStep{Parent: 1, Token: 80}).NewPages[0], 1)
	b.releaseAll(a.Sequence)
	require.Equal(t, 6, b.found(append(count(1, 6), 70, 1)).MatchedTokens,
		"as far as it was committed")
}

func TestAStepRefusesOneSequenceAndServesTheOthers(t *testing.T) {
	b := world(t, full(4, 0))
	x, y := b.tokens(count(1, 4)), b.tokens(count(11, 8))
	r, err := b.Append(ctx, []messages.AppendStep{
		{Sequence: 99, Tokens: count(1, 1)},
		{Sequence: x.Sequence, Tokens: count(1, 1)},
		{Sequence: x.Sequence, Tokens: count(1, 1)},
		{Sequence: y.Sequence, Tokens: count(1, 1)},
	})
	require.NoError(t, err)
	b.code(messages.ErrUnknownSequence, r[0].Err)
	require.NoError(t, r[1].Err)
	b.code(messages.ErrBadRequest, r[2].Err)
	b.refused(r[3].Err, 1, 0)
}

// forker is the oracle, or what wraps it.
type forker interface {
	Fork(context.Context, []messages.ForkStep) ([]messages.ForkResult, error)
}

// forkOf makes n forks of a sequence.
func forkOf(o forker, id messages.SequenceID, n int) ([]messages.SequenceID, error) {
	results, err := o.Fork(context.Background(), []messages.ForkStep{{Sequence: id, Count: n}})
	if err != nil {
		return nil, err
	}
	return results[0].Forks, results[0].Err
}
