package kvactor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/host"
)

// storedOnlyEngine has two pools, one with a window, and states if asked for, with few pages.
func storedOnlyEngine(t *testing.T, pages int, states bool) *kvactor.Engine {
	device, err := host.New(host.Config{MemoryBytes: 64 << 20})
	require.NoError(t, err)
	model := kvactor.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 4, DType: kvactor.Float16,
		MaxSeqLen: 1024}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, []int{8, 1024}
	counts := []kvactor.PageCounts{{Primary: pages}, {Primary: pages}}
	if states {
		model.Layers, model.KVHeads = 3, []int{1, 1, 0}
		model.States = []kvactor.State{{Layers: []int{2}, Bytes: 64}}
		cache.MaxAttentionWindow = []int{8, 1024, 1024}
		counts = append(counts, kvactor.PageCounts{Primary: pages})
	}
	engine, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device,
		Pages: counts})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, engine.Check(context.Background()))
		_, err := engine.Close(context.Background())
		require.NoError(t, err)
		require.NoError(t, device.Close())
	})
	return engine
}

func count(n int, from kvactor.Token) (list []kvactor.Token) {
	for i := range n {
		list = append(list, from+kvactor.Token(i))
	}
	return list
}

// storeAll computes a prompt.
func storeAll(t *testing.T, e *kvactor.Engine, tokens []kvactor.Token, cuts ...int) {
	s, err := e.Admit(t.Context(), kvactor.AdmitRequest{Tokens: tokens})
	require.NoError(t, err)
	for _, at := range append(cuts, len(tokens)) {
		require.NoError(t, s.Commit(t.Context(), at, kvactor.Ticket{}))
	}
	require.NoError(t, s.Release(t.Context(), kvactor.Ticket{}))
}

func usedPages(t *testing.T, e *kvactor.Engine) (n int) {
	stats, err := e.Stats(t.Context())
	require.NoError(t, err)
	for _, p := range stats.Pools {
		n += p.Primary.Used
	}
	return n
}

// An admission of what is stored takes no page: it succeeds where all others hold the rest, and
// holds what it has found until it is released.
func TestStoredOnlyTakesNoPages(t *testing.T) {
	e := storedOnlyEngine(t, 8, false)
	ctx, tokens := t.Context(), count(16, 100)
	storeAll(t, e, tokens)
	other, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: count(16, 500)})
	require.NoError(t, err)
	before := usedPages(t, e)

	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: append(tokens, 1, 2, 3, 4, 5, 6, 7, 8, 9),
		StoredOnly: true})
	require.NoError(t, err)
	assert.Equal(t, []int{16, 16, 16, 16}, []int{s.Reused(), s.Len(), s.Prompt(), s.Computed()})
	assert.Equal(t, kvactor.ReasonHit, s.Admitted().MissReason)
	assert.Len(t, s.Tables()[1][0], 4)
	assert.Equal(t, kvactor.NoPage, s.Tables()[0][0][0], "the window has passed the first block")
	assert.Equal(t, before+2+4, usedPages(t, e))
	require.NoError(t, e.Check(ctx))
	_, err = e.Admit(ctx, kvactor.AdmitRequest{Tokens: count(4, 900)})
	require.ErrorIs(t, err, kvactor.ErrOutOfPages, "the claim keeps its pages")

	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 16+16+25, stats.PromptTokens, "the whole prompt was asked for")
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	require.NoError(t, other.Release(ctx, kvactor.Ticket{}))
	assert.Zero(t, usedPages(t, e))
}

// Where nothing is stored, nothing is held; the reason is told.
func TestStoredOnlyOfNothing(t *testing.T) {
	for _, states := range []bool{false, true} {
		e := storedOnlyEngine(t, 8, states)
		storeAll(t, e, count(8, 100), 4)
		item := kvactor.MultimodalItem{Start: 1, Length: 2}
		batch := []kvactor.Admission{
			{Request: kvactor.AdmitRequest{Tokens: count(9, 500), StoredOnly: true}},
			{Request: kvactor.AdmitRequest{Tokens: count(9, 100), StoredOnly: true}},
			{Request: kvactor.AdmitRequest{Tokens: count(9, 100), Multimodal: []kvactor.MultimodalItem{item},
				StoredOnly: true}},
			{Request: kvactor.AdmitRequest{Tokens: count(9, 100), StoredOnly: true, BeamWidth: 2}},
			{Request: kvactor.AdmitRequest{Tokens: count(9, 100), StoredOnly: true, ChunkTokens: 4}},
		}
		require.Error(t, e.AdmitBatch(t.Context(), batch))
		assert.Equal(t, 0, batch[0].Sequence.Reused())
		assert.Equal(t, kvactor.ReasonCold, batch[0].Sequence.Admitted().MissReason)
		assert.Equal(t, 8, batch[1].Sequence.Reused())
		assert.Equal(t, 0, batch[2].Sequence.Reused(), "of other content")
		require.ErrorIs(t, batch[3].Err, kvactor.ErrBadRequest)
		require.ErrorIs(t, batch[4].Err, kvactor.ErrBadRequest)
		require.ErrorIs(t, batch[0].Sequence.Release(t.Context(), kvactor.Ticket{}),
			kvactor.ErrUnknownSequence)
		require.NoError(t, batch[1].Sequence.Release(t.Context(), kvactor.Ticket{}))
		assert.Zero(t, usedPages(t, e))
	}
}

// What is stored can be continued like any sequence.
func TestStoredOnlyGoesOn(t *testing.T) {
	for _, states := range []bool{false, true} {
		e := storedOnlyEngine(t, 16, states)
		ctx, tokens := t.Context(), count(16, 100)
		storeAll(t, e, tokens[:8], 4)
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: tokens, StoredOnly: true})
		require.NoError(t, err)
		require.Equal(t, 8, s.Len())
		require.NoError(t, s.Append(ctx, tokens[8:]...))
		require.NoError(t, e.Check(ctx))
		require.NoError(t, s.Commit(ctx, 16, kvactor.Ticket{}))
		require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
		found, err := e.Lookup(ctx, kvactor.Prefix{Tokens: append(tokens, 1)})
		require.NoError(t, err)
		if !states {
			assert.Equal(t, 16, found.MatchedTokens)
		}
	}
}
