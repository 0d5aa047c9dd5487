package windows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallModels are the presets, and a model with all that tells pools apart.
func smallModels() map[string]Preset {
	models := Presets()
	models["mixed"] = Preset{Model: Model{
		Layers: 7, KVHeads: []int{1, 1, 1, 1, 1, 0, 0}, MaxSeqLen: 512,
		SharedKV: []int{0, 1, 2, 3, 4, 4, 6},
		Shapes: []Shape{
			{HeadDim: 64, DType: Float16}, {HeadDim: 64, DType: FP8},
			{HeadDim: 64, ValueDim: 32, DType: Float16},
			{HeadDim: 64, DType: Float16, SideBytes: 132}, {HeadDim: 64, KVFactor: 1, DType: NVFP4}, {}, {},
		},
		States: []State{{Layers: []int{0, 1}, Bytes: 1 << 20}, {Layers: []int{6}, Bytes: 1 << 16}},
	}}
	return models
}

// What decides about pools and pages stays, and the bytes go.
func TestSmall(t *testing.T) {
	for name, p := range smallModels() {
		for _, dtype := range []string{AutoDType, "fp8"} {
			c := DefaultConfig()
			c.MaxAttentionWindow, c.DType = p.MaxAttentionWindow, dtype
			want, err := Pools(p.Model, c)
			require.NoError(t, err, name)
			got, err := Pools(p.Small(), c)
			require.NoError(t, err, name)
			require.Len(t, got, len(want), name)
			for i, pool := range got {
				assert.LessOrEqual(t, pool.PageBytes(), int64(128<<10), name)
				w := want[i]
				w.HeadDim, w.ValueDim, w.SideBytes, w.StateBytes = pool.HeadDim, pool.ValueDim, 0,
					pool.StateBytes
				assert.Equal(t, w, pool, name)
			}
		}
	}
	assert.Equal(t, int64(1<<20), smallModels()["mixed"].States[0].Bytes, "the model is as it was")
}
