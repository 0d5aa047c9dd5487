package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
)

// t5 is what both sides of a T5 share.
type t5 struct {
	heads, dim, inner int
	eps               float64
	gated             bool
}

func buildT5(b *builder) {
	m := b.m
	if !b.has("num_decoder_layers") {
		b.values["num_decoder_layers"] = b.values["num_layers"]
	}
	layers := b.start("d_model", "num_decoder_layers", "n_positions", "shared.weight")
	t := &t5{heads: b.positive("num_heads"), dim: b.positive("d_kv"), inner: b.positive("d_ff"),
		eps: b.numberOr("layer_norm_epsilon", 1e-6)}
	t.gated = b.oneOf("feed_forward_proj", "relu", "gated-gelu") == "gated-gelu"
	m.encoder = &encoder{embed: m.embed, finalNorm: b.rms("encoder.final_layer_norm", m.Hidden, t.eps,
		0)}
	bias := t.bias(b, "encoder", true)
	for i := range b.layers("num_layers") {
		name := fmt.Sprintf("encoder.block.%d.layer", i)
		m.encoder.blocks = append(m.encoder.blocks, encoderBlock{
			in: b.rms(name+".0.layer_norm", m.Hidden, t.eps, 0), mlpNorm: b.rms(name+".1.layer_norm",
				m.Hidden, t.eps, 0),
			layer: t.layer(attention.Full, bias), qkv: t.qkv(b, name+".0.SelfAttention"),
			out: b.linear(name+".0.SelfAttention.o", m.Hidden, t.heads*t.dim),
			mlp: t.mlp(b, name+".1.DenseReluDense"),
		})
	}
	bias = t.bias(b, "decoder", false)
	width := t.heads * t.dim
	for i := range layers {
		name := fmt.Sprintf("decoder.block.%d.layer", i)
		cross := name + ".1.EncDecAttention"
		m.blocks = append(m.blocks, block{
			in: b.rms(name+".0.layer_norm", m.Hidden, t.eps, 0),
			mixer: &selfAttention{
				layer: t.layer(attention.Causal, bias), qkv: t.qkv(b, name+".0.SelfAttention"),
				out: b.linear(name+".0.SelfAttention.o", m.Hidden, width), number: b.cached(t.heads, t.dim, 0),
			},
			crossNorm: b.rms(name+".1.layer_norm", m.Hidden, t.eps, 0),
			cross: &crossAttention{
				layer: t.layer(attention.Full, nil), q: b.linear(cross+".q", width, m.Hidden),
				out: b.linear(cross+".o", m.Hidden, width),
				kv:  b.fused(m.Hidden, part{cross + ".k", width}, part{cross + ".v", width}), number: i,
			},
			mlpNorm: b.rms(name+".2.layer_norm", m.Hidden, t.eps, 0),
			mlp:     t.mlp(b, name+".2.DenseReluDense"),
		})
	}
	m.cross = cacheShape{heads: t.heads, dim: t.dim}
	m.finalNorm = b.rms("decoder.final_layer_norm", m.Hidden, t.eps, 0)
	b.only("scale_decoder_outputs", false)
	b.outputHead("lm_head")
}

// layer is attention without a scale.
func (t *t5) layer(mask attention.Mask, bias attention.Bias) attention.Layer {
	return attention.Layer{Heads: t.heads, KVHeads: t.heads, HeadDim: t.dim, Norm: 1, Mask: mask,
		Bias: bias}
}

// bias is the relative bias that the first layer of a side has for all.
func (t *t5) bias(b *builder, side string, both bool) attention.Bias {
	buckets := b.wholeOr("relative_attention_num_buckets", 32)
	return &attention.RelativeBias{
		Table: b.numbers(side+".block.0.layer.0.SelfAttention.relative_attention_bias.weight", buckets,
			t.heads), Heads: t.heads,
		Buckets: buckets, MaxDistance: b.wholeOr("relative_attention_max_distance", 128),
		Bidirectional: both,
	}
}

func (t *t5) qkv(b *builder, name string) *linear {
	width := t.heads * t.dim
	return b.fused(b.m.Hidden, part{name + ".q", width}, part{name + ".k", width},
		part{name + ".v", width})
}

func (t *t5) mlp(b *builder, name string) mlp {
	hidden := b.m.Hidden
	if !t.gated {
		return &plainMLP{up: b.linear(name+".wi", t.inner, hidden),
			down: b.linear(name+".wo", hidden, t.inner), act: activations["relu"]}
	}
	return &gatedMLP{
		gateUp: b.fused(hidden, part{name + ".wi_0", t.inner}, part{name + ".wi_1", t.inner}),
		down:   b.linear(name+".wo", hidden, t.inner), act: geluTanh,
	}
}

// bartOffset is where BART's learned positions begin.
const bartOffset = 2

func buildBART(b *builder) {
	m := b.m
	embedding := "model.decoder.embed_tokens.weight"
	if !b.there(embedding) {
		embedding = "model.shared.weight"
	}
	layers := b.start("d_model", "decoder_layers", "max_position_embeddings", embedding)
	b.only("scale_embedding", false)
	m.positions, m.offset = b.numbers("model.decoder.embed_positions.weight", m.MaxLen+bartOffset,
		m.Hidden), bartOffset
	m.embedNorm = b.layerNorm("model.decoder.layernorm_embedding", m.Hidden, bartEps)
	m.encoder = b.bartEncoder()
	heads, inner := b.positive("decoder_attention_heads"), b.positive("decoder_ffn_dim")
	dim := m.Hidden / heads
	for i := range layers {
		name := fmt.Sprintf("model.decoder.layers.%d", i)
		cross := name + ".encoder_attn"
		m.blocks = append(m.blocks, block{
			shape: postNorm,
			mixer: &selfAttention{
				layer:  attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim},
				qkv:    b.bartQKV(name + ".self_attn"),
				out:    b.linear(name+".self_attn.out_proj", m.Hidden, m.Hidden),
				number: b.cached(heads, dim, 0),
			},
			mixerNorm: b.layerNorm(name+".self_attn_layer_norm", m.Hidden, bartEps),
			cross: &crossAttention{
				layer:  attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim, Mask: attention.Full},
				q:      b.linear(cross+".q_proj", m.Hidden, m.Hidden),
				out:    b.linear(cross+".out_proj", m.Hidden, m.Hidden),
				kv:     b.fused(m.Hidden, part{cross + ".k_proj", m.Hidden}, part{cross + ".v_proj", m.Hidden}),
				number: i,
			},
			crossNorm: b.layerNorm(name+".encoder_attn_layer_norm", m.Hidden, bartEps),
			mlp:       b.bartMLP(name, inner), outNorm: b.layerNorm(name+".final_layer_norm", m.Hidden,
				bartEps),
		})
	}
	m.cross = cacheShape{heads: heads, dim: dim}
	b.outputHead("lm_head")
}

// bartEps is the epsilon of PyTorch's LayerNorm, which BART does not set.
const bartEps = 1e-5

func (b *builder) bartQKV(name string) *linear {
	h := b.m.Hidden
	return b.fused(h, part{name + ".q_proj", h}, part{name + ".k_proj", h}, part{name + ".v_proj", h})
}

func (b *builder) bartMLP(name string, inner int) mlp {
	h := b.m.Hidden
	return &plainMLP{up: b.linear(name+".fc1", inner, h), down: b.linear(name+".fc2", h, inner),
		act: b.activation("activation_function", "gelu")}
}

func (b *builder) bartEncoder() *encoder {
	m := b.m
	embed := m.embed
	if name := "model.encoder.embed_tokens.weight"; b.there(name) {
		embed = b.tensor(name, m.Vocab, m.Hidden)
	}
	e := &encoder{
		embed: embed, positions: b.numbers("model.encoder.embed_positions.weight", m.MaxLen+bartOffset,
			m.Hidden), offset: bartOffset,
		embedNorm: b.layerNorm("model.encoder.layernorm_embedding", m.Hidden, bartEps), maxLen: m.MaxLen,
	}
	heads, inner := b.positive("encoder_attention_heads"), b.positive("encoder_ffn_dim")
	for i := range b.layers("encoder_layers") {
		name := fmt.Sprintf("model.encoder.layers.%d", i)
		e.blocks = append(e.blocks, encoderBlock{
			shape: postNorm, in: b.layerNorm(name+".self_attn_layer_norm", m.Hidden, bartEps),
			mlpNorm: b.layerNorm(name+".final_layer_norm", m.Hidden, bartEps),
			layer: attention.Layer{Heads: heads, KVHeads: heads, HeadDim: m.Hidden / heads,
				Mask: attention.Full},
			qkv: b.bartQKV(name + ".self_attn"), out: b.linear(name+".self_attn.out_proj", m.Hidden,
				m.Hidden), mlp: b.bartMLP(name, inner),
		})
	}
	return e
}
