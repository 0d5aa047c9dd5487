package resources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// A plan of what a model's layers keep has the pools of the model.
func TestOfModel(t *testing.T) {
	shared := windows.Model{
		Layers: 4, KVHeads: []int{2, 2, 0, 0}, HeadDim: 16, DType: windows.Float16, MaxSeqLen: 512,
		SharedKV: []int{0, 1, 1, 3}, NoCache: []int{3},
	}
	both := windows.Model{
		Layers: 2, KVHeads: []int{1}, HeadDim: 16, DType: windows.Float16, MaxSeqLen: 512,
		States: []windows.State{{Layers: []int{0, 1}, Bytes: 4096 * 7}},
	}
	models := map[string]windows.Model{"shared": shared, "both": both}
	caches := map[string]windows.Config{"shared": windows.DefaultConfig(),
		"both": windows.DefaultConfig()}
	for name, p := range windows.Presets() {
		cache := windows.DefaultConfig()
		cache.MaxAttentionWindow = p.MaxAttentionWindow
		models[name], caches[name] = p.Model, cache
	}
	for name, m := range models {
		c, err := OfModel(m, caches[name])
		require.NoError(t, err, name)
		p, err := c.Plan(Options{Cache: caches[name], MaxSeqLen: m.MaxSeqLen, MaxSequences: 1})
		require.NoError(t, err, name)
		want, err := windows.Pools(m, caches[name])
		require.NoError(t, err)
		assert.Equal(t, want, p.Pools, name)
		assert.Empty(t, p.ReuseRefused)
	}
	c, err := OfModel(shared, windows.DefaultConfig())
	require.NoError(t, err)
	assert.Equal(t, []string{"kv_cache_0", "kv_cache_1", "kv_cache_2"}, c.Names())
	_, err = OfModel(windows.Model{}, windows.DefaultConfig())
	require.ErrorContains(t, err, "layers 0")
}
