package windows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hybrid is the model of four attention layers and four recurrent ones, one
// layer with both and one with neither.
func hybrid() (Model, Config) {
	m := Model{
		Layers: 8, KVHeads: []int{0, 2, 0, 2, 0, 2, 2, 0}, HeadDim: 8, DType: Float16, MaxSeqLen: 4096,
		States:  []State{{Layers: []int{4, 0, 2}, Bytes: 300}, {Layers: []int{5}, Bytes: 100}},
		NoCache: []int{7},
	}
	c := DefaultConfig()
	c.TokensPerBlock, c.MaxAttentionWindow = 4, []int{4096, 16}
	return m, c
}

func TestStatePools(t *testing.T) {
	m, c := hybrid()
	pools, err := Pools(m, c)
	require.NoError(t, err)
	var got []string
	for _, p := range pools {
		got = append(got, p.Kind.String()+" "+p.String())
	}
	assert.Equal(t, []string{
		"attention w16h2 float16x8 layers 1 3 5 page 768 B",
		"attention wfullh2 float16x8 layers 6 page 256 B",
		"state state 300 B layers 0 2 4 page 900 B",
		"state state.2 100 B layers 5 page 100 B",
	}, got)
	for _, p := range pools[2:] {
		assert.False(t, p.Full())
		assert.Zero(t, p.SinkBlocks())
		assert.Zero(t, p.PrefillReserve(64))
		assert.Equal(t, 2, p.Need(4096), "the working page and a checkpoint")
	}
	c.EnableBlockReuse = false
	pools, err = Pools(m, c)
	require.NoError(t, err)
	assert.Equal(t, 1, pools[2].Need(1), "the working page")
	assert.True(t, m.Recurrent())
	assert.Equal(t, "kind 9", Kind(9).String())
}

// The states of a page lie one behind the other, in the order of the pool's layers.
func TestViewOfAState(t *testing.T) {
	m, c := hybrid()
	pools, err := Pools(m, c)
	require.NoError(t, err)
	v, ok := pools[2].View(1, RecurrentState) // layer 2 of the layers 0, 2, 4
	assert.True(t, ok)
	assert.Equal(t, View{Offset: 300, RowBytes: 300}, v)
	for i, pool := range pools {
		_, ok = pool.View(0, RecurrentState)
		assert.Equal(t, pool.Kind == KindState, ok, i)
		_, ok = pool.View(3, RecurrentState)
		assert.False(t, ok, i)
	}
}

// States of equal size are one pool, however they are listed.
func TestStatesOfOneSizeAreOnePool(t *testing.T) {
	m, c := hybrid()
	m.States = []State{{Layers: []int{4}, Bytes: 300}, {Layers: []int{2}, Bytes: 100},
		{Layers: []int{0}, Bytes: 300}}
	pools, err := Pools(m, c)
	require.NoError(t, err)
	require.Len(t, pools, 4)
	assert.Equal(t, []int{0, 4}, pools[2].Layers)
	assert.Equal(t, "state", pools[2].Name)
	assert.Equal(t, []int{2}, pools[3].Layers)
}

// TestSplitWithStates: bytes by need, two pages of each state pool a sequence;
// max_tokens caps attention only.
func TestSplitWithStates(t *testing.T) {
	m, c := hybrid()
	c.ExpectedSeqLen = 64 // needs: 5 × 768, 16 × 256, 2 × 900, 2 × 100 = 9936 bytes
	pools, err := Pools(m, c)
	require.NoError(t, err)
	pages, err := Divide(pools, m, c, 10*9936)
	require.NoError(t, err)
	assert.Equal(t, []int{50, 160, 20, 20}, pages)

	c.MaxTokens = 8
	pages, err = Divide(pools, m, c, 2*768+2*256+5*900+5*100)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2, 5, 5}, pages)

	c.MaxTokens, c.PoolFractions = 0, map[string]float64{"w16h2": 0.25, "wfullh2": 0.25, "state": 0.25,
		"state.2": 0.25}
	pages, err = Divide(pools, m, c, 4*9000)
	require.NoError(t, err)
	assert.Equal(t, []int{11, 37, 10, 90}, pages,
		"592 bytes are left, two pages of the pool with the fewest sequences")
}

// TestLayersThatShare: a layer that reads another's keys and values has no pages.
func TestLayersThatShare(t *testing.T) {
	m := Model{Layers: 6, KVHeads: []int{2}, HeadDim: 8, DType: Float16, MaxSeqLen: 64,
		SharedKV: []int{0, 1, 2, 3, 2, 3}}
	c := DefaultConfig()
	c.MaxAttentionWindow = []int{16, 64}
	pools, err := Pools(m, c)
	require.NoError(t, err)
	require.Len(t, pools, 2)
	assert.Equal(t, []int{0, 2}, pools[0].Layers)
	assert.Equal(t, []int{1, 3}, pools[1].Layers)
	owner, ok := m.KVLayer(5)
	assert.True(t, ok)
	assert.Equal(t, 3, owner)
}

// TestChunkedAttention: names, order and needs of a pool with chunks.
func TestChunkedAttention(t *testing.T) {
	m := Model{Layers: 4, KVHeads: []int{2}, HeadDim: 8, DType: Float16, MaxSeqLen: 64,
		AttentionChunk: []int{16, 16, 0, 64}}
	c := DefaultConfig()
	c.TokensPerBlock, c.MaxAttentionWindow = 4, []int{64, 64, 16, 64}
	pools, err := Pools(m, c)
	require.NoError(t, err)
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"w16h2", "c16h2", "wfullh2"}, names)
	p := pools[1]
	assert.Equal(t, []int{0, 1}, p.Layers)
	assert.True(t, p.Needs(4, 20))
	assert.False(t, p.Needs(3, 20), "another chunk")
	assert.False(t, p.Needs(3, 16), "a new chunk begins and needs nothing")
	assert.True(t, p.Needs(3, 15))
	assert.Equal(t, 4, p.FirstKept(16), "all blocks of the chunk are dropped")
	assert.Equal(t, 5, p.Need(64))
	assert.Equal(t, 4+8, p.PrefillReserve(32))
}
