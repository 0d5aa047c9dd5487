package kvactor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
)

// A prompt that was computed elsewhere needs the pages that the next token attends to.
func TestAdmitComputed(t *testing.T) {
	for _, states := range []bool{false, true} {
		e := storedOnlyEngine(t, 8, states)
		ctx, tokens := t.Context(), count(16, 100)
		more := append(tokens[:16:16], 1)
		s, missing, err := e.AdmitComputed(ctx, kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		blocks := make([][]int, 3)
		for _, m := range missing {
			blocks[m.Pool] = append(blocks[m.Pool], m.Block)
			assert.Equal(t, s.Tables()[m.Pool][0][m.Block], m.Page)
		}
		assert.Equal(t, []int{2, 3}, blocks[0], "of the window")
		assert.Equal(t, []int{0, 1, 2, 3}, blocks[1])
		require.NoError(t, e.Check(ctx))

		// Nobody finds it before the commit, nor after a release without one.
		found, err := e.Lookup(ctx, kvactor.Prefix{Tokens: more})
		require.NoError(t, err)
		assert.Zero(t, found.MatchedTokens)
		require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: s, Discard: true}}))
		assert.Zero(t, usedPages(t, e))
		found, err = e.Lookup(ctx, kvactor.Prefix{Tokens: more})
		require.NoError(t, err)
		assert.Zero(t, found.MatchedTokens)

		s, _, err = e.AdmitComputed(ctx, kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, 16, kvactor.Ticket{}))
		require.NoError(t, e.Check(ctx))
		require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
		found, err = e.Lookup(ctx, kvactor.Prefix{Tokens: more})
		require.NoError(t, err)
		assert.Equal(t, 16, found.MatchedTokens)
		found, err = e.Lookup(ctx, kvactor.Prefix{Tokens: append(tokens[:8:8], 7)})
		require.NoError(t, err)
		assert.Zero(t, found.MatchedTokens, "the window of a shorter prompt is not there")

		s, missing, err = e.AdmitComputed(ctx, kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		if !states {
			assert.Empty(t, missing, "all is stored")
		}
		require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: s, Discard: true}}))
		require.NoError(t, e.SetWeights(ctx, "others"))
		s, missing, err = e.AdmitComputed(ctx, kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		assert.NotEmpty(t, missing)
		require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: s, Discard: true}}))
	}
}

// What makes no sense of computed tokens is refused, and so is what does not fit.
func TestAdmitComputedRefuses(t *testing.T) {
	e := storedOnlyEngine(t, 8, false)
	for _, r := range []kvactor.AdmitRequest{
		{}, {Tokens: count(4, 1), BeamWidth: 2}, {Tokens: count(4, 1), ChunkTokens: 4},
		{Tokens: count(4, 1), StoredOnly: true},
		{Tokens: []kvactor.Token{-1}},
	} {
		_, _, err := e.AdmitComputed(t.Context(), r)
		require.ErrorIs(t, err, kvactor.ErrBadRequest)
	}
	_, _, err := e.AdmitComputed(t.Context(), kvactor.AdmitRequest{Tokens: count(40, 1)})
	require.ErrorIs(t, err, kvactor.ErrOutOfPages)
}
