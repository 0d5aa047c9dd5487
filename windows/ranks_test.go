package windows_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// rankPageBytes are those of the pools of a model.
func rankPageBytes(t *testing.T, m windows.Model) (bytes []int64) {
	t.Helper()
	c := windows.DefaultConfig()
	c.TokensPerBlock, c.MaxAttentionWindow = 32, []int{m.MaxSeqLen}
	pools, err := windows.Pools(m, c)
	require.NoError(t, err)
	for _, p := range pools {
		bytes = append(bytes, p.PageBytes())
	}
	return bytes
}

// The pages of a rank are its share of those of the model: the part of its heads, all of
// a head that is on several ranks, all of a latent vector, its part of a state. The
// scales of 4-bit elements and the side bytes of a token go with the heads.
func TestOfRank(t *testing.T) {
	llama := windows.Model{Layers: 32, KVHeads: []int{8}, HeadDim: 128, DType: windows.BFloat16,
		MaxSeqLen: 1024}
	latent := windows.Model{Layers: 61, KVHeads: []int{1}, HeadDim: 576, KVFactor: 1,
		DType: windows.BFloat16, MaxSeqLen: 1024}
	hybrid := windows.Model{
		Layers: 4, KVHeads: []int{2, 0, 0, 2}, HeadDim: 64, DType: windows.Float16, MaxSeqLen: 1024,
		States: []windows.State{{Layers: []int{1, 2}, Bytes: 1 << 16}},
	}
	small := llama
	small.DType = windows.NVFP4
	const tokens = 32
	for _, c := range []struct {
		name   string
		model  windows.Model
		ranks  int
		want   []int64
		copies int // of layer 0
	}{
		{"one", llama, 1, []int64{32 * tokens * 8 * 128 * 2 * 2}, 1},
		{"divided", llama, 4, []int64{32 * tokens * 2 * 128 * 2 * 2}, 1},
		{"a head each", llama, 8, []int64{32 * tokens * 1 * 128 * 2 * 2}, 1},
		{"a head on two", llama, 16, []int64{32 * tokens * 1 * 128 * 2 * 2}, 2},
		{"scales of 4-bit elements", small, 4, []int64{32 * tokens * 2 * (128/2 + 128/16) * 2}, 1},
		{"latent", latent, 8, []int64{61 * tokens * 576 * 2}, 8},
		{"states", hybrid, 2, []int64{2 * tokens * 1 * 64 * 2 * 2, 2 * 1 << 15}, 1},
		{"states, heads repeated", hybrid, 4, []int64{2 * tokens * 1 * 64 * 2 * 2, 2 * 1 << 14}, 2},
	} {
		own, err := c.model.OfRank(c.ranks)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, rankPageBytes(t, own), c.name)
		assert.Equal(t, c.copies, c.model.Copies(0, c.ranks), c.name)
	}
	assert.Zero(t, hybrid.Copies(1, 2), "a recurrent layer has no heads")
	assert.Equal(t, int64(1<<16), hybrid.States[0].Bytes, "the model is as it was")
	assert.Equal(t, []int{2, 0, 0, 2}, hybrid.KVHeads)

	_, err := llama.OfRank(3)
	require.EqualError(t, err, "windows: 8 KV heads cannot be divided between 3 devices")
	_, err = llama.OfRank(12)
	require.EqualError(t, err, "windows: 8 KV heads cannot be divided between 12 devices")
	_, err = llama.OfRank(0)
	require.EqualError(t, err, "windows: 0 devices are not within 1 and 1024")
	hybrid.States[0].Bytes = 6
	_, err = hybrid.OfRank(4)
	require.Error(t, err, "which has 2 heads, repeated, and states of 6 bytes")
	t5 := windows.Model{Layers: 2, KVHeads: []int{4}, HeadDim: 8, DType: windows.Float16,
		MaxSeqLen: 64, CrossLayers: 2, CrossKVHeads: 4, EncoderMaxLen: 64}
	own, err := t5.OfRank(2)
	require.NoError(t, err)
	assert.Equal(t, 2, own.CrossKVHeads)
	t5.CrossKVHeads = 5
	_, err = t5.OfRank(2)
	require.Error(t, err)
}
