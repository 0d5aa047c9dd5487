package model

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
)

// ggufKinds are the architectures of GGUF files that are read, with their
// model_type here.
var ggufKinds = map[string]string{"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
	"gemma3": "gemma3_text"}

// ggufKeys are Hugging Face's names of GGUF's keys, which begin with the
// architecture.
var ggufKeys = map[string]string{
	"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
	"embedding_length":    "hidden_size",
	"feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
	"attention.head_count_kv":          "num_key_value_heads",
	"attention.layer_norm_rms_epsilon": "rms_norm_eps",
	"attention.key_length":             "head_dim", "attention.sliding_window": "sliding_window",
	"rope.freq_base": "rope_theta",
}

// ggufTensors are Hugging Face's names of GGUF's tensors; %s is the layer.
var ggufTensors = map[string]string{
	"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
	"rope_freqs": ropeFactors,
	"attn_norm":  "model.layers.%s.input_layernorm",
	"ffn_norm":   "model.layers.%s.post_attention_layernorm",
	"attn_q":     "model.layers.%s.self_attn.q_proj", "attn_k": "model.layers.%s.self_attn.k_proj",
	"attn_v": "model.layers.%s.self_attn.v_proj", "attn_output": "model.layers.%s.self_attn.o_proj",
	"attn_q_norm": "model.layers.%s.self_attn.q_norm",
	"attn_k_norm": "model.layers.%s.self_attn.k_norm",
	"ffn_gate":    "model.layers.%s.mlp.gate_proj", "ffn_up": "model.layers.%s.mlp.up_proj",
	"ffn_down":            "model.layers.%s.mlp.down_proj",
	"post_attention_norm": "model.layers.%s.post_attention_layernorm",
	"post_ffw_norm":       "model.layers.%s.post_feedforward_layernorm",
}

// openGGUF reads a GGUF file and gives it Hugging Face's names.
func openGGUF(path string) (*Source, error) {
	g, err := weights.ReadGGUF(path)
	if err != nil {
		return nil, err
	}
	s, err := fromGGUF(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func fromGGUF(g *weights.GGUF) (*Source, error) {
	kind, _ := g.Meta["general.architecture"].(string)
	if ggufKinds[kind] == "" {
		return nil, fmt.Errorf("general.architecture: %q is not supported", kind)
	}
	values := map[string]any{"model_type": ggufKinds[kind], "hidden_act": "silu"}
	for key, name := range ggufKeys {
		if v, ok := g.Meta[kind+"."+key]; ok {
			values[name] = asNumber(v)
		}
	}
	if tokens, ok := g.Meta["tokenizer.ggml.tokens"].([]any); ok {
		values["vocab_size"] = float64(len(tokens))
	} else if t := g.Tensors["token_embd.weight"]; t != nil && len(t.Shape) == 2 {
		values["vocab_size"] = float64(t.Shape[0])
	}
	if err := ggufRoPE(g, kind, values); err != nil {
		return nil, err
	}
	switch kind {
	case "llama":
		// Rows of Q and K are in another order: halves became neighbours.
		values["rope_pairs"] = true
	case "gemma3":
		values["hidden_activation"], values["norm_plus_one"] = "gelu_pytorch_tanh", false
		values["rope_local_base_freq"] = 10000.0
		values["query_pre_attn_scalar"] = values["head_dim"]
	}
	s := &Source{settings: &settings{values: values}, tensors: weights.Set{}, Meta: g.Meta}
	for name, t := range g.Tensors {
		renamed, ok := ggufName(kind, name)
		if !ok {
			return nil, fmt.Errorf("tensor %s is not known", name)
		}
		s.tensors[renamed] = t
	}
	return s, nil
}

// ggufRoPE reads RoPE's scaling; what is not known is refused by key.
func ggufRoPE(g *weights.GGUF, kind string, values map[string]any) error {
	if g.Tensors["rope_freqs.weight"] != nil && kind != "llama" {
		return fmt.Errorf("rope_freqs.weight: frequencies in a tensor are not supported for %s", kind)
	}
	scaling, _ := g.Meta[kind+".rope.scaling.type"].(string)
	switch scaling {
	case "", "none":
	case "linear":
		values["rope_scaling"] = map[string]any{"rope_type": "linear",
			"factor": asNumber(g.Meta[kind+".rope.scaling.factor"])}
	default:
		return fmt.Errorf("%s.rope.scaling.type: %q is not supported", kind, scaling)
	}
	return nil
}

// ggufName gives Hugging Face's name of a tensor.
func ggufName(kind, name string) (string, bool) {
	layer, rest := "", name
	if after, ok := strings.CutPrefix(name, "blk."); ok {
		layer, rest, _ = strings.Cut(after, ".")
	}
	dot := strings.LastIndex(rest, ".")
	if dot < 0 {
		return "", false
	}
	base, suffix := rest[:dot], rest[dot:]
	to, ok := ggufTensors[base]
	if kind == "gemma3" && base == "ffn_norm" {
		to = "model.layers.%s.pre_feedforward_layernorm"
	}
	if strings.Contains(to, "%s") {
		to = fmt.Sprintf(to, layer)
	}
	return to + suffix, ok
}

// asNumber gives a number of metadata as JSON has numbers.
func asNumber(v any) any {
	switch x := v.(type) {
	case uint64:
		return float64(x)
	case int64:
		return float64(x)
	}
	return v
}
