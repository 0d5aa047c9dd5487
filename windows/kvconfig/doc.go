// Package kvconfig reads a windows.Config from JSON or YAML, with the names of TensorRT-LLM's
// KvCacheConfig:
//
//	kv_cache_config:
//	  max_attention_window: [512, 512, 512, 512, 512, 32768]
//	  free_gpu_memory_fraction: 0.8
//	  host_cache_size: 8589934592
//	  dtype: auto
//
// A file of TensorRT-LLM's options, as trtllm-serve takes it, can be read unchanged: if the text
// has kv_cache_config at its top level, only that section is read and the other top-level names are
// ignored. Otherwise the whole text is the section. A field that is absent or null has its default.
//
// # Names
//
// Every field of windows.Config has a name, in lower case with underscores. The
// other names of KvCacheConfig, up to TensorRT-LLM 1.3, are known too:
//
//	avg_seq_len                           sets expected_seq_len
//	mamba_state_cache_interval            sets state_checkpoint_interval
//	mamba_state_config                    its periodic_snapshot_interval does the same;
//	                                      enable_branch_snapshot may be true; additional
//	                                      offsets are refused
//	attention_dp_events_gather_period_ms  accepted without effect: each tunes a part that the
//	enable_swa_scratch_reuse              engine does not have, or the host's kernels
//	fp8_context_mla_kv_len_cap
//	iteration_stats_interval
//	kv_cache_event_hash_algo
//	mamba_ssm_philox_rounds
//	mamba_ssm_stochastic_rounding
//	max_util_for_resume
//	use_kv_cache_manager_v2
//	block_reuse_config                    refused with the reason, unless null or a value that
//	disk_cache_path                       asks for nothing: 0, false, an empty path
//	disk_cache_size
//	enable_kv_pool_rebalance
//	kv_cache_retention_config
//	kv_events_config
//	max_gpu_total_bytes
//	pool_ratio
//
// Any other name is refused, and so is a name of the cache configuration that stands beside the
// section instead of in it.
//
// # Retention
//
// ReadRetentionJSON and ReadRetentionYAML read the retention of a request, an
// argument of TensorRT-LLM's generate, under the names of KvCacheRetentionConfig:
//
//	token_range_retention_configs:             Retention.Ranges
//	- token_start: 0                           Start
//	  token_end: 1024                          End; without it EndOfPrompt
//	  priority: 80                             Priority; without it 35
//	  duration_ms: 60000                       Duration; without it for ever
//	decode_retention_priority: 20              Decode.Priority; without it 35
//	decode_duration_ms: 1000                   Decode.Duration; without it for ever
//
// decode_retention_policy, the name in TensorRT-LLM's documents, stands for
// decode_retention_priority. transfer_mode and directory are refused unless they
// ask for nothing: "DRAM" and "".
//
// # Errors
//
// All problems are reported in one error, each with the name of its field: a
// value of the wrong type makes it ErrBadRequest, otherwise it is ErrConfigInvalid.
// Whether a value is allowed is checked by Config.Validate, which needs the
// model. The configuration is returned together with the error, so that both
// kinds of problems can be reported at once:
//
//	c, err := kvconfig.ReadYAML(file)
//	err = windows.Join(err, c.Validate(model))
//
// The package is separate from windows so only hosts that read files depend on a YAML parser.
package kvconfig
