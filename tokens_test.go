package kvactor_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
)

// A sequence knows its tokens, whatever the host does with the slices that it has given.
func TestTokens(t *testing.T) {
	e := open(t, 16)
	defer shut(t, e)
	prompt := []kvactor.Token{1, 2, 3, 4, 5}
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
	require.NoError(t, err)
	prompt[0] = 9
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	more := []kvactor.Token{6, 7, 8}
	require.NoError(t, s.Append(ctx, more...))
	more[0] = 9
	assert.Equal(t, []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8}, s.Tokens(0))
	require.NoError(t, s.Rewind(ctx, 2))
	assert.Equal(t, []kvactor.Token{1, 2, 3, 4, 5, 6}, s.Tokens(0))
	require.ErrorIs(t, s.Rewind(ctx, 2), kvactor.ErrBadRequest)
	assert.Len(t, s.Tokens(0), s.Len(), "a refused step changes nothing")

	forks, err := s.Fork(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, forks[0].Append(ctx, 10))
	require.NoError(t, s.Append(ctx, 11))
	for sequence, last := range map[*kvactor.Sequence][]kvactor.Token{
		s: {11}, forks[0]: {10}, forks[1]: nil,
	} {
		assert.Equal(t, append([]kvactor.Token{1, 2, 3, 4, 5, 6}, last...), sequence.Tokens(0))
	}

	require.NoError(t, s.Commit(ctx, 7, kvactor.Ticket{}))
	var file bytes.Buffer
	held, err := e.Export(ctx, s, &file)
	require.NoError(t, err)
	other := open(t, 16)
	defer shut(t, other)
	in, err := other.Import(ctx, &file)
	require.NoError(t, err)
	assert.Equal(t, s.Tokens(0), in.Sequence.Tokens(0))
	require.NoError(t, held.Release(ctx))
	require.NoError(t, in.Sequence.Release(ctx, kvactor.Ticket{}))
	last := s.Tokens(0)
	for _, sequence := range append([]*kvactor.Sequence{s}, forks...) {
		require.NoError(t, sequence.Release(ctx, kvactor.Ticket{}))
		assert.Nil(t, sequence.Tokens(0))
		// The memory of the prompt is used again, but not while a fork has it.
		again, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{70, 71, 72}})
		require.NoError(t, err)
		for _, fork := range forks {
			if tokens := fork.Tokens(0); tokens != nil {
				assert.Equal(t, last[:6], tokens[:6])
			}
		}
		require.NoError(t, again.Release(ctx, kvactor.Ticket{}))
	}

	stored, err := e.Admit(ctx, kvactor.AdmitRequest{
		Tokens: []kvactor.Token{1, 2, 3, 4, 50, 60}, StoredOnly: true,
	})
	require.NoError(t, err)
	assert.Equal(t, []kvactor.Token{1, 2, 3, 4}, stored.Tokens(0))
	require.NoError(t, stored.Release(ctx, kvactor.Ticket{}))
}

// Each beam has the tokens of the beams that it goes on from.
func TestTokensOfBeams(t *testing.T) {
	e := open(t, 32)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2}, BeamWidth: 2})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 2, kvactor.Ticket{}))
	for _, beams := range [][]kvactor.BeamStep{
		{{Parent: 0, Token: 3}, {Parent: 1, Token: 4}},
		{{Parent: 1, Token: 5}, {Parent: 1, Token: 6}},
		{{Parent: 1, Token: 7}, {Parent: 0, Token: 8}},
	} {
		require.NoError(t, e.Append(ctx, []kvactor.Step{{Sequence: s, Beams: beams}}))
	}
	assert.Equal(t, []kvactor.Token{1, 2, 4, 6, 7}, s.Tokens(0))
	assert.Equal(t, []kvactor.Token{1, 2, 4, 5, 8}, s.Tokens(1))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// The page numbers of tables and of inputs have one type, of 32 bits.
func TestOneTypeOfPages(t *testing.T) {
	var in kvactor.PoolInputs
	var tables kvactor.Tables
	page := reflect.TypeOf(tables).Elem().Elem().Elem()
	assert.Equal(t, page, reflect.TypeOf(in.BlockTables).Elem())
	assert.Equal(t, page, reflect.TypeOf(in.PageIndices).Elem())
	assert.EqualValues(t, 4, page.Size())
}

// Layers are located by their numbers in the model, in one pool each.
func TestViewByLayer(t *testing.T) {
	e := open(t, 8) // layer 0 has a window, layer 1 none
	defer shut(t, e)
	for layer := range 2 {
		for _, part := range []kvactor.Part{kvactor.Keys, kvactor.Values} {
			pool, view, ok := e.View(layer, part)
			require.True(t, ok)
			assert.Equal(t, []int{layer}, e.Pools()[pool].Layers)
			want, _ := e.Pools()[pool].View(0, part)
			assert.Equal(t, want, view)
		}
	}
	for _, layer := range []int{-1, 2} {
		_, _, ok := e.View(layer, kvactor.Keys)
		assert.False(t, ok)
	}
	_, _, ok := e.View(0, kvactor.KeyScales)
	assert.False(t, ok)
}
