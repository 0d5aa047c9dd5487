package windows

import "slices"

// Preset is the shape of a published model and the attention windows of its
// layers.
type Preset struct {
	Model
	MaxAttentionWindow []int // for Config; nil: all layers full
}

// Presets returns the shapes of some published models by name, for demos,
// benchmarks and sizing. A test holds them against what package hfconfig reads
// from extracts of the published files. A host that has a model's files reads them
// instead. The names are those under which the models were published.
func Presets() map[string]Preset {
	return map[string]Preset{
		"Llama-3.1-8B":    {Model: shape{32, 8, 128, 131072}.model()},
		"Llama-3.2-1B":    {Model: shape{16, 8, 64, 131072}.model()},
		"Qwen3-8B":        {Model: shape{36, 8, 128, 40960}.model()},
		"Mistral-7B-v0.1": {Model: shape{32, 8, 128, 32768}.model(), MaxAttentionWindow: []int{4096}},
		// Five local layers, then a global one.
		"Gemma-3-1B": {Model: shape{26, 1, 256, 32768}.model(),
			MaxAttentionWindow: []int{512, 512, 512, 512, 512, 32768}},
		"Gemma-3-4B": {Model: shape{34, 4, 256, 131072}.model(),
			MaxAttentionWindow: []int{1024, 1024, 1024, 1024, 1024, 131072}},
		"Gemma-3-27B": {Model: shape{62, 16, 128, 131072}.model(),
			MaxAttentionWindow: []int{1024, 1024, 1024, 1024, 1024, 131072}},
		// Local and global layers in turn.
		"GPT-OSS-20B": {Model: shape{24, 8, 64, 131072}.model(), MaxAttentionWindow: []int{128, 131072}},
		// One latent vector of 512 + 64 elements a token.
		"DeepSeek-V3": {Model: Model{Layers: 61, KVHeads: []int{1}, HeadDim: 576, KVFactor: 1,
			DType: BFloat16, MaxSeqLen: 163840}},
		// Three layers with chunks, then a global one.
		"Llama-4-Scout": {Model: Model{
			Layers: 48, KVHeads: []int{8}, HeadDim: 128, DType: BFloat16, MaxSeqLen: 10485760,
			AttentionChunk: slices.Repeat([]int{8192, 8192, 8192, 0}, 12),
		}},
		// Three layers of linear attention, then one with keys and values.
		"Qwen3-Next-80B-A3B": {Model: Model{
			Layers: 48, KVHeads: slices.Repeat([]int{0, 0, 0, 2}, 12), HeadDim: 256, DType: BFloat16,
			MaxSeqLen: 262144,
			States:    []State{{Layers: except(48, 3), Bytes: 49152 + 1048576}},
		}},
	}
}

// except lists the layers of which the remainder by 4 is not last.
func except(layers, last int) []int {
	var list []int
	for i := range layers {
		if i%4 != last {
			list = append(list, i)
		}
	}
	return list
}

// shape is a model whose layers are all alike.
type shape struct{ layers, heads, dim, maxSeqLen int }

// model is the shape in bfloat16.
func (s shape) model() Model {
	return Model{Layers: s.layers, KVHeads: []int{s.heads}, HeadDim: s.dim, DType: BFloat16,
		MaxSeqLen: s.maxSeqLen}
}
