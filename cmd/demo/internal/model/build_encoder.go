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
		m.encoder.blocks = append(m.encoder.blocks,
			t.block(b, name, 1, t.layer(attention.Full, bias)))
	}
	bias = t.bias(b, "decoder", false)
	width := t.heads * t.dim
	for i := range layers {
		name := fmt.Sprintf("decoder.block.%d.layer", i)
		cross := name + ".1.EncDecAttention"
		k := t.block(b, name, 2, t.layer(attention.Causal, bias))
		k.mixer.(*selfAttention).number = b.cached(t.heads, t.dim, 0)
		k.crossNorm = b.rms(name+".1.layer_norm", m.Hidden, t.eps, 0)
		k.cross = &crossAttention{
			layer: t.layer(attention.Full, nil), q: b.linear(cross+".q", width, m.Hidden),
			out: b.linear(cross+".o", m.Hidden, width),
			kv:  b.fused(m.Hidden, part{cross + ".k", width}, part{cross + ".v", width}), number: i,
		}
		m.blocks = append(m.blocks, k)
	}
	m.cross = cacheShape{heads: t.heads, dim: t.dim}
	m.finalNorm = b.rms("decoder.final_layer_norm", m.Hidden, t.eps, 0)
	b.only("scale_decoder_outputs", false)
	b.outputHead("lm_head")
}

// block is a block without a cross attention; its MLP has a number among the parts of the layer.
func (t *t5) block(b *builder, name string, mlp int, l attention.Layer) block {
	hidden, width := b.m.Hidden, t.heads*t.dim
	attend := name + ".0.SelfAttention"
	last := fmt.Sprintf("%s.%d", name, mlp)
	return block{
		in: b.rms(name+".0.layer_norm", hidden, t.eps, 0),
		mixer: &selfAttention{
			layer: l, out: b.linear(attend+".o", hidden, width),
			qkv: b.fused(hidden, part{attend + ".q", width}, part{attend + ".k", width},
				part{attend + ".v", width}),
		},
		mlpNorm: b.rms(last+".layer_norm", hidden, t.eps, 0),
		mlp:     t.mlp(b, last+".DenseReluDense"),
	}
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
		k := b.bartBlock(name, attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim}, inner)
		k.mixer.(*selfAttention).number = b.cached(heads, dim, 0)
		k.cross = &crossAttention{
			layer:  attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim, Mask: attention.Full},
			q:      b.linear(cross+".q_proj", m.Hidden, m.Hidden),
			out:    b.linear(cross+".out_proj", m.Hidden, m.Hidden),
			kv:     b.fused(m.Hidden, part{cross + ".k_proj", m.Hidden}, part{cross + ".v_proj", m.Hidden}),
			number: i,
		}
		k.crossNorm = b.layerNorm(name+".encoder_attn_layer_norm", m.Hidden, bartEps)
		m.blocks = append(m.blocks, k)
	}
	m.cross = cacheShape{heads: heads, dim: dim}
	b.outputHead("lm_head")
}

// bartEps is the epsilon of PyTorch's LayerNorm, which BART does not set.
const bartEps = 1e-5

// bartBlock is a block without a cross attention.
func (b *builder) bartBlock(name string, l attention.Layer, inner int) block {
	h, attend := b.m.Hidden, name+".self_attn"
	return block{
		shape: postNorm,
		mixer: &selfAttention{
			layer: l, out: b.linear(attend+".out_proj", h, h),
			qkv: b.fused(h, part{attend + ".q_proj", h}, part{attend + ".k_proj", h},
				part{attend + ".v_proj", h}),
		},
		mixerNorm: b.layerNorm(name+".self_attn_layer_norm", h, bartEps),
		mlp: &plainMLP{up: b.linear(name+".fc1", inner, h), down: b.linear(name+".fc2", h, inner),
			act: b.activation("activation_function", "gelu")},
		outNorm: b.layerNorm(name+".final_layer_norm", h, bartEps),
	}
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
		embedNorm: b.layerNorm("model.encoder.layernorm_embedding", m.Hidden, bartEps),
	}
	heads, inner := b.positive("encoder_attention_heads"), b.positive("encoder_ffn_dim")
	for i := range b.layers("encoder_layers") {
		name := fmt.Sprintf("model.encoder.layers.%d", i)
		e.blocks = append(e.blocks, b.bartBlock(name, attention.Layer{Heads: heads, KVHeads: heads,
			HeadDim: m.Hidden / heads, Mask: attention.Full}, inner))
	}
	return e
}
