package hfconfig

import (
	"slices"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// readLayers fills in the layers by the model type.
// A reader that knows the type goes before the common keys.
func (r *reading) readLayers() {
	if read, ok := readers[r.kind]; ok {
		read(r)
		return
	}
	if key := r.unreadable(); key != "" {
		r.config.say("model_type %q is not known, and %s says that its cache is not that of plain attention", r.kind, key)
		return
	}
	r.plain()
}

// readers are the model types whose layers do not follow from the common keys, or
// whose files have keys that mean nothing for them. Types such as llama, glm4_moe
// and olmo3 are not among them: the common keys, with layer_types, say everything.
var readers map[string]func(*reading)

func init() { // an initializer would refer to itself through the functions
	readers = map[string]func(*reading){
		// All layers have the window of sliding_window, if it is not null.
		"mistral": (*reading).windowed, "mixtral": (*reading).windowed, "phi3": (*reading).windowed, "starcoder2": (*reading).windowed,
		"ministral": (*reading).windowed, "ministral3": (*reading).windowed,

		// sliding_window is in every file and almost never used.
		"qwen2": (*reading).upperWindows, "qwen2_moe": (*reading).upperWindows, "qwen3": (*reading).upperWindows, "qwen3_moe": (*reading).upperWindows,
		"qwen2_vl": (*reading).upperWindows, "qwen2_5_vl": (*reading).upperWindows, "qwen2_vl_text": (*reading).upperWindows, "qwen2_5_vl_text": (*reading).upperWindows,
		"qwen3_vl_text": (*reading).upperWindows, "qwen3_vl_moe_text": (*reading).upperWindows,

		// Every n-th layer has full attention, the others windows or chunks.
		"gemma2": every(2, "sliding_window_pattern"), "gemma3_text": every(6, "sliding_window_pattern", "_sliding_window_pattern"),
		"gemma3": every(6, "sliding_window_pattern", "_sliding_window_pattern"), "cohere2": (*reading).cohere2, "gpt_oss": (*reading).gptOSS,
		"llama4_text": (*reading).llama4, "llama4": (*reading).llama4,

		// The same, and layers that differ in their heads or share them.
		"gemma3n_text": (*reading).gemma3n, "gemma3n": (*reading).gemma3n, "gemma4_text": (*reading).gemma4, "gemma4": (*reading).gemma4,
		"mimo_v2_flash": (*reading).mimo, "nemotron-nas": (*reading).deci, "deci": (*reading).deci,

		// One latent vector a token.
		"deepseek_v2": (*reading).latent, "deepseek_v3": (*reading).latent, "kimi_k2": (*reading).latent, "glm4_moe_lite": (*reading).latent,
		"deepseek_v32": (*reading).latent, "glm_moe_dsa": (*reading).latent, "longcat_flash": (*reading).latent,

		// Recurrent layers.
		"qwen3_next": (*reading).gatedDelta, "qwen3_5": (*reading).gatedDelta, "qwen3_5_text": (*reading).gatedDelta,
		"qwen3_5_moe": (*reading).gatedDelta, "qwen3_5_moe_text": (*reading).gatedDelta,
		"kimi_linear": (*reading).kimi, "jamba": (*reading).jamba, "bamba": (*reading).bamba, "granitemoehybrid": (*reading).granite,
		"nemotron_h": (*reading).nemotron, "falcon_h1": (*reading).falconH1,
		"mamba": (*reading).onlyStates, "mamba2": (*reading).onlyStates, "falcon_mamba": (*reading).onlyStates,

		// An encoder and a decoder.
		"t5": (*reading).t5, "mt5": (*reading).t5, "umt5": (*reading).t5, "whisper": (*reading).whisper,
		"bart": (*reading).bart, "mbart": (*reading).bart, "marian": (*reading).bart, "pegasus": (*reading).bart,
	}
}

// revealing are parts of keys that other than plain attention has. Models give
// their own names to what makes their layers differ, so parts of words are
// looked for; a key that is off (null, false, 0, empty) does not count.
var revealing = []string{
	"window", "sliding", "chunk_size", "layer_types", "lora_rank", "mamba", "ssm", "linear_", "conv", "state_size", "recurrent", "hybrid", "layers_block_type",
	"block_configs", "shared_layers", "global_head_dim", "swa_", "index_head", "index_topk", "sparse_attention", "attn_layer", "attn_type_list", "compress",
	"is_encoder_decoder", "cross_attention", "lightning", "kda", "delta_", "retention", "time_mix", "v_head_dim", "value_head_dim",
}

// harmless are keys that contain such a part and mean something else.
var harmless = map[string]bool{
	"max_window_layers": true, "use_sliding_window": true, "layer_types": true, "sliding_window": true, "attention_chunk_size": true,
	"chunk_size_feed_forward": true, "add_cross_attention": true, "compression_config": true,
}

// unreadable is a key that the common rules do not explain, "" if there is none.
// Keys are tried in alphabetical order, so that the same file gives the same error.
// A layer_types whose entries are all known is as good as a known model type; a
// window or chunk without it could be of all layers or of some.
func (r *reading) unreadable() string {
	for _, key := range r.config.keys() {
		if r.config.has(key) && !harmless[key] && slices.ContainsFunc(revealing, func(part string) bool { return strings.Contains(key, part) }) {
			return key
		}
	}
	switch types := r.config.texts("layer_types"); {
	case len(types) > 0:
		for _, t := range types {
			if !slices.Contains(commonTypes, t) {
				return "layer_types"
			}
		}
	case r.config.has("sliding_window") && r.config.flag("use_sliding_window", true):
		return "sliding_window"
	case r.config.has("attention_chunk_size"):
		return "attention_chunk_size"
	}
	return ""
}

// commonTypes are the entries of layer_types that mean the same in every model.
var commonTypes = []string{"full_attention", "sliding_attention", "chunked_attention", "attention", "global", "global_attention"}

// plain is attention of one shape in all layers. layer_types may give some of
// them windows or chunks; all other words in it have been refused, or stand for
// full attention.
func (r *reading) plain() {
	r.fill(r.attention())
	for i, t := range r.types() {
		switch t {
		case "sliding_attention":
			r.layers[i].window = r.config.need("sliding_window")
		case "chunked_attention":
			r.layers[i].chunk = r.config.need("attention_chunk_size")
		}
	}
}

// types is layer_types, if it has an entry for each layer.
// Nil is for readers to go by the pattern of the model type.
func (r *reading) types() []string {
	types := r.config.texts("layer_types")
	if len(types) > 0 && len(types) != len(r.layers) {
		r.config.say("layer_types has %d entries for %d layers", len(types), len(r.layers))
		return nil
	}
	return types
}

// fill makes all layers alike.
// A layer to which a list gives no heads keeps nothing.
func (r *reading) fill(l layer) {
	n := r.config.need(layerKeys...)
	if n > windows.MaxLayers {
		r.config.say("%d layers are more than %d", n, windows.MaxLayers)
		n = 1
	}
	r.layers = slices.Repeat([]layer{l}, n)
	if heads := r.headList(); heads != nil && l.heads > 0 {
		if len(heads) != n {
			r.config.say("the heads of keys and values are a list of %d for %d layers", len(heads), n)
			return
		}
		for i, h := range heads {
			if r.layers[i].heads = 0; h > 0 {
				r.layers[i].heads = r.share(h, "KV heads")
			}
		}
	}
}

// headList is a list of the KV heads of each layer, nil if one number stands for
// all.
func (r *reading) headList() []int {
	key, v := r.config.find(kvKeys...)
	if _, ok := v.([]any); !ok {
		return nil
	}
	return r.config.numbers(key)
}

// attention is a layer with keys and values of the common keys.
func (r *reading) attention() layer {
	dim := r.headDim()
	heads := r.share(r.kvHeads(), "KV heads")
	return layer{heads: heads, shape: windows.Shape{HeadDim: dim, ValueDim: r.valueDim(dim)}}
}

// valueDim is the size of values if it differs from that of keys, else 0.
// 0 is how windows.Shape says that both are equal; it is also what an absent key gives.
func (r *reading) valueDim(dim int) int {
	if v := r.config.number("v_head_dim"); v != dim {
		return v
	}
	return 0
}

// share is the share of one device of heads.
func (r *reading) share(heads int, what string) int {
	n, ok := r.divided(heads)
	if !ok {
		r.config.say("%d %s cannot be divided between %d devices", heads, what, r.tp)
	}
	return n
}

// headDim is the number of elements of a key. It need not be the width divided
// by the query heads: Qwen3-0.6B has 16 heads of 128 at a width of 1024. The
// quotient is used only if the file has no other number, and then it must be whole.
func (r *reading) headDim() int {
	for _, key := range dimKeys {
		if r.config.has(key) {
			return r.config.need(key)
		}
	}
	width, heads := r.config.need(widthKeys...), r.config.need(queryKeys...)
	if width%heads != 0 {
		r.config.say("head_dim is missing, and %d query heads do not divide a width of %d", heads, width)
	}
	return max(1, width/heads)
}

// kvHeads is the number of heads of keys and values: the query heads, unless
// fewer are shared. Some older models share one by a flag, which newer versions of
// the same type (new_decoder_architecture) keep without meaning it. A list has a
// number for each layer; the largest stands for the shape, fill sets the others.
func (r *reading) kvHeads() int {
	if multi := r.config.has("multi_query") || r.config.has("multi_query_attention"); multi && !r.config.has("new_decoder_architecture") {
		return max(1, r.config.or(1, "multi_query_group_num"))
	}
	if c := r.config.part("attn_config"); c != nil && c.has("kv_n_heads") {
		return c.need("kv_n_heads")
	}
	if heads := r.headList(); len(heads) > 0 {
		return max(1, slices.Max(heads))
	}
	if key, _ := r.config.find(kvKeys...); key != "" {
		return r.config.need(key)
	}
	return r.config.need(queryKeys...)
}

// windowed gives every layer the window of sliding_window, unless it is off or
// layer_types says otherwise. A window as long as the longest sequence, as some of
// these files have it, is full attention by the rule of windows.
// An explicit list wins over the rule of the model type.
func (r *reading) windowed() {
	if len(r.config.texts("layer_types")) > 0 {
		r.plain()
		return
	}
	l := r.attention()
	if r.config.has("sliding_window") && r.config.flag("use_sliding_window", true) {
		l.window = r.config.need("sliding_window")
	}
	r.fill(l)
}

// upperWindows gives the layers from max_window_layers on a window, if
// use_sliding_window says so. The files have sliding_window even where it is not
// used, as long as the longest sequence.
func (r *reading) upperWindows() {
	r.fill(r.attention())
	if !r.config.flag("use_sliding_window", false) || !r.config.has("sliding_window") {
		return
	}
	types := r.types()
	for i := range r.layers {
		if types == nil && i >= r.config.or(0, "max_window_layers") || types != nil && types[i] == "sliding_attention" {
			r.layers[i].window = r.config.need("sliding_window")
		}
	}
}

// every returns a reader of models whose every n-th layer has full attention and
// whose others have windows.
func every(n int, keys ...string) func(*reading) {
	return func(r *reading) { r.pattern(max(1, r.config.or(n, keys...))) }
}

// pattern gives windows to all layers but each n-th, counted from 1, or by
// layer_types: files of newer versions have it and may drop the period.
func (r *reading) pattern(n int) {
	if r.config.has("use_bidirectional_attention") {
		r.config.say("use_bidirectional_attention: an encoder has no cache")
	}
	r.fill(r.attention())
	types := r.types()
	for i := range r.layers {
		if full := (i+1)%n == 0; types == nil && !full || types != nil && types[i] == "sliding_attention" {
			r.layers[i].window = r.config.need("sliding_window")
		}
	}
}

// cohere2 has full attention in every fourth layer. Its window does not count
// the token itself, ours does: a window that is one too short would drop a block
// that is still attended to.
func (r *reading) cohere2() {
	r.pattern(max(1, r.config.or(4, "sliding_window_pattern")))
	for i := range r.layers {
		if r.layers[i].window > 0 {
			r.layers[i].window++
		}
	}
}

// gptOSS has windows in even layers.
func (r *reading) gptOSS() { r.pattern(2) }

// llama4 has full attention in the layers without rotary positions and chunks in
// the others. A chunk is not a window: the first token of a chunk attends to itself
// only.
func (r *reading) llama4() {
	r.fill(r.attention())
	types, rotary := r.types(), r.config.numbers("no_rope_layers") // 1 for a layer with rotary positions, despite the name
	if len(rotary) > 0 && len(rotary) != len(r.layers) {
		r.config.say("no_rope_layers has %d entries for %d layers", len(rotary), len(r.layers))
		rotary = nil
	}
	interval := max(1, r.config.or(4, "no_rope_layer_interval"))
	for i := range r.layers {
		chunked := (i+1)%interval != 0
		if len(rotary) > 0 {
			chunked = rotary[i] != 0
		}
		if types != nil {
			chunked = types[i] == "chunked_attention"
		}
		if chunked {
			r.layers[i].chunk = r.config.need("attention_chunk_size")
		}
	}
}

// gemma3n has full attention in every fifth layer, and its last layers read the
// keys and values of the last layer of their kind before them. They have no pages,
// which makes the cache smaller by that part.
func (r *reading) gemma3n() {
	r.pattern(5)
	r.shareLast(r.config.or(0, "num_kv_shared_layers"))
}

// shareLast makes the last n layers read the keys and values of the last layer
// before them that has the same window.
func (r *reading) shareLast(n int) {
	if n < 0 || n >= len(r.layers) {
		r.config.say("num_kv_shared_layers %d is not less than the %d layers", n, len(r.layers))
		return
	}
	own := len(r.layers) - n
	for i := own; i < len(r.layers); i++ {
		for j := own - 1; j >= 0 && r.layers[i].shares == 0; j-- {
			// The search goes backwards, so it finds the last such layer.
			if r.layers[j].window == r.layers[i].window {
				r.layers[i].shares = j + 1
			}
		}
		if r.layers[i].shares == 0 {
			r.config.say("num_kv_shared_layers: no layer has keys and values for layer %d", i)
		}
		r.layers[i].heads = 0
	}
}

// gemma4 has full attention in every sixth layer and in the last one, with heads
// of another size, and as many of them as num_global_key_value_heads says if keys
// and values are one projection. Both are cached nevertheless: keys are turned by
// their positions and values are not.
func (r *reading) gemma4() {
	r.pattern(6)
	global := windows.Shape{HeadDim: r.config.or(r.headDim(), "global_head_dim")}
	heads := r.kvHeads()
	if r.config.flag("attention_k_eq_v", false) {
		heads = r.config.or(heads, "num_global_key_value_heads")
	}
	for i := range r.layers {
		l := &r.layers[i]
		if i == len(r.layers)-1 && r.config.texts("layer_types") == nil {
			l.window = 0
		}
		if l.window == 0 {
			l.shape, l.heads = global, r.share(max(1, heads), "KV heads")
		}
	}
	if r.config.has("num_kv_shared_layers") {
		r.shareLast(r.config.number("num_kv_shared_layers"))
	}
}

// mimo has two kinds of layers with heads of their own; a 1 in the pattern stands
// for a window. Keys are longer than values in both. attention_chunk_size, which
// the files have too, means nothing.
func (r *reading) mimo() {
	full := r.attention()
	dim := r.config.or(full.shape.HeadDim, "swa_head_dim")
	limited := layer{
		heads:  r.share(r.config.or(r.kvHeads(), "swa_num_key_value_heads"), "KV heads"),
		shape:  windows.Shape{HeadDim: dim, ValueDim: r.config.or(full.shape.ValueDim, "swa_v_head_dim")},
		window: r.config.need("sliding_window", "sliding_window_size"),
	}
	r.fill(full)
	pattern := r.config.numbers("hybrid_layer_pattern")
	if len(pattern) != len(r.layers) {
		r.config.say("hybrid_layer_pattern has %d entries for %d layers", len(pattern), len(r.layers))
		return
	}
	for i, n := range pattern {
		if n != 0 {
			r.layers[i] = limited
		}
	}
}

// deci is a model whose layers a search has pruned: each has KV heads of its own,
// given as the query heads that share one, and some have no attention at all.
func (r *reading) deci() {
	query, dim := r.config.need(queryKeys...), r.headDim()
	blocks := list(r.config, "block_configs", "objects", func(v any) (map[string]any, bool) { m, ok := v.(map[string]any); return m, ok })
	if len(blocks) == 0 {
		r.config.say("block_configs is missing")
	}
	for i, values := range blocks {
		block := &config{values: values, problems: r.config.problems}
		attention := block.part("attention")
		if attention == nil || attention.has("no_op") || attention.has("replace_with_linear") {
			r.layers = append(r.layers, layer{})
			continue
		}
		group := attention.need("n_heads_in_group")
		if query%group != 0 {
			r.config.say("block_configs: n_heads_in_group %d of layer %d does not divide %d heads", group, i, query)
		}
		r.layers = append(r.layers, layer{heads: r.share(max(1, query/group), "KV heads"), shape: windows.Shape{HeadDim: dim}})
	}
}

// latent is multi-head latent attention: one vector a token in each layer, with
// the position's part behind the compressed part. The number of heads and their
// size have no influence on it, whatever the file says: DeepSeek-V3 names 128 KV
// heads, which would be 57 times as much. A sparse attention's indexer keeps, for
// each token and layer, a key of one byte an element and a scale of four bytes.
func (r *reading) latent() {
	r.fill(r.latentLayer())
}

// latentLayer is one layer of latent; KVFactor 1 says that there is no second vector.
func (r *reading) latentLayer() layer {
	l := layer{heads: 1, shape: windows.Shape{HeadDim: r.config.need("kv_lora_rank") + r.config.need("qk_rope_head_dim"), KVFactor: 1}}
	if r.config.has("index_head_dim") {
		l.shape.SideBytes = r.config.need("index_head_dim") + 4
	}
	return l
}

// t5 is an encoder and a decoder with relative positions, so that the length is
// that of its training.
func (r *reading) t5() {
	l := layer{heads: r.share(r.config.need("num_heads"), "KV heads"), shape: windows.Shape{HeadDim: r.config.need("d_kv")}}
	r.encoder(l, r.config.or(r.config.need("num_layers"), "num_decoder_layers"), r.model.MaxSeqLen)
}

// whisper reads sound: its encoder has a fixed number of positions.
func (r *reading) whisper() {
	r.encoder(r.decoderLayer(), r.config.need("decoder_layers"), r.config.need("max_source_positions"))
}

// bart is an encoder and a decoder with learned positions.
func (r *reading) bart() {
	r.encoder(r.decoderLayer(), r.config.need("decoder_layers"), r.model.MaxSeqLen)
}

// decoderLayer is a layer of a decoder whose keys name the decoder.
func (r *reading) decoderLayer() layer {
	width, heads := r.config.need("d_model"), r.config.need("decoder_attention_heads")
	if width%heads != 0 {
		r.config.say("decoder_attention_heads %d does not divide a d_model of %d", heads, width)
	}
	return layer{heads: r.share(heads, "KV heads"), shape: windows.Shape{HeadDim: max(1, width/heads)}}
}

// encoder makes a decoder of layers that each attend to an encoder's output. The
// cross attention has the heads of the decoder's own attention in these models.
// longest is in encoder tokens, of the longest input.
func (r *reading) encoder(l layer, layers, longest int) {
	if layers < 1 || layers > windows.MaxLayers {
		r.config.say("%d layers of the decoder are not in 1 to %d", layers, windows.MaxLayers)
		return
	}
	r.layers = slices.Repeat([]layer{l}, layers)
	r.model.CrossLayers, r.model.CrossKVHeads, r.model.EncoderMaxLen = layers, l.heads, longest
}
