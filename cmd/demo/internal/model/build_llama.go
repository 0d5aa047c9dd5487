package model

import (
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu/attention"
)

// llama is the shape that most decoders share: RMS norms, RoPE, grouped queries,
// a gated MLP. Mistral adds windows, Qwen biases and norms of heads, Gemma 3
// norms of outputs and two kinds of layers, gpt-oss sinks and experts.
type llama struct {
	heads, kvHeads, headDim int
	eps                     float64
	plus                    float32 // added to the weights of norms
	style                   attention.RoPEStyle
	window                  int
	types                   []any // of layers; nil: all alike
	rope                    map[string]*attention.RoPE
}

func buildLlama(b *builder) {
	m := b.m
	layers := b.start("hidden_size", "num_hidden_layers", "max_position_embeddings",
		"model.embed_tokens.weight")
	b.only("pretraining_tp", 1.0)
	b.only("use_bidirectional_attention", false)
	l := &llama{heads: b.positive("num_attention_heads"), eps: b.numberOr("rms_norm_eps", 1e-6),
		rope: map[string]*attention.RoPE{}}
	l.kvHeads = b.wholeOr("num_key_value_heads", l.heads)
	l.headDim = b.wholeOr("head_dim", m.Hidden/l.heads)
	if b.yes("rope_pairs", false) {
		l.style = attention.GPTJ
	}
	gemma := m.Kind == "gemma3_text"
	if gemma {
		m.embedScale = float32(math.Sqrt(float64(m.Hidden)))
		if b.yes("norm_plus_one", true) {
			l.plus = 1
		}
	}
	m.logitCap = float32(b.numberOr("final_logit_softcapping", 0))
	l.windows(b, layers)
	for i := range layers {
		m.blocks = append(m.blocks, l.block(b, i))
	}
	m.finalNorm = b.rms("model.norm", m.Hidden, l.eps, l.plus)
	b.outputHead("lm_head")
}

// windows reads which layers have a window. Qwen has one in its configuration
// that it does not use unless told to.
func (l *llama) windows(b *builder, layers int) {
	l.window = b.wholeOr("sliding_window", 0)
	l.types = b.list("layer_types")
	if l.types != nil && len(l.types) != layers {
		b.refuse("layer_types", "%d for %d layers", len(l.types), layers)
		l.types = nil
	}
	switch b.m.Kind {
	case "qwen2", "qwen3":
		b.only("use_sliding_window", false)
		l.window, l.types = 0, nil
	case "llama":
		l.window, l.types = 0, nil
	case "gemma3_text":
		if l.types == nil {
			every := b.wholeOr("sliding_window_pattern", 6)
			for i := range layers {
				kind := "sliding_attention"
				if (i+1)%max(every, 1) == 0 {
					kind = "full_attention"
				}
				l.types = append(l.types, kind)
			}
		}
	case "gpt_oss":
		if l.types == nil {
			b.refuse("layer_types", "it is missing")
		}
	}
}

// kind is the type of a layer and its window.
func (l *llama) kind(b *builder, i int) (string, int) {
	if l.types == nil {
		return "full_attention", l.window
	}
	switch kind := l.types[i]; kind {
	case "sliding_attention":
		return "sliding_attention", l.window
	case "full_attention":
		return "full_attention", 0
	default:
		b.refuse("layer_types", "%v is not supported", kind)
		return "full_attention", 0
	}
}

func (l *llama) block(b *builder, i int) block {
	m, name := b.m, fmt.Sprintf("model.layers.%d", i)
	k := block{
		in:    b.rms(name+".input_layernorm", m.Hidden, l.eps, l.plus),
		mixer: l.attention(b, name+".self_attn", i),
	}
	if m.Kind == "gemma3_text" {
		k.mixerNorm = b.rms(name+".post_attention_layernorm", m.Hidden, l.eps, l.plus)
		k.mlpNorm = b.rms(name+".pre_feedforward_layernorm", m.Hidden, l.eps, l.plus)
		k.outNorm = b.rms(name+".post_feedforward_layernorm", m.Hidden, l.eps, l.plus)
	} else {
		k.mlpNorm = b.rms(name+".post_attention_layernorm", m.Hidden, l.eps, l.plus)
	}
	if m.Kind == "gpt_oss" {
		k.mlp = b.experts(name + ".mlp")
	} else {
		k.mlp = b.gated(name+".mlp", b.positive("intermediate_size"))
	}
	return k
}

// gated makes a gated MLP with Hugging Face's usual names.
func (b *builder) gated(name string, inner int) *gatedMLP {
	hidden, key := b.m.Hidden, "hidden_act"
	if b.has("hidden_activation") {
		key = "hidden_activation"
	}
	return &gatedMLP{
		gateUp: b.fused(hidden, part{name + ".gate_proj", inner}, part{name + ".up_proj", inner}),
		down:   b.linear(name+".down_proj", hidden, inner), act: b.activation(key, "silu"),
	}
}

func (l *llama) attention(b *builder, name string, i int) *selfAttention {
	kind, window := l.kind(b, i)
	hidden, q, kv := b.m.Hidden, l.heads*l.headDim, l.kvHeads*l.headDim
	if l.rope[kind] == nil {
		l.rope[kind] = b.ropeOf(kind, l.style, l.headDim)
	}
	a := &selfAttention{
		layer: attention.Layer{
			Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Window: window, RoPE: l.rope[kind],
			Cap: float32(b.numberOr("attn_logit_softcapping", 0)),
		},
		qkv: b.fused(hidden, part{name + ".q_proj", q}, part{name + ".k_proj", kv},
			part{name + ".v_proj", kv}),
		out:    b.linear(name+".o_proj", hidden, q),
		number: b.cached(l.kvHeads, l.headDim, window),
	}
	if b.has("query_pre_attn_scalar") {
		a.layer.Norm = 1 / math.Sqrt(b.number("query_pre_attn_scalar"))
	}
	if b.m.Kind == "gemma3_text" || b.m.Kind == "qwen3" {
		a.qNorm = b.rms(name+".q_norm", l.headDim, l.eps, l.plus)
		a.kNorm = b.rms(name+".k_norm", l.headDim, l.eps, l.plus)
	}
	if b.m.Kind == "gpt_oss" {
		a.layer.SinkLogits = b.numbers(name+".sinks", l.heads)
	}
	if err := a.layer.Validate(); err != nil {
		b.refuse("num_attention_heads", "%v", err)
	}
	return a
}

// experts makes gpt-oss's MLP. Its matrices are [expert][in][out].
func (b *builder) experts(name string) *expertsMLP {
	hidden, f, n := b.m.Hidden, b.positive("intermediate_size"), b.positive("num_local_experts")
	m := &expertsMLP{
		router: b.linear(name+".router", n, hidden), take: b.positive("num_experts_per_tok"),
		alpha: float32(b.numberOr("swiglu_alpha", 1.702)), limit: float32(b.numberOr("swiglu_limit", 7)),
	}
	if m.take > n {
		b.refuse("num_experts_per_tok", "%d of %d", m.take, n)
	}
	up, upBias := b.numbers(name+".experts.gate_up_proj", n, hidden, 2*f),
		b.numbers(name+".experts.gate_up_proj_bias", n, 2*f)
	down, downBias := b.numbers(name+".experts.down_proj", n, f, hidden),
		b.numbers(name+".experts.down_proj_bias", n, hidden)
	if len(b.missing) > 0 {
		return m
	}
	for i := range n {
		m.gateUp = append(m.gateUp,
			newLinear(2*f, hidden, transposed(up[i*hidden*2*f:(i+1)*hidden*2*f], hidden, 2*f),
				upBias[i*2*f:(i+1)*2*f]))
		m.down = append(m.down,
			newLinear(hidden, f, transposed(down[i*f*hidden:(i+1)*f*hidden], f, hidden),
				downBias[i*hidden:(i+1)*hidden]))
	}
	return m
}

// transposed turns [in][out] into [out][in].
func transposed(x []float32, in, out int) []float32 {
	y := make([]float32, len(x))
	for i := range in {
		for o := range out {
			y[o*in+i] = x[i*out+o]
		}
	}
	return y
}
