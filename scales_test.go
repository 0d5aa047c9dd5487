package kvactor_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/offloader/stores"
)

// scaled opens an engine of FP8 pages on a store.
func scaled(t *testing.T, store stores.Store) *kvactor.Engine {
	t.Helper()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 18})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 16, DType: kvactor.FP8,
			MaxSeqLen: 256},
		Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 16, Secondary: 16}},
	}, actors.WithStore(actors.StoreConfig{Store: store, Model: "m", Save: actors.SaveOnCommit}))
	require.NoError(t, err)
	return e
}

// Scales belong to the bytes that were divided by them: under other scales nothing is found, in
// the engine or in a store, and what runs keeps the scales that it was computed with.
func TestScalesBelongToTheirBytes(t *testing.T) {
	store := &stores.Memory{}
	halved := []kvactor.LayerScale{{Layer: 0, K: 0.5, V: 0.5}}
	prompt := kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 17)}
	a, b := scaled(t, store), scaled(t, store)
	defer shut(t, a)
	defer shut(t, b)
	require.NoError(t, a.SetScales(ctx, halved))
	s, err := a.Admit(ctx, prompt)
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 17, kvactor.Ticket{}))
	require.ErrorIs(t, a.SetScales(ctx, []kvactor.LayerScale{{Layer: 0, K: 8, V: 8}}),
		kvactor.ErrNotSupported)
	require.NoError(t, a.SetScales(ctx, halved), "the engine has these already")
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	_, err = actors.StoreOf(a.Actors()).Flush(ctx, 0)
	require.NoError(t, err)

	reused := func(e *kvactor.Engine) int {
		_, err := actors.StoreOf(e.Actors()).Fetch(ctx, kvactor.Prefix{Tokens: prompt.Tokens})
		require.NoError(t, err)
		s, err := e.Admit(ctx, prompt)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Release(ctx, kvactor.Ticket{})) }()
		return s.Reused()
	}
	assert.Equal(t, 16, reused(a))
	assert.Zero(t, reused(b), "the scales of b are 1")
	require.NoError(t, b.SetScales(ctx, halved))
	assert.Equal(t, 16, reused(b), "from the store")
	require.NoError(t, b.SetScales(ctx, []kvactor.LayerScale{{Layer: 0, K: 0.5, V: 8}}))
	assert.Zero(t, reused(b))
}

// Every way in gives a prompt the engine's scales: what was computed elsewhere for this engine is
// admitted and found, and what a sequence of other scales has is refused.
func TestScalesOfWhatComesIn(t *testing.T) {
	a, b := scaled(t, &stores.Memory{}), scaled(t, &stores.Memory{})
	defer shut(t, a)
	defer shut(t, b)
	require.NoError(t, a.SetScales(ctx, []kvactor.LayerScale{{Layer: 0, K: 0.5, V: 0.5}}))
	tokens := make([]kvactor.Token, 16)
	s, _, err := a.AdmitComputed(ctx, kvactor.AdmitRequest{Tokens: tokens})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 16, kvactor.Ticket{}))
	found, err := a.Lookup(ctx, kvactor.Prefix{Tokens: append(slices.Clone(tokens), 1)})
	require.NoError(t, err)
	assert.Equal(t, 16, found.MatchedTokens)

	var stream bytes.Buffer
	_, err = a.Export(ctx, s, &stream)
	require.NoError(t, err)
	_, err = b.Import(ctx, &stream)
	require.ErrorIs(t, err, kvactor.ErrNotSupported)
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}
