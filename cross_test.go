package kvactor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

// Inputs of an encoder–decoder model have the block table of the encoder's input in the
// cross pool, and no slots there: the positions are those of the decoder.
func TestInputsOfTheCrossPool(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.CrossKVCacheFraction = 4, 0.25
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
			CrossLayers: 2, CrossKVHeads: 1, EncoderMaxLen: 64,
		},
		Cache: cache, Device: device,
	})
	require.NoError(t, err)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2},
		Encoder: make([]kvactor.Token, 6)})
	require.NoError(t, err)
	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{{Sequence: s}})
	require.Len(t, in.Pools, 2)
	assert.Len(t, in.Pools[0].Slots, 2)
	assert.Empty(t, in.Pools[1].Slots)
	assert.Equal(t, 2, in.Pools[1].Stride)
	cross := in.Pools[1].BlockTables
	assert.Equal(t, cross[:2], s.Admitted().Cross.Table)
	reads, writes := in.Accesses(e)
	assert.Empty(t, reads)
	assert.Len(t, writes, 1, "of the decoder")
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}
