package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/hfconfig"
)

// Two sizes of heads, a layer that reads another's keys and values, a state and a layer with
// nothing.
func TestDeclare(t *testing.T) {
	m := windows.Model{
		Layers: 6, KVHeads: []int{2, 2, 2, 0, 0, 0}, MaxSeqLen: 1024, SharedKV: []int{0, 1, 2, 2, 4, 5},
		NoCache: []int{5},
		Shapes: []windows.Shape{
			{HeadDim: 64, DType: windows.Float16},
			{HeadDim: 64, DType: windows.Float16},
			{HeadDim: 128, DType: windows.Float16},
			{}, {}, {},
		},
		States: []windows.State{{Layers: []int{4}, Bytes: 4096}},
	}
	r := Request{Model: hfconfig.Model{Preset: windows.Preset{Model: m}},
		Cache: windows.DefaultConfig()}
	list, err := r.Declare()
	require.NoError(t, err)
	const differs = "head_dim 128 differs from 64 of kv_cache_0"
	assert.Equal(t, []Kept{
		{
			Layers: []int{0}, Keeps: "2 KV heads x 64 float16, kv_factor 2, HND", Pool: "wfullh2",
			TokenBytes: 512,
			Reason:     "the first keys and values, the reference of the others; its pool has 2 layers",
		},
		{
			Layers: []int{1}, Keeps: "2 KV heads x 64 float16, kv_factor 2, HND", Pool: "wfullh2",
			TokenBytes: 512,
			Reason: "agrees with kv_cache_0 in head_dim, dtype, kv_factor and kv_layout; its pool has " +
				"2 layers",
		},
		{
			Layers: []int{2}, Keeps: "2 KV heads x 128 float16, kv_factor 2, HND", Pool: "wfullh2.2",
			TokenBytes: 1024,
			Reason:     differs + ": another pool; alone in its pool", AutoDeploy: differs,
		},
		{
			Layers: []int{3}, Keeps: "the keys and values of layer 2", Pool: "wfullh2.2",
			Reason: "where kv_cache_2 is; alone in its pool", AutoDeploy: "where kv_cache_2 is",
		},
		{
			Layers: []int{4}, Keeps: "recurrent state", Pool: "state", SequenceBytes: 4096,
			Reason: "a checkpointable state is part of its layer's state; alone in its pool",
		},
	}, list)
	var b strings.Builder
	require.NoError(t, (&Plan{Resources: list}).declared(&b))
	assert.Contains(t, b.String(), "layer 2: 2 KV heads x 128 float16, kv_factor 2, HND\n"+
		"    1.0 KiB a token in pages of pool wfullh2.2: "+differs+": another pool; alone in its pool\n"+
		"    local in TensorRT-LLM's AutoDeploy: "+differs+"\n")
}

// Each layer of each preset that keeps something is listed once.
func TestDeclarePresets(t *testing.T) {
	for name, preset := range windows.Presets() {
		r := Request{Model: hfconfig.Model{Preset: preset}, Cache: windows.DefaultConfig()}
		list, err := r.Declare()
		require.NoError(t, err, name)
		seen := map[int]bool{}
		for _, k := range list {
			for _, l := range k.Layers {
				assert.False(t, seen[l], name)
				seen[l] = true
			}
			assert.Positive(t, k.TokenBytes+k.SequenceBytes, name)
		}
		assert.Len(t, seen, preset.Layers, name)
	}
}

func TestLayers(t *testing.T) {
	assert.Equal(t, "layer 3", layers([]int{3}))
	assert.Equal(t, "layers 0-2 4 6-7", layers([]int{0, 1, 2, 4, 6, 7}))
}
