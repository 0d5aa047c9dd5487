package model

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu/attention"
)

// unmixed makes a matrix of fused Q, K and V, which lie by head in the file, into
// one with Q of all heads first, then K, then V.
func (b *builder) unmixed(name string, heads, dim int) *linear {
	hidden := b.m.Hidden
	w, bias := b.numbers(name+".weight", 3*heads*dim, hidden), b.numbers(name+".bias", 3*heads*dim)
	rows, sorted := make([]float32, 0, len(w)), make([]float32, 0, len(bias))
	if len(b.missing) > 0 {
		return nil
	}
	for part := range 3 {
		for h := range heads {
			from := (h*3 + part) * dim
			rows = append(rows, w[from*hidden:(from+dim)*hidden]...)
			sorted = append(sorted, bias[from:from+dim]...)
		}
	}
	return newLinear(3*heads*dim, hidden, rows, sorted)
}

func buildBloom(b *builder) {
	m := b.m
	if !b.has("n_layer") {
		b.values["n_layer"] = b.values["num_hidden_layers"]
	}
	layers := b.start("hidden_size", "n_layer", "seq_length", "transformer.word_embeddings.weight")
	b.only("apply_residual_connection_post_layernorm", false)
	eps, heads := b.numberOr("layer_norm_epsilon", 1e-5), b.positive("n_head")
	dim := m.Hidden / heads
	m.embedNorm = b.layerNorm("transformer.word_embeddings_layernorm", m.Hidden, eps)
	for i := range layers {
		name := fmt.Sprintf("transformer.h.%d", i)
		m.blocks = append(m.blocks, block{
			in: b.layerNorm(name+".input_layernorm", m.Hidden, eps),
			mixer: &selfAttention{
				layer: attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim,
					Bias: attention.ALiBi{Slopes: attention.ALiBiSlopes(heads)}},
				qkv:    b.unmixed(name+".self_attention.query_key_value", heads, dim),
				out:    b.linear(name+".self_attention.dense", m.Hidden, m.Hidden),
				number: b.cached(heads, dim, 0),
			},
			mlpNorm: b.layerNorm(name+".post_attention_layernorm", m.Hidden, eps),
			mlp: &plainMLP{
				up:   b.linear(name+".mlp.dense_h_to_4h", 4*m.Hidden, m.Hidden),
				down: b.linear(name+".mlp.dense_4h_to_h", m.Hidden, 4*m.Hidden), act: geluTanh,
			},
		})
	}
	m.finalNorm = b.layerNorm("transformer.ln_f", m.Hidden, eps)
	b.outputHead("lm_head")
}

func buildGPTJ(b *builder) {
	m := b.m
	layers := b.start("n_embd", "n_layer", "n_positions", "transformer.wte.weight")
	eps, heads := b.numberOr("layer_norm_epsilon", 1e-5), b.positive("n_head")
	dim := m.Hidden / heads
	inverse := attention.Inverses(10000, b.wholeOr("rotary_dim", dim))
	rope := spanRoPE(attention.GPTJ, inverse, 1, m.MaxLen)
	inner := b.wholeOr("n_inner", 4*m.Hidden)
	for i := range layers {
		name := fmt.Sprintf("transformer.h.%d", i)
		m.blocks = append(m.blocks, block{
			shape: parallel, in: b.layerNorm(name+".ln_1", m.Hidden, eps),
			mixer: &selfAttention{
				layer: attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim, RoPE: rope},
				qkv: b.fused(m.Hidden, part{name + ".attn.q_proj", m.Hidden},
					part{name + ".attn.k_proj", m.Hidden}, part{name + ".attn.v_proj", m.Hidden}),
				out: b.linear(name+".attn.out_proj", m.Hidden, m.Hidden), number: b.cached(heads, dim, 0),
			},
			mlp: &plainMLP{
				up: b.linear(name+".mlp.fc_in", inner, m.Hidden), down: b.linear(name+".mlp.fc_out", m.Hidden,
					inner), act: b.activation("activation_function", "gelu_new"),
			},
		})
	}
	m.finalNorm = b.layerNorm("transformer.ln_f", m.Hidden, eps)
	b.outputHead("lm_head")
}

func buildGPTNeoX(b *builder) {
	m := b.m
	layers := b.start("hidden_size", "num_hidden_layers", "max_position_embeddings",
		"gpt_neox.embed_in.weight")
	eps, heads := b.numberOr("layer_norm_eps", 1e-5), b.positive("num_attention_heads")
	dim, inner, shape := m.Hidden/heads, b.positive("intermediate_size"), parallel
	if !b.yes("use_parallel_residual", true) {
		shape = preNorm
	}
	if b.has("rotary_pct") && !b.has("partial_rotary_factor") {
		b.values["partial_rotary_factor"] = b.values["rotary_pct"]
	}
	if b.has("rotary_emb_base") && !b.has("rope_theta") {
		b.values["rope_theta"] = b.values["rotary_emb_base"]
	}
	rope := b.ropeOf("", attention.GPTNeoX, dim)
	for i := range layers {
		name := fmt.Sprintf("gpt_neox.layers.%d", i)
		m.blocks = append(m.blocks, block{
			shape: shape, in: b.layerNorm(name+".input_layernorm", m.Hidden, eps),
			mixer: &selfAttention{
				layer: attention.Layer{Heads: heads, KVHeads: heads, HeadDim: dim, RoPE: rope},
				qkv:   b.unmixed(name+".attention.query_key_value", heads, dim),
				out:   b.linear(name+".attention.dense", m.Hidden, m.Hidden), number: b.cached(heads, dim, 0),
			},
			mlpNorm: b.layerNorm(name+".post_attention_layernorm", m.Hidden, eps),
			mlp: &plainMLP{
				up:   b.linear(name+".mlp.dense_h_to_4h", inner, m.Hidden),
				down: b.linear(name+".mlp.dense_4h_to_h", m.Hidden, inner),
				act:  b.activation("hidden_act", "gelu"),
			},
		})
	}
	m.finalNorm = b.layerNorm("gpt_neox.final_layer_norm", m.Hidden, eps)
	head := "lm_head"
	if b.there("embed_out.weight") {
		head = "embed_out"
	}
	b.outputHead(head)
}
