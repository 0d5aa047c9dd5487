package hfconfig

import (
	"slices"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// stateType is the element type of recurrent states: the host's choice, else the
// file's, else that of the model.
// Only the recurrent part has this type; ConvDType is that of the convolution.
func (r *reading) stateType() windows.DType {
	name := r.stateDType
	if name == "" || name == windows.AutoDType {
		name = r.config.text("mamba_ssm_cache_dtype")
	}
	if name == "" || name == windows.AutoDType {
		name = r.config.text("mamba_ssm_dtype")
	}
	return r.named(name)
}

// named is the element type of states by its name, that of the model for none.
func (r *reading) named(name string) windows.DType {
	if name == "" || name == windows.AutoDType {
		return r.dtype
	}
	d, ok := dtypes[strings.TrimPrefix(name, "torch.")]
	if !ok {
		r.config.say("the element type %q of states is not one of bfloat16, float16, float32", name)
		return windows.Float32
	}
	return d
}

// The sizes below are those of the frameworks that serve these models. A state has
// two parts: the last inputs of a causal convolution, which runs over the
// projections before the recurrence, and the recurrent state itself, one matrix for
// each head.

// conv is the state of a causal convolution: the last inputs of each channel, one
// fewer than the kernel, since the newest comes with the token.
// The answer is in bytes. A kernel of 1 keeps nothing.
func (r *reading) conv(channels, kernel int) int64 {
	return int64(channels) * int64(max(0, kernel-1)) * int64(r.named(r.convDType).Bytes())
}

// recurrent is a recurrent state of so many elements. It is often kept in more
// bits than keys and values: errors add up over the tokens.
// The answer is in bytes: the product of the factors and the size of an element.
func (r *reading) recurrent(factors ...int) int64 {
	bytes := int64(r.stateType().Bytes())
	for _, f := range factors {
		bytes *= int64(f)
	}
	return bytes
}

// split is the share of one device of heads of states. They cannot be repeated as
// KV heads are: each device updates its own.
// After a problem the quotient is rounded down, and at least 1: the error is reported
// anyway.
func (r *reading) split(n int, what string) int {
	if n%r.tp != 0 {
		r.config.say("%d %s cannot be divided between %d devices", n, what, r.tp)
	}
	return max(1, n/r.tp)
}

// mamba2 is the state of a layer of a selective state space model with heads:
// the convolution runs over the inner channels and, for each group, over the
// input and output vectors of the state.
type mamba2 struct{ heads, headDim, state, groups, kernel int }

// mamba2 is the bytes of such a state on one device:
//
//	conv       (heads·head dim + 2·groups·state)·(kernel − 1)
//	recurrent  heads·head dim·state
func (r *reading) mamba2(m mamba2) int64 {
	heads, groups := r.split(m.heads, "state heads"), 1
	if m.groups > 1 { // one group is repeated on every device
		groups = r.split(m.groups, "state groups")
	}
	return r.conv(heads*m.headDim+2*groups*m.state, m.kernel) + r.recurrent(heads, m.headDim, m.state)
}

// mamba1 is the state of a layer of a selective state space model without heads:
// each inner channel has a vector of the state's size. Inner channels are the width
// times mamba_expand.
//
//	conv       inner channels·(kernel − 1)
//	recurrent  inner channels·state
func (r *reading) mamba1() int64 {
	inner := r.split(r.config.or(2, "mamba_expand")*r.config.need(widthKeys...), "state channels")
	return r.conv(inner, r.config.need("mamba_d_conv")) + r.recurrent(inner, r.config.need("mamba_d_state"))
}

// gatedDelta is Qwen3-Next and Qwen3.5: every fourth layer has attention, the
// others linear attention by the gated delta rule. Its convolution runs over the
// queries, keys and values; queries have the shape of keys.
//
//	conv       (2·key heads·key dim + value heads·value dim)·(kernel − 1)
//	recurrent  value heads·value dim·key dim
func (r *reading) gatedDelta() {
	attention := r.attention()
	keys, values := r.split(r.config.need("linear_num_key_heads"), "key heads"), r.split(r.config.need("linear_num_value_heads"), "value heads")
	keyDim, valueDim := r.config.need("linear_key_head_dim"), r.config.need("linear_value_head_dim")
	state := r.conv(2*keys*keyDim+values*valueDim, r.config.need("linear_conv_kernel_dim")) + r.recurrent(values, valueDim, keyDim)
	// All layers are recurrent first; those with attention are replaced.
	r.fill(layer{state: state})
	interval := max(1, r.config.or(4, "full_attention_interval"))
	types := r.types()
	for i := range r.layers {
		if types == nil && (i+1)%interval == 0 || types != nil && types[i] == "full_attention" {
			r.layers[i] = attention
		}
	}
}

// kimi is Kimi Linear: latent attention in some layers, gated delta attention
// with a state of float32 in the others. Queries, keys and values have a
// convolution each, of one shape. The lists of layers begin with 1.
// The recurrent part is not asked of stateType: it is float32 whatever the host chooses.
func (r *reading) kimi() {
	linear := r.config.part("linear_attn_config")
	if linear == nil {
		r.config.say("linear_attn_config is missing")
		return
	}
	heads, dim := r.split(linear.need("num_heads"), "state heads"), linear.need("head_dim")
	state := r.conv(3*heads*dim, linear.need("short_conv_kernel_size")) + int64(heads)*int64(dim)*int64(dim)*int64(windows.Float32.Bytes())
	r.fill(layer{state: state})
	for _, n := range linear.numbers("full_attn_layers") {
		if n < 1 || n > len(r.layers) {
			r.config.say("full_attn_layers: there is no layer %d", n)
			continue
		}
		r.layers[n-1] = r.latentLayer()
	}
}

// jamba has attention in one layer of each period, attn_layer_offset layers after
// its begin, and a state in all others.
// The period and the offset are counted from layer 0.
func (r *reading) jamba() {
	attention := r.attention()
	r.fill(layer{state: r.mamba1()})
	period, offset := r.config.need("attn_layer_period"), r.config.or(0, "attn_layer_offset")
	for i := range r.layers {
		if i%period == offset {
			r.layers[i] = attention
		}
	}
}

// bamba names the layers with attention.
// Its list begins with 0, and all layers that are not in it have states.
func (r *reading) bamba() {
	attention := r.attention()
	r.fill(layer{state: r.mamba2(r.mambaKeys())})
	for _, i := range r.config.numbers("attn_layer_indices") {
		if i < 0 || i >= len(r.layers) {
			r.config.say("attn_layer_indices: there is no layer %d", i)
			continue
		}
		r.layers[i] = attention
	}
}

// mambaKeys are the sizes of a state by the keys that most models use. A file that
// names no groups has one.
func (r *reading) mambaKeys() mamba2 {
	return mamba2{
		heads: r.config.need("mamba_n_heads"), headDim: r.mambaHeadDim(), state: r.config.need("mamba_d_state"),
		groups: r.config.or(1, "mamba_n_groups"), kernel: r.config.need("mamba_d_conv"),
	}
}

// mambaHeadDim is the size of a head, which a file may leave to the width.
func (r *reading) mambaHeadDim() int {
	if key, v := r.config.find("mamba_d_head"); key != "" && v != "auto" {
		return r.config.need(key)
	}
	return r.config.or(2, "mamba_expand") * r.config.need(widthKeys...) / r.config.need("mamba_n_heads")
}

// granite has attention or a state in each layer, as layer_types says. A model
// without recurrent layers has no keys of their sizes, so they are read only if
// there are any.
func (r *reading) granite() {
	attention := r.attention()
	r.fill(attention)
	types := r.types()
	if types == nil {
		r.config.say("layer_types is missing")
	}
	var state int64
	if slices.Contains(types, "mamba") {
		state = r.mamba2(r.mambaKeys())
	}
	for i, t := range types {
		switch t {
		case "mamba":
			r.layers[i] = layer{state: state}
		case "attention", "full_attention":
		default:
			r.config.say("layer_types: %q of layer %d is not known", t, i)
		}
	}
}

// nemotron draws its layers in a pattern of letters, or names them: M for a state,
// * for attention, - and E for feed-forward layers, which keep nothing. The number
// of layers is that of the letters; num_hidden_layers may be absent.
func (r *reading) nemotron() {
	attention := r.attention()
	state := r.mamba2(mamba2{
		heads: r.config.need("mamba_num_heads"), headDim: r.config.need("mamba_head_dim"), state: r.config.need("ssm_state_size"),
		groups: r.config.or(1, "n_groups"), kernel: r.config.need("conv_kernel"),
	})
	blocks := r.config.texts("layers_block_type")
	for _, letter := range r.config.text("hybrid_override_pattern") {
		blocks = append(blocks, string(letter))
	}
	if len(blocks) == 0 {
		r.config.say("hybrid_override_pattern is missing")
	}
	for i, b := range blocks {
		switch b {
		case "M", "mamba":
			r.layers = append(r.layers, layer{state: state})
		case "*", "attention":
			r.layers = append(r.layers, attention)
		case "-", "E", "mlp", "moe":
			r.layers = append(r.layers, layer{})
		default:
			r.config.say("hybrid_override_pattern: %q of layer %d is not known", b, i)
		}
	}
}

// falconH1 has attention and a state in every layer.
// Such a layer is in two pools: one of keys and values, one of states.
func (r *reading) falconH1() {
	l := r.attention()
	l.state = r.mamba2(r.mambaKeys())
	r.fill(l)
}

// unbounded are the model types without attention. Their files name no longest
// sequence, because a state has the same size after any number of tokens.
var unbounded = map[string]bool{"mamba": true, "mamba2": true, "falcon_mamba": true}

// onlyStates refuses a model without attention: windows.Model needs a layer with
// keys and values. The error has the bytes of the states of one sequence. They are
// all that a sequence of such a model takes, so a host can plan memory by them.
func (r *reading) onlyStates() {
	kernel, state := r.config.need("conv_kernel"), r.config.need("state_size")
	var bytes int64
	if r.kind == "mamba2" {
		bytes = r.mamba2(mamba2{heads: r.config.need("num_heads"), headDim: r.config.need("head_dim"), state: state, groups: r.config.or(1, "n_groups"), kernel: kernel})
	} else {
		inner := r.split(r.innerChannels(), "state channels")
		bytes = r.conv(inner, kernel) + r.recurrent(inner, state)
	}
	layers := r.config.need(layerKeys...)
	r.config.say("model_type %q has no attention, and a cache needs a layer with keys and values: a sequence takes %d bytes of states, in %d layers",
		r.kind, int64(layers)*bytes, layers)
}

// innerChannels is the width of a recurrent layer without heads. A file that does
// not name it has the width of the model times expand.
func (r *reading) innerChannels() int {
	if r.config.has("intermediate_size") {
		return r.config.need("intermediate_size")
	}
	return r.config.or(2, "expand") * r.config.need(widthKeys...)
}

// defaults are the class defaults of model types whose files leave keys out:
// nested text parts above all. There are only those that the readers need.
// ReadValues does not use them.
var defaults = map[string]map[string]any{
	"llama":        {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048},
	"mistral":      {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072},
	"qwen2":        {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768},
	"gemma2":       {"hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096},
	"gemma3_text":  {"hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096},
	"gemma3n_text": {"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768, "sliding_window": 512, "num_kv_shared_layers": 15},
	"cohere":       {"hidden_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 64, "max_position_embeddings": 8192},
	"cohere2":      {"sliding_window": 4096},
	"gpt_oss":      {"sliding_window": 128},
	"llama4_text":  {"hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "attention_chunk_size": 8192},
	"qwen3_next": {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
		"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32},
	"jamba": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262144,
		"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
	"mamba":   {"hidden_size": 768, "num_hidden_layers": 32, "state_size": 16, "conv_kernel": 4},
	"mamba2":  {"num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8, "conv_kernel": 4},
	"t5":      {"d_kv": 64, "num_layers": 6, "num_heads": 8, "n_positions": 512},
	"whisper": {"max_source_positions": 1500, "max_target_positions": 448},
}
