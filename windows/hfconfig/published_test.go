package hfconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// Patterns of published files, so that the table stays readable.
var (
	superBlocks = blocks(80, func(i int) bool { return i < 49 })
	// 54 states, 10 of attention, 54 that keep nothing
	nemotron56B  = "M-M-M-M*-" + strings.Repeat("M-M-M-M-M*-", 9) + "M-M-M-M-M-"
	nanoPattern  = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
	graniteTypes = types(40, func(i int) string { return pick(i%10 == 5, "attention", "mamba") })
	nextTypes    = types(64,
		func(i int) string { return pick((i+1)%4 == 0, "full_attention", "linear_attention") })
	stepTypes = types(45,
		func(i int) string { return pick(i%4 == 0, "full_attention", "sliding_attention") })
	mimoPattern = numbers(48, func(i int) int { return len(pick(i == 0 || i%6 == 5, "", "x")) })
)

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

func types(n int, of func(int) string) string {
	var out []string
	for i := range n {
		out = append(out, `"`+of(i)+`"`)
	}
	return "[" + strings.Join(out, ",") + "]"
}

func numbers(n int, of func(int) int) string {
	return "[" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(listOf(n, of))), ","), "[]") + "]"
}

func listOf(n int, of func(int) int) (out []int) {
	for i := range n {
		out = append(out, of(i))
	}
	return out
}

func blocks(n int, attends func(int) bool) string {
	var out []string
	for i := range n {
		out = append(out, pick(attends(i), `{"attention":{"n_heads_in_group":8,"no_op":false}}`,
			`{"attention":{"n_heads_in_group":null,"no_op":true}}`))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// published are extracts of published files with the bytes that they come to:
// the keys are those of the files, without those that do not matter here.
var published = []struct {
	name, json string
	want       string // pools: name, number of layers, bytes a token or bytes a state
}{
	{"Llama-2-7B",
		`{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":32,"max_position_embeddings":4096,"torch_dtype":"float16"}`,
		"wfullh32 32 524288"},
	{"Llama-2-70B",
		`{"model_type":"llama","hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,
		"num_key_value_heads":8,"max_position_embeddings":4096,"torch_dtype":"float16"}`,
		"wfullh8 80 327680"},
	{"Llama-3.1-8B", llama(32, 4096, 32), "wfullh8 32 131072"},
	{"Llama-3.1-70B", llama(80, 8192, 64), "wfullh8 80 327680"},
	{"Llama-3.1-405B", llama(126, 16384, 128), "wfullh8 126 516096"},
	{"Llama-3.2-1B",
		`{"model_type":"llama","hidden_size":2048,"num_hidden_layers":16,"num_attention_heads":32,
		"num_key_value_heads":8,"head_dim":64,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`,
		"wfullh8 16 32768"},
	{"Llama-3.2-3B",
		`{"model_type":"llama","hidden_size":3072,"num_hidden_layers":28,"num_attention_heads":24,
		"num_key_value_heads":8,"head_dim":128,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`,
		"wfullh8 28 114688"},
	{"Llama-4-Scout", `{"model_type":"llama4","torch_dtype":"bfloat16",
		"text_config":{"model_type":"llama4_text","hidden_size":5120,"num_hidden_layers":48,
		"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"attention_chunk_size":8192,
		"max_position_embeddings":10485760,"no_rope_layers":[]}}`,
		"c8192h8 36 147456, wfullh8 12 49152"},
	{"Llama-4-Maverick", `{"model_type":"llama4","torch_dtype":"bfloat16",
		"text_config":{"model_type":"llama4_text","hidden_size":5120,"num_hidden_layers":48,
		"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"attention_chunk_size":8192,
		"max_position_embeddings":1048576,"no_rope_layers":[],"interleave_moe_layer_step":2}}`,
		"c8192h8 36 147456, wfullh8 12 49152"},
	{"Mistral-7B-v0.1", mistral("4096"), "w4096h8 32 131072"},
	{"Mistral-7B-v0.3", mistral("null"), "wfullh8 32 131072"},
	{"Mixtral-8x7B",
		`{"model_type":"mixtral","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":8,"sliding_window":null,"max_position_embeddings":32768,
		"torch_dtype":"bfloat16"}`,
		"wfullh8 32 131072"},
	{"Mixtral-8x22B",
		`{"model_type":"mixtral","hidden_size":6144,"num_hidden_layers":56,"num_attention_heads":48,
		"num_key_value_heads":8,"sliding_window":null,"max_position_embeddings":65536,
		"torch_dtype":"bfloat16"}`,
		"wfullh8 56 229376"},
	{"Qwen2-0.5B", `{"model_type":"qwen2","hidden_size":896,"num_hidden_layers":24,
		"num_attention_heads":14,"num_key_value_heads":2,"sliding_window":131072,"max_window_layers":24,
		"use_sliding_window":false,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`, "wfullh2 24 12288"},
	{"Qwen2-7B", `{"model_type":"qwen2","hidden_size":3584,"num_hidden_layers":28,
		"num_attention_heads":28,"num_key_value_heads":4,"sliding_window":131072,"max_window_layers":28,
		"use_sliding_window":false,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`, "wfullh4 28 57344"},
	{"Qwen2.5-3B", `{"model_type":"qwen2","hidden_size":2048,"num_hidden_layers":36,
		"num_attention_heads":16,"num_key_value_heads":2,"sliding_window":32768,"max_window_layers":36,
		"use_sliding_window":false,"max_position_embeddings":32768,
		"torch_dtype":"bfloat16"}`, "wfullh2 36 36864"},
	{"Qwen3-0.6B", `{"model_type":"qwen3","hidden_size":1024,"num_hidden_layers":28,
		"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"sliding_window":null,
		"use_sliding_window":false,"max_window_layers":28,"max_position_embeddings":40960,
		"torch_dtype":"bfloat16"}`, "wfullh8 28 114688"},
	{"Qwen3-8B", `{"model_type":"qwen3","hidden_size":4096,"num_hidden_layers":36,
		"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"sliding_window":null,
		"use_sliding_window":false,"max_window_layers":36,"max_position_embeddings":40960,
		"torch_dtype":"bfloat16"}`, "wfullh8 36 147456"},
	{"Qwen3-32B", `{"model_type":"qwen3","hidden_size":5120,"num_hidden_layers":64,
		"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"sliding_window":null,
		"use_sliding_window":false,"max_window_layers":64,"max_position_embeddings":40960,
		"torch_dtype":"bfloat16"}`, "wfullh8 64 262144"},
	{"Qwen3-30B-A3B", qwen3MoE(48, 2048, 32, 4), "wfullh4 48 98304"},
	{"Qwen3-235B-A22B", `{"model_type":"qwen3_moe","hidden_size":4096,"num_hidden_layers":94,
		"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,"sliding_window":null,
		"max_position_embeddings":40960,"torch_dtype":"bfloat16"}`, "wfullh4 94 192512"},
	{"Qwen3-Coder-480B-A35B", qwen3MoE(62, 6144, 96, 8), "wfullh8 62 253952"},
	{"Qwen3-Next-80B-A3B", `{"model_type":"qwen3_next","hidden_size":2048,"num_hidden_layers":48,
		"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"full_attention_interval":4,
		"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,
		"linear_num_value_heads":32,"linear_value_head_dim":128,"max_position_embeddings":262144,
		"torch_dtype":"bfloat16"}`,
		"wfullh2 12 24576, state 36 39518208"},
	{"Qwen3.5-27B", `{"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text",
		"dtype":"bfloat16","hidden_size":5120,"num_hidden_layers":64,"num_attention_heads":24,
		"num_key_value_heads":4,"head_dim":256,
		"layer_types":` + nextTypes + `,"linear_conv_kernel_dim":4,
			"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":48,
			"linear_value_head_dim":128,"mamba_ssm_dtype":"float32",
			"max_position_embeddings":262144}}`, "wfullh4 16 65536, state 48 153944064"},
	{"Qwen3.5-35B-A3B", qwen35MoE(40, 2048, 16, 32), "wfullh2 10 20480, state 30 64389120"},
	{"Qwen3.5-397B-A17B", qwen35MoE(60, 4096, 32, 64), "wfullh2 15 30720, state 45 192061440"},
	{"Gemma-2-2b",
		`{"model_type":"gemma2","hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,
		"num_key_value_heads":4,"head_dim":256,"sliding_window":4096,"max_position_embeddings":8192,
		"torch_dtype":"bfloat16"}`,
		"w4096h4 13 53248, wfullh4 13 53248"},
	{"Gemma-2-9b",
		`{"model_type":"gemma2","hidden_size":3584,"num_hidden_layers":42,"num_attention_heads":16,
		"num_key_value_heads":8,"head_dim":256,"sliding_window":4096,"max_position_embeddings":8192,
		"torch_dtype":"bfloat16"}`,
		"w4096h8 21 172032, wfullh8 21 172032"},
	{"Gemma-2-27b",
		`{"model_type":"gemma2","hidden_size":4608,"num_hidden_layers":46,"num_attention_heads":32,
		"num_key_value_heads":16,"head_dim":128,"sliding_window":4096,"max_position_embeddings":8192,
		"torch_dtype":"bfloat16"}`,
		"w4096h16 23 188416, wfullh16 23 188416"},
	{"Gemma-3-1b", `{"model_type":"gemma3_text","hidden_size":1152,"num_hidden_layers":26,
		"num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"sliding_window":512,
		"sliding_window_pattern":6,"max_position_embeddings":32768,
		"torch_dtype":"bfloat16"}`, "w512h1 22 22528, wfullh1 4 4096"},
	{"Gemma-3-4b",
		`{"model_type":"gemma3","torch_dtype":"bfloat16","text_config":{"model_type":"gemma3_text",
		"hidden_size":2560,"num_hidden_layers":34,"sliding_window":1024,"intermediate_size":10240}}`,
		"w1024h4 29 118784, wfullh4 5 20480"},
	{"Gemma-3-27b", `{"model_type":"gemma3","torch_dtype":"bfloat16",
		"text_config":{"model_type":"gemma3_text","hidden_size":5376,"num_hidden_layers":62,
		"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,
		"sliding_window":1024}}`, "w1024h16 52 425984, wfullh16 10 81920"},
	{"Gemma-3n-E4B",
		`{"model_type":"gemma3n","torch_dtype":"bfloat16","text_config":{"model_type":"gemma3n_text",
		"hidden_size":2048,"num_hidden_layers":35,"num_kv_shared_layers":15}}`,
		"w512h2 16 32768, wfullh2 4 8192"},
	{"Gemma-4-26B-A4B", `{"model_type":"gemma4","torch_dtype":"bfloat16",
		"text_config":{"model_type":"gemma4_text","hidden_size":2816,"num_hidden_layers":30,
		"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"global_head_dim":512,
		"num_global_key_value_heads":2,"attention_k_eq_v":true,"sliding_window":1024,
		"max_position_embeddings":262144}}`,
		"w1024h8 25 204800, wfullh2 5 20480"},
	{"Phi-3.5-mini",
		`{"model_type":"phi3","hidden_size":3072,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":32,"sliding_window":262144,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`,
		"wfullh32 32 393216"},
	{"Phi-4-mini",
		`{"model_type":"phi3","hidden_size":3072,"num_hidden_layers":32,"num_attention_heads":24,
		"num_key_value_heads":8,"partial_rotary_factor":0.75,"sliding_window":262144,
		"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`,
		"wfullh8 32 131072"},
	{"Phi-4",
		`{"model_type":"phi3","hidden_size":5120,"num_hidden_layers":40,"num_attention_heads":40,
		"num_key_value_heads":10,"sliding_window":null,"max_position_embeddings":16384,
		"torch_dtype":"bfloat16"}`,
		"wfullh10 40 204800"},
	{"gpt-oss-20b",
		`{"model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":24,"num_attention_heads":64,
		"num_key_value_heads":8,"head_dim":64,"sliding_window":128,"max_position_embeddings":131072}`,
		"w128h8 12 24576, wfullh8 12 24576"},
	{"gpt-oss-120b", `{"model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":36,
		"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"sliding_window":128,
		"max_position_embeddings":131072,
		"layer_types":` + types(36, func(i int) string {
		return pick(i%2 == 0, "sliding_attention", "full_attention")
	}) + `}`, "w128h8 18 36864, wfullh8 18 36864"},
	{"DeepSeek-V2-Lite", `{"model_type":"deepseek_v2","hidden_size":2048,"num_hidden_layers":27,
		"num_attention_heads":16,"num_key_value_heads":16,"kv_lora_rank":512,"qk_rope_head_dim":64,
		"q_lora_rank":null,"v_head_dim":128,"max_position_embeddings":163840,
		"torch_dtype":"bfloat16"}`, "wfullh1 27 31104"},
	{"DeepSeek-V3", `{"model_type":"deepseek_v3","hidden_size":7168,"num_hidden_layers":61,
		"num_attention_heads":128,"num_key_value_heads":128,"kv_lora_rank":512,"qk_rope_head_dim":64,
		"q_lora_rank":1536,"v_head_dim":128,"max_position_embeddings":163840,
		"torch_dtype":"bfloat16"}`, "wfullh1 61 70272"},
	{"Kimi-K2", `{"model_type":"kimi_k2","hidden_size":7168,"num_hidden_layers":61,
		"num_attention_heads":64,"num_key_value_heads":64,"kv_lora_rank":512,"qk_rope_head_dim":64,
		"q_lora_rank":1536,"v_head_dim":128,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`, "wfullh1 61 70272"},
	{"DeepSeek-V3.2", `{"model_type":"deepseek_v32","hidden_size":7168,"num_hidden_layers":61,
		"num_attention_heads":128,"kv_lora_rank":512,"qk_rope_head_dim":64,"index_head_dim":128,
		"index_topk":2048,"max_position_embeddings":163840,
		"torch_dtype":"bfloat16"}`, "wfullh1 61 78324"},
	{"GLM-5",
		`{"model_type":"glm_moe_dsa","head_dim":64,"num_hidden_layers":78,"num_attention_heads":64,
		"kv_lora_rank":512,"qk_rope_head_dim":64,"index_head_dim":128,"max_position_embeddings":202752,
		"dtype":"bfloat16"}`,
		"wfullh1 78 100152"},
	{"GLM-4-9B",
		`{"model_type":"chatglm","hidden_size":4096,"num_attention_heads":32,"num_layers":40,
		"multi_query_attention":true,"multi_query_group_num":2,"kv_channels":128,"seq_length":131072,
		"torch_dtype":"bfloat16"}`,
		"wfullh2 40 40960"},
	{"GLM-4-9B of transformers",
		`{"model_type":"glm","hidden_size":4096,"num_hidden_layers":40,"num_attention_heads":32,
		"num_key_value_heads":2,"head_dim":128,"partial_rotary_factor":0.5,
		"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`,
		"wfullh2 40 40960"},
	{"GLM-4.5-Air",
		`{"model_type":"glm4_moe","hidden_size":4096,"num_hidden_layers":46,"num_attention_heads":96,
		"num_key_value_heads":8,"head_dim":128,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`,
		"wfullh8 46 188416"},
	{"Command-R",
		`{"model_type":"cohere","hidden_size":8192,"num_hidden_layers":40,"num_attention_heads":64,
		"num_key_value_heads":64,"max_position_embeddings":8192,"torch_dtype":"float16"}`,
		"wfullh64 40 1310720"},
	{"Command-R7B",
		`{"model_type":"cohere2","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":8,"sliding_window":4096,"sliding_window_pattern":4,
		"max_position_embeddings":132096,"torch_dtype":"bfloat16"}`,
		"w4096h8 24 98304, wfullh8 8 32768"},
	{"aya-23-8B",
		`{"model_type":"cohere","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":8,"max_position_embeddings":8192,"use_qk_norm":false,
		"torch_dtype":"float16"}`,
		"wfullh8 32 131072"},
	{"Falcon-H1-7B", `{"model_type":"falcon_h1","hidden_size":3072,"num_hidden_layers":44,
		"num_attention_heads":12,"num_key_value_heads":2,"head_dim":128,"mamba_d_ssm":3072,
		"mamba_n_heads":24,"mamba_d_head":128,"mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,
		"mamba_expand":2,"max_position_embeddings":262144,
		"torch_dtype":"bfloat16"}`, "wfullh2 44 45056, state 44 70152192"},
	{"Nemotron-3-Nano-30B", `{"model_type":"nemotron_h","hidden_size":2688,"num_hidden_layers":52,
		"num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,
		"hybrid_override_pattern":"` + nanoPattern + `","mamba_num_heads":64,"mamba_head_dim":64,
			"ssm_state_size":128,"n_groups":8,"conv_kernel":4,"mamba_ssm_cache_dtype":"float32",
			"time_step_limit":[0.0,Infinity],"max_position_embeddings":262144,"torch_dtype":"bfloat16"}`,
		"wfullh2 6 6144, state 23 49082368"},
	{"Nemotron-H-56B", `{"model_type":"nemotron_h","hidden_size":8192,"num_attention_heads":64,
		"num_key_value_heads":8,"attention_head_dim":128,
		"hybrid_override_pattern":"` + nemotron56B + `","mamba_num_heads":256,"mamba_head_dim":64,
		"ssm_state_size":256,"n_groups":8,"conv_kernel":4,"max_position_embeddings":8192,
		"torch_dtype":"bfloat16"}`,
		"wfullh8 10 40960, state 54 459620352"},
	{"Nemotron-Super-49B",
		`{"model_type":"nemotron-nas","hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,
		"num_key_value_heads":null,
		"block_configs":` + superBlocks + `,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`,
		"wfullh8 49 200704"},
	{"Jamba-v0.1", `{"model_type":"jamba","hidden_size":4096,"num_hidden_layers":32,
		"num_attention_heads":32,"num_key_value_heads":8,"attn_layer_period":8,"attn_layer_offset":4,
		"mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2,"max_position_embeddings":262144,
		"torch_dtype":"bfloat16"}`, "wfullh8 4 16384, state 28 8716288"},
	{"Bamba-9B", `{"model_type":"bamba","hidden_size":4096,"num_hidden_layers":32,
		"num_attention_heads":32,"num_key_value_heads":8,"attn_layer_indices":[9,18,27],"mamba_d_conv":4,
		"mamba_d_head":64,"mamba_d_state":128,"mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":128,
		"max_position_embeddings":262144,
		"torch_dtype":"bfloat16"}`, "wfullh8 3 12288, state 29 62287360"},
	{"Granite-4.0-H-Small", `{"model_type":"granitemoehybrid","hidden_size":4096,
		"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,
		"layer_types":` + graniteTypes + `,"mamba_d_conv":4,"mamba_d_head":64,"mamba_d_state":128,
			"mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":128,"max_position_embeddings":131072,
			"torch_dtype":"bfloat16"}`, "wfullh8 4 16384, state 36 77322240"},
	{"Kimi-Linear", `{"model_type":"kimi_linear","hidden_size":2304,"num_hidden_layers":4,
		"num_attention_heads":32,"num_key_value_heads":32,"head_dim":72,"kv_lora_rank":512,
		"qk_rope_head_dim":64,"linear_attn_config":{"full_attn_layers":[4],"kda_layers":[1,2,3],
		"head_dim":128,"num_heads":32,"short_conv_kernel_size":4},"model_max_length":1048576,
		"max_position_embeddings":1048576,"dtype":"bfloat16"}`,
		"wfullh1 1 1152, state 3 6512640"},
	{"MiMo-V2-Flash", `{"model_type":"mimo_v2_flash","hidden_size":4096,"num_hidden_layers":48,
		"num_attention_heads":64,"num_key_value_heads":4,"head_dim":192,"v_head_dim":128,
		"swa_num_key_value_heads":8,"swa_head_dim":192,"swa_v_head_dim":128,
		"hybrid_layer_pattern":` + mimoPattern + `,"sliding_window":128,
			"attention_chunk_size":128,"max_position_embeddings":262144,"torch_dtype":"bfloat16"}`,
		"w128h8 39 199680, wfullh4 9 23040"},
	{"Step-3.7-Flash", `{"model_type":"step3p7","hidden_size":4096,"num_hidden_layers":45,
		"num_attention_heads":64,"num_attention_groups":8,"head_dim":128,
		"layer_types":` + stepTypes + `,"sliding_window":512,"max_position_embeddings":262144,
			"torch_dtype":"bfloat16"}`, "w512h8 33 135168, wfullh8 12 49152"},
	{"whisper-large-v3",
		`{"model_type":"whisper","d_model":1280,"decoder_layers":32,"decoder_attention_heads":20,
		"encoder_layers":32,"is_encoder_decoder":true,"max_source_positions":1500,
		"max_target_positions":448,"torch_dtype":"float16"}`,
		"wfullh20 32 163840, cross_h20 32 163840"},
	{"t5-small",
		`{"model_type":"t5","d_model":512,"d_kv":64,"num_heads":8,"num_layers":6,"num_decoder_layers":6,
		"n_positions":512,"is_encoder_decoder":true,"dtype":"float16"}`,
		"wfullh8 6 12288, cross_h8 6 12288"},
	{"Qwen2.5-VL-7B", `{"model_type":"qwen2_5_vl","hidden_size":3584,"num_hidden_layers":28,
		"num_attention_heads":28,"num_key_value_heads":4,"use_sliding_window":false,
		"sliding_window":32768,"max_window_layers":28,"max_position_embeddings":128000,
		"torch_dtype":"bfloat16","vision_config":{"depth":32}}`, "wfullh4 28 57344"},
	{"Qwen3-VL-8B", `{"model_type":"qwen3_vl","text_config":{"model_type":"qwen3_vl_text",
		"dtype":"bfloat16","hidden_size":4096,"num_hidden_layers":36,"num_attention_heads":32,
		"num_key_value_heads":8,"head_dim":128,"max_position_embeddings":262144,
		"rope_scaling":{"mrope_interleaved":true,"mrope_section":[24,20,20]}},
		"vision_config":{"model_type":"qwen3_vl","depth":27,"num_heads":16}}`, "wfullh8 36 147456"},
	{"Qwen3-VL-30B-A3B", `{"model_type":"qwen3_vl_moe","text_config":{"model_type":"qwen3_vl_moe_text",
		"dtype":"bfloat16","hidden_size":2048,"num_hidden_layers":48,"num_attention_heads":32,
		"num_key_value_heads":4,"head_dim":128,"num_experts":128,"decoder_sparse_step":1,
		"max_position_embeddings":262144},"vision_config":{"depth":27}}`, "wfullh4 48 98304"},
	{"gpt2", `{"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024}`,
		"wfullh12 12 73728"},
	{"falcon-7b",
		`{"model_type":"falcon","hidden_size":4544,"num_attention_heads":71,"num_hidden_layers":32,
		"multi_query":true,"new_decoder_architecture":false,"max_position_embeddings":2048,
		"torch_dtype":"bfloat16"}`,
		"wfullh1 32 8192"},
	{"chatglm3",
		`{"model_type":"chatglm","hidden_size":4096,"num_attention_heads":32,"num_layers":28,
		"multi_query_attention":true,"multi_query_group_num":2,"kv_channels":128,"seq_length":8192,
		"torch_dtype":"float16"}`,
		"wfullh2 28 28672"},
	{"an unknown one with the common keys",
		`{"model_type":"wonder","hidden_size":1024,"num_hidden_layers":2,"num_attention_heads":8,
		"max_position_embeddings":4096,"dtype":"bfloat16","rope_scaling":{"type":"yarn"}}`,
		"wfullh8 2 8192"},
}

func llama(layers, width, heads int) string {
	return fmt.Sprintf(
		`{"model_type":"llama","hidden_size":%d,"num_hidden_layers":%d,"num_attention_heads":%d,
		"num_key_value_heads":8,"max_position_embeddings":131072,
		"torch_dtype":"bfloat16"}`, width, layers, heads)
}

func qwen3MoE(layers, width, heads, kvHeads int) string {
	return fmt.Sprintf(`{"model_type":"qwen3_moe","hidden_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":%d,"num_key_value_heads":%d,"head_dim":128,"sliding_window":null,
		"use_sliding_window":false,"max_window_layers":%d,"decoder_sparse_step":1,
		"max_position_embeddings":262144,
		"torch_dtype":"bfloat16"}`, width, layers, heads, kvHeads, layers)
}

func qwen35MoE(layers, width, heads, valueHeads int) string {
	return fmt.Sprintf(`{"model_type":"qwen3_5_moe","text_config":{"model_type":"qwen3_5_moe_text",
		"dtype":"bfloat16","hidden_size":%d,"num_hidden_layers":%d,"num_attention_heads":%d,
		"num_key_value_heads":2,"head_dim":256,"full_attention_interval":4,"linear_conv_kernel_dim":4,
		"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":%d,
		"linear_value_head_dim":128,"mamba_ssm_dtype":"float32","max_position_embeddings":262144},
		"vision_config":{"depth":27}}`, width, layers, heads, valueHeads)
}

func mistral(window string) string {
	return `{"model_type":"mistral","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":8,
		"sliding_window":` + window + `,"max_position_embeddings":32768,"torch_dtype":"bfloat16"}`
}

// drawn lists the pools of a model as the table does.
func drawn(t *testing.T, m Model) string {
	c := m.Configure(windows.DefaultConfig())
	if m.Encodes() {
		c.CrossKVCacheFraction = 0.5
	}
	pools, err := windows.Pools(m.Model, c)
	require.NoError(t, err)
	if cross, ok := windows.CrossPool(m.Model, c); ok {
		pools = append(pools, cross)
	}
	var out []string
	for _, p := range pools {
		bytes := p.TokenBytes()
		if p.Kind == windows.KindState {
			bytes = p.PageBytes()
		}
		out = append(out, fmt.Sprintf("%s %d %d", p.Name, len(p.Layers), bytes))
	}
	return strings.Join(out, ", ")
}

func TestPublishedModels(t *testing.T) {
	for _, tc := range published {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Read(strings.NewReader(tc.json), Options{})
			require.NoError(t, err)
			assert.Equal(t, tc.want, drawn(t, m))
		})
	}
}

// TestPresets: each preset is what the reader makes of the file.
func TestPresets(t *testing.T) {
	files := map[string]string{ // names of the table that differ
		"Gemma-3-1B": "Gemma-3-1b", "Gemma-3-4B": "Gemma-3-4b", "Gemma-3-27B": "Gemma-3-27b",
		"GPT-OSS-20B": "gpt-oss-20b",
	}
	for name, preset := range windows.Presets() {
		file := name
		if f := files[name]; f != "" {
			file = f
		}
		found := false
		for _, tc := range published {
			if tc.name != file {
				continue
			}
			found = true
			m, err := Read(strings.NewReader(tc.json), Options{})
			require.NoError(t, err)
			assert.Equal(t, drawn(t, m), drawn(t, Model{Preset: preset}), name)
			assert.Equal(t, m.MaxSeqLen, preset.MaxSeqLen, name)
		}
		assert.True(t, found, "%s is not in the table", name)
	}
}
