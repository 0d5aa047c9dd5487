package kvactor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

// A fork of a model with recurrent layers has a page of its own for the state, and the
// tickets of its copy; so has the sequence that was forked, which would write to what is
// being read.
func TestForksOfStates(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
			States: []kvactor.State{{Layers: []int{1}, Bytes: 256}},
		},
		Cache: cache, Device: device,
	})
	require.NoError(t, err)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 5, kvactor.Ticket{}))
	forks, err := s.Fork(ctx, 2)
	require.NoError(t, err)
	all := append(forks, s)
	states := map[kvactor.PageID]bool{}
	for _, q := range all {
		requireTables(t, e, q)
		assert.NotEmpty(t, q.Ready())
		for p, pool := range e.Pools() {
			if pool.Kind == kvactor.KindState {
				states[q.Tables()[p][0][0]] = true
			}
		}
	}
	assert.Len(t, states, 3, "each has a page for the state")
	var steps []kvactor.Step
	for i, q := range all {
		steps = append(steps, kvactor.Step{Sequence: q, Tokens: []kvactor.Token{kvactor.Token(i)}})
	}
	require.NoError(t, e.Append(ctx, steps))
	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{{Sequence: s}})
	for p, pool := range e.Pools() {
		assert.Equal(t, pool.Kind == kvactor.KindAttention, len(in.Pools[p].Slots) == 1, pool.Name)
	}
	for _, q := range all {
		requireTables(t, e, q)
		require.NoError(t, q.Release(ctx, kvactor.Ticket{}))
	}
}

// requireTables holds the tables of a sequence to those of the engine.
func requireTables(t *testing.T, e *kvactor.Engine, s *kvactor.Sequence) {
	t.Helper()
	tables, err := e.Actors().TablesOf(ctx, s.ID())
	require.NoError(t, err)
	require.Equal(t, tables, s.Tables())
}
