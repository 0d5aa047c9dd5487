package model

import (
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu/attention"
)

// buildDeepSeek makes DeepSeek-V3 with dense MLPs: its experts are refused.
func buildDeepSeek(b *builder) {
	m := b.m
	layers := b.start("hidden_size", "num_hidden_layers", "max_position_embeddings",
		"model.embed_tokens.weight")
	eps := b.numberOr("rms_norm_eps", 1e-6)
	if dense := b.wholeOr("first_k_dense_replace", 0); dense < layers {
		b.refuse("first_k_dense_replace", "layers %d to %d have experts, which are not supported", dense,
			layers-1)
	}
	var rope *attention.RoPE
	for i := range layers {
		name := fmt.Sprintf("model.layers.%d", i)
		if rope == nil {
			rope = b.ropeOf("", attention.GPTNeoX, b.positive("qk_rope_head_dim"))
		}
		m.blocks = append(m.blocks, block{
			in:      b.rms(name+".input_layernorm", m.Hidden, eps, 0),
			mixer:   b.latent(name+".self_attn", eps, rope),
			mlpNorm: b.rms(name+".post_attention_layernorm", m.Hidden, eps, 0),
			mlp:     b.gated(name+".mlp", b.positive("intermediate_size")),
		})
	}
	m.finalNorm = b.rms("model.norm", m.Hidden, eps, 0)
	b.outputHead("lm_head")
}

// latent makes latent attention. A token has one row in the cache for all heads.
func (b *builder) latent(name string, eps float64, rope *attention.RoPE) *latentAttention {
	heads, rank, turned := b.positive("num_attention_heads"), b.positive("kv_lora_rank"),
		b.positive("qk_rope_head_dim")
	nope, value, hidden := b.positive("qk_nope_head_dim"), b.positive("v_head_dim"), b.m.Hidden
	scale := 1 / math.Sqrt(float64(nope+turned))
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if p := b.sub(key); p != nil && p.numberOr("mscale_all_dim", 0) != 0 {
			s := attention.YaRNMScale(p.numberOr("factor", 1), p.number("mscale_all_dim"))
			scale *= s * s
		}
	}
	a := &latentAttention{
		layer: attention.Layer{Heads: heads, KVHeads: 1, HeadDim: rank + turned, Norm: scale,
			ValueDim: rank},
		down: b.linear(name+".kv_a_proj_with_mqa", rank+turned, hidden),
		norm: b.rms(name+".kv_a_layernorm", rank, eps, 0),
		out:  b.linear(name+".o_proj", hidden, heads*value), rope: rope,
		pairs: b.yes("rope_interleave", true),
		nope:  nope, value: value, number: b.cached(1, rank+turned, 0),
	}
	b.m.caches[a.number].factor = 1
	if q := b.wholeOr("q_lora_rank", 0); q > 0 {
		a.qDown, a.qNorm = b.linear(name+".q_a_proj", q, hidden), b.rms(name+".q_a_layernorm", q, eps, 0)
		a.q = b.linear(name+".q_b_proj", heads*(nope+turned), q)
	} else {
		a.q = b.linear(name+".q_proj", heads*(nope+turned), hidden)
	}
	w := b.numbers(name+".kv_b_proj.weight", heads*(nope+value), rank)
	if len(b.missing) > 0 {
		return a
	}
	for h := range heads {
		from := w[h*(nope+value)*rank:]
		a.wUK = append(a.wUK, from[:nope*rank]...)
		a.wUV = append(a.wUV, from[nope*rank:(nope+value)*rank]...)
	}
	return a
}

// buildBamba makes Bamba: Mamba-2 layers, and attention in a few.
func buildBamba(b *builder) {
	m := b.m
	layers := b.start("hidden_size", "num_hidden_layers", "max_position_embeddings",
		"model.embed_tokens.weight")
	eps := b.numberOr("rms_norm_eps", 1e-5)
	attend := map[int]bool{}
	for _, x := range b.list("attn_layer_indices") {
		i, _ := x.(float64)
		attend[int(i)] = true
	}
	l := &llama{heads: b.positive("num_attention_heads"), eps: eps, rope: map[string]*attention.RoPE{}}
	l.kvHeads = b.wholeOr("num_key_value_heads", l.heads)
	l.headDim = b.wholeOr("head_dim", m.Hidden/l.heads)
	for i := range layers {
		name := fmt.Sprintf("model.layers.%d", i)
		k := block{
			in:      b.rms(name+".input_layernorm", m.Hidden, eps, 0),
			mlpNorm: b.rms(name+".pre_ff_layernorm", m.Hidden, eps, 0),
			mlp:     b.gated(name+".feed_forward", b.positive("intermediate_size")),
		}
		if attend[i] {
			k.mixer = l.attention(b, name+".self_attn", i)
		} else {
			k.mixer = b.mamba(name+".mamba", eps)
		}
		m.blocks = append(m.blocks, k)
	}
	m.finalNorm = b.rms("model.final_layernorm", m.Hidden, eps, 0)
	b.outputHead("lm_head")
}

func (b *builder) mamba(name string, eps float64) *mamba2 {
	hidden := b.m.Hidden
	s := &mamba2{
		heads: b.positive("mamba_n_heads"), dim: b.positive("mamba_d_head"),
		width:  b.positive("mamba_d_state"),
		groups: b.positive("mamba_n_groups"), dtMax: math.MaxFloat32,
	}
	inner := s.heads * s.dim
	channels := inner + 2*s.groups*s.width
	if limit := b.list("time_step_limit"); len(limit) == 2 {
		low, _ := limit[0].(float64)
		high, _ := limit[1].(float64)
		s.dtMin, s.dtMax = float32(low), float32(min(high, math.MaxFloat32))
	}
	s.in, s.out = b.linear(name+".in_proj", inner+channels+s.heads, hidden),
		b.linear(name+".out_proj", hidden, inner)
	s.conv = b.convolution(name+".conv1d", channels, b.positive("mamba_d_conv"))
	if s.heads%s.groups != 0 {
		b.refuse("mamba_n_groups", "%d heads in %d groups", s.heads, s.groups)
		return s
	}
	weight, n := b.numbers(name+".norm.weight", inner), inner/s.groups
	if len(b.missing) > 0 {
		return s
	}
	for g := range s.groups {
		s.norms = append(s.norms, &norm{weight: weight[g*n : (g+1)*n], eps: eps})
	}
	s.dtBias, s.d, s.a = b.numbers(name+".dt_bias", s.heads), b.numbers(name+".D", s.heads),
		b.decays(name, s.heads)
	return s
}

// decays are −e^A_log.
func (b *builder) decays(name string, heads int) []float32 {
	a := b.numbers(name+".A_log", heads)
	for i, x := range a {
		a[i] = float32(-math.Exp(float64(x)))
	}
	return a
}

func (b *builder) convolution(name string, channels, kernel int) convolution {
	c := convolution{channels: channels, kernel: kernel, weight: b.numbers(name+".weight", channels, 1,
		kernel)}
	if b.there(name + ".bias") {
		c.bias = b.numbers(name+".bias", channels)
	}
	return c
}

// buildQwen3Next makes Qwen3-Next with dense MLPs: its experts are refused.
func buildQwen3Next(b *builder) {
	m := b.m
	layers := b.start("hidden_size", "num_hidden_layers", "max_position_embeddings",
		"model.embed_tokens.weight")
	eps, dense := b.numberOr("rms_norm_eps", 1e-6), map[int]bool{}
	for _, x := range b.list("mlp_only_layers") {
		i, _ := x.(float64)
		dense[int(i)] = true
	}
	types := b.list("layer_types")
	if len(types) != layers {
		b.refuse("layer_types", "%d for %d layers", len(types), layers)
		return
	}
	rope := b.ropeOf("", attention.GPTNeoX, b.positive("head_dim"))
	for i := range layers {
		name := fmt.Sprintf("model.layers.%d", i)
		if !dense[i] {
			b.refuse("mlp_only_layers", "layer %d has experts, which are not supported", i)
		}
		k := block{
			in:      b.rms(name+".input_layernorm", m.Hidden, eps, 1),
			mlpNorm: b.rms(name+".post_attention_layernorm", m.Hidden, eps, 1),
			mlp:     b.gated(name+".mlp", b.positive("intermediate_size")),
		}
		switch types[i] {
		case "linear_attention":
			k.mixer = b.gatedDelta(name+".linear_attn", eps)
		case "full_attention":
			k.mixer = b.gatedAttention(name+".self_attn", eps, rope)
		default:
			b.refuse("layer_types", "%v is not supported", types[i])
		}
		m.blocks = append(m.blocks, k)
	}
	m.finalNorm = b.rms("model.norm", m.Hidden, eps, 1)
	b.outputHead("lm_head")
}

// gatedAttention makes attention whose query matrix has, for each head, the
// query and a gate of the output.
func (b *builder) gatedAttention(name string, eps float64, rope *attention.RoPE) *selfAttention {
	hidden, heads, kvHeads, dim := b.m.Hidden, b.positive("num_attention_heads"),
		b.positive("num_key_value_heads"), b.positive("head_dim")
	both := b.numbers(name+".q_proj.weight", heads*2*dim, hidden)
	k, v := b.numbers(name+".k_proj.weight", kvHeads*dim, hidden),
		b.numbers(name+".v_proj.weight", kvHeads*dim, hidden)
	a := &selfAttention{
		layer: attention.Layer{Heads: heads, KVHeads: kvHeads, HeadDim: dim, RoPE: rope},
		qNorm: b.rms(name+".q_norm", dim, eps, 1), kNorm: b.rms(name+".k_norm", dim, eps, 1),
		out: b.linear(name+".o_proj", hidden, heads*dim), number: b.cached(kvHeads, dim, 0),
	}
	if len(b.missing) > 0 {
		return a
	}
	var q, gate []float32
	for h := range heads {
		q = append(q, both[h*2*dim*hidden:(h*2+1)*dim*hidden]...)
		gate = append(gate, both[(h*2+1)*dim*hidden:(h*2+2)*dim*hidden]...)
	}
	a.qkv = newLinear((heads+2*kvHeads)*dim, hidden, append(append(q, k...), v...), nil)
	a.gate = newLinear(heads*dim, hidden, gate, nil)
	return a
}

func (b *builder) gatedDelta(name string, eps float64) *gatedDelta {
	g := &gatedDelta{
		keyHeads: b.positive("linear_num_key_heads"), heads: b.positive("linear_num_value_heads"),
		keyDim: b.positive("linear_key_head_dim"), valueDim: b.positive("linear_value_head_dim"),
	}
	if g.heads%g.keyHeads != 0 {
		b.refuse("linear_num_value_heads", "%d on %d key heads", g.heads, g.keyHeads)
		return g
	}
	hidden := b.m.Hidden
	g.ratio = g.heads / g.keyHeads
	g.group, g.each = 2*g.keyDim+2*g.ratio*g.valueDim, 2*g.ratio
	g.qkvz = b.linear(name+".in_proj_qkvz", g.keyHeads*g.group, hidden)
	g.ba = b.linear(name+".in_proj_ba", 2*g.heads, hidden)
	g.out = b.linear(name+".out_proj", hidden, g.heads*g.valueDim)
	g.conv = b.convolution(name+".conv1d", 2*g.keyHeads*g.keyDim+g.heads*g.valueDim,
		b.positive("linear_conv_kernel_dim"))
	g.norm = b.rms(name+".norm", g.valueDim, eps, 0)
	g.dtBias, g.a = b.numbers(name+".dt_bias", g.heads), b.decays(name, g.heads)
	return g
}
