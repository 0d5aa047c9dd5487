package kvactor_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
)

// stateModel is the host of a model whose layers have only states. Its state after some tokens
// is their sum, in every byte of the page: what it reads tells which tokens it has seen.
type stateModel struct {
	*testing.T
	engine *kvactor.Engine
	device *sim.Device
	stream gpu.Stream
}

// newStateModel opens an engine with two layers of states of one size.
func newStateModel(t *testing.T, pages kvactor.PageCounts) *stateModel {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize = 4, 100
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{0}, MaxSeqLen: 64,
			States: []kvactor.State{{Layers: []int{0, 1}, Bytes: 32}},
		},
		Cache: cache, Device: device, Pages: []kvactor.PageCounts{pages},
	})
	require.NoError(t, err)
	stream, err := device.NewStream("compute")
	require.NoError(t, err)
	return &stateModel{t, e, device, stream}
}

// compute runs the kernel of the tokens that are behind those computed, and returns its ticket.
// The kernel checks the state that it begins with.
func (m *stateModel) compute(
	s *kvactor.Sequence, tokens []kvactor.Token, computed int,
) kvactor.Ticket {
	slot := gpu.Slot{Pool: m.engine.DevicePools()[0], Tier: kvactor.Primary, Page: s.Tables()[0][0][0]}
	ran, err := m.device.Launch(m.stream, gpu.Kernel{
		Label: "step", Waits: slices.Clone(s.Ready()), Writes: []gpu.Access{{Slot: slot}},
		Run: func(pages gpu.PageBytes) {
			page := pages(slot)
			assert.Equal(m, bytes.Repeat([]byte{sum(tokens[:computed])}, 64), page,
				"the state after %d tokens", computed)
			for i := range page {
				page[i] = sum(tokens)
			}
		},
	})
	require.NoError(m, err)
	return ran
}

func sum(tokens []kvactor.Token) (n byte) {
	for _, t := range tokens {
		n += byte(t)
	}
	return n
}

// serve admits a prompt, computes it from one of its checkpoints to the next, and releases it.
func (m *stateModel) serve(prompt ...kvactor.Token) *kvactor.Admitted {
	s, err := m.engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
	require.NoError(m, err)
	admitted := *s.Admitted()
	for _, end := range append(slices.Clone(admitted.Checkpoints), len(prompt)) {
		ran := m.compute(s, prompt[:end], s.Computed())
		require.NoError(m, s.Commit(ctx, end, ran))
	}
	require.NoError(m, s.Release(ctx, kvactor.Ticket{}))
	require.NoError(m, m.engine.Check(ctx))
	return &admitted
}

func (m *stateModel) close() {
	shut(m.T, m.engine)
	require.NoError(m, m.device.Close())
}

// TestStatesAlone: a model without attention reuses the longest stored state of a prompt: of its
// own end, or of a branch, from device and host memory.
func TestStatesAlone(t *testing.T) {
	m := newStateModel(t, kvactor.PageCounts{Primary: 3, Secondary: 16})
	defer m.close()
	first := []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	a := m.serve(first...)
	assert.Zero(t, a.ReusedTokens)
	assert.Equal(t, kvactor.ReasonCold, a.MissReason)
	assert.Equal(t, []int{12}, a.Checkpoints)

	// The conversation goes on behind the state of the release.
	a = m.serve(append(first, 14, 15, 16, 17)...)
	assert.Equal(t, 13, a.ReusedTokens)
	assert.Equal(t, kvactor.ReasonHit, a.MissReason)

	// Another prompt leaves the first behind two blocks: no state is there, so it makes one.
	branch := []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8, 20, 21}
	a = m.serve(branch...)
	assert.Zero(t, a.ReusedTokens)
	assert.Equal(t, 8, a.AttentionTokens, "so far the prompt leads to stored states")
	assert.Equal(t, kvactor.ReasonNoState, a.MissReason)
	assert.Equal(t, []int{8}, a.Checkpoints)
	a = m.serve(1, 2, 3, 4, 5, 6, 7, 8, 30, 31)
	assert.Equal(t, 8, a.ReusedTokens)

	stats, err := m.engine.Stats(ctx)
	require.NoError(t, err)
	assert.NotZero(t, stats.Pools[0].Offloaded,
		"three pages of the device do not hold all that was reused")
	assert.Equal(t, 13, m.serve(append(first, 18)...).ReusedTokens, "from host memory")
}

// TestRequestsOfStatesAlone: lookups, pins, prefetches and invalidations take states alone as
// those of hybrid models.
func TestRequestsOfStatesAlone(t *testing.T) {
	m := newStateModel(t, kvactor.PageCounts{Primary: 4, Secondary: 8})
	defer m.close()
	prompt := []kvactor.Token{1, 2, 3, 4, 5, 6, 7, 8, 9}
	m.serve(prompt...)
	prefix := kvactor.Prefix{Tokens: prompt[:8]}
	found, err := m.engine.Lookup(ctx, kvactor.Prefix{Tokens: prompt})
	require.NoError(t, err)
	assert.Equal(t, 8, found.MatchedTokens)
	pin, err := m.engine.Pin(ctx, prefix)
	require.NoError(t, err)
	assert.Equal(t, 8, pin.Tokens)
	for i := range kvactor.Token(8) { // what is pinned survives a crowd
		m.serve(100+i, 1, 2, 3, 4, 5)
	}
	assert.Equal(t, 8, m.serve(prompt...).ReusedTokens)
	require.NoError(t, m.engine.Unpin(ctx, pin.Pin))
	_, err = m.engine.Prefetch(ctx, prefix)
	require.NoError(t, err)

	batch, err := m.engine.Events(ctx, events.FirstReader)
	require.NoError(t, err)
	assert.NotEmpty(t, batch.Events)
	n, err := m.engine.Invalidate(ctx, kvactor.Selector{Prefix: &prefix})
	require.NoError(t, err)
	assert.Equal(t, 2, n, "the states behind eight tokens and behind nine")
	assert.Zero(t, m.serve(prompt...).ReusedTokens)
	require.NoError(t, m.engine.Reset(ctx))
	assert.Zero(t, m.serve(prompt...).ReusedTokens)
}
