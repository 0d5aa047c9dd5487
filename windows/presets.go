package windows

// Preset is the shape of a published model and the attention windows of its
// layers.
type Preset struct {
	Model
	MaxAttentionWindow []int // for Config; nil: all layers full
}

// Presets gives shapes of some published models by name, for demos, benchmarks
// and sizing. The shapes are those of the models' published configurations,
// not checked against any file; a host that has the model knows better. The names
// are those under which the models were published, such as Llama-3.1-8B.
func Presets() map[string]Preset {
	return map[string]Preset{
		"Llama-3.1-8B":    {Model: shape{32, 8, 128, 131072}.model()},
		"Llama-3.2-1B":    {Model: shape{16, 8, 64, 131072}.model()},
		"Qwen3-8B":        {Model: shape{36, 8, 128, 40960}.model()},
		"Mistral-7B-v0.1": {Model: shape{32, 8, 128, 32768}.model(), MaxAttentionWindow: []int{4096}},
		// Five local layers, then a global one.
		"Gemma-3-1B":  {Model: shape{26, 1, 256, 32768}.model(), MaxAttentionWindow: []int{512, 512, 512, 512, 512, 32768}},
		"Gemma-3-4B":  {Model: shape{34, 4, 256, 131072}.model(), MaxAttentionWindow: []int{1024, 1024, 1024, 1024, 1024, 131072}},
		"Gemma-3-27B": {Model: shape{62, 16, 128, 131072}.model(), MaxAttentionWindow: []int{1024, 1024, 1024, 1024, 1024, 131072}},
		// Local and global layers in turn.
		"GPT-OSS-20B": {Model: shape{24, 8, 64, 131072}.model(), MaxAttentionWindow: []int{128, 131072}},
	}
}

// shape is a model whose layers are all alike.
type shape struct{ layers, heads, dim, maxSeqLen int }

// model is the shape in bfloat16.
func (s shape) model() Model {
	return Model{Layers: s.layers, KVHeads: []int{s.heads}, HeadDim: s.dim, DType: BFloat16, MaxSeqLen: s.maxSeqLen}
}
