package model

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
)

// Whatever a configuration says, a model without weights is refused: it is not built, the
// program does not panic, and what is refused is named in a text of bounded length.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		`{"model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":64,
		"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"rms_norm_eps":1e-5}`,
		`{"model_type":"gemma3_text","hidden_size":8,"num_hidden_layers":1000000000,
		"num_attention_heads":2,"head_dim":4,"sliding_window":4,"layer_types":["full_attention"]}`,
		`{"model_type":"qwen3_next","rope_scaling":{"rope_type":"yarn","factor":NaN},
		"num_hidden_layers":4}`,
		`{"model_type":"deepseek_v3","q_lora_rank":null,"rope_theta":Infinity,
		"n_routed_experts":1073741824,"num_hidden_layers":1}`,
		`{"model_type":"bamba","mamba_d_state":-1,"attn_layer_indices":[0,5]}`,
		`{"model_type":"t5","d_kv":1,"num_layers":3}`, `{"model_type":"bart"}`,
		`{"model_type":"gpt_oss","num_local_experts":4}`, `{"model_type":"bloom","n_layer":2}`,
		`{"model_type":"gptj"}`, `{"model_type":"gpt_neox","rotary_pct":2}`,
		`{"model_type":"bert"}`, `null`, `[]`, `{"a":"\"Infinity","b":Infinity`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSettings(text)
		if err != nil {
			return
		}
		_, err = (&Source{settings: s, tensors: weights.Set{}, Files: fstest.MapFS{}}).Build()
		require.Error(t, err)
		require.Less(t, len(err.Error()), 1<<20)
	})
}
