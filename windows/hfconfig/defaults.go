package hfconfig

// defaults are the class defaults of model types whose files leave keys out:
// nested text parts above all. There are only those that the readers need.
// ReadValues does not use them.
var defaults = map[string]map[string]any{
	"llama":        {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048},
	"mistral":      {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072},
	"qwen2":        {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768},
	"gemma":        {"head_dim": 256, "max_position_embeddings": 8192},
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
