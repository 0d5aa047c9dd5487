package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// options is a file of TensorRT-LLM's options.
const options = `backend: pytorch
max_batch_size: 16
enable_chunked_prefill: true
kv_cache_config:
  tokens_per_block: 128
  dtype: fp8
  max_tokens: 1000
  host_cache_size: 1_048_576
  max_attention_window: [64, 4096]
  enable_partial_reuse: false
  event_buffer_max_size: 64
  use_kv_cache_manager_v2: auto
`

// A server reads TensorRT-LLM's options; flags come before the file.
func TestServeReadsAnOptionsFile(t *testing.T) {
	file := written(t, "options.yaml", options)
	_, stop, errs := startServe(t, "--config", file, "--max-len", "512")
	assert.Zero(t, stop(), errs.text())
	// 1000 tokens are 8 blocks, and a MiB has 16 pages of each pool.
	const pool = "pool wfullh2: %d pages of 32.0 KiB on the device, %d in host memory"
	assert.Contains(t, errs.text(), fmt.Sprintf(pool, 8, 16))
	_, stop, errs = startServe(t, "--config", file, "--max-len", "512",
		"--tokens-per-block", "32", "--host-pages", "5", "--set", "max_tokens=64", "--set", "dtype=auto")
	assert.Zero(t, stop(), errs.text())
	assert.Contains(t, errs.text(), fmt.Sprintf(pool, 2, 5))
}

// demo chat and demo model run take the same flags.
func TestChatReadsAnOptionsFile(t *testing.T) {
	roomy := strings.Replace(options, "max_tokens: 1000", "max_tokens: null", 1)
	file := written(t, "options.yaml", roomy)
	const said = "My name is Anna.\nWhat is my name?\n"
	status, out, errs := command(t, said, "chat", "--model", "tiny", "--config", file)
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "Anna")
	assert.Contains(t, errs, "[0 of 45 prompt tokens cached", "no whole block, no partial reuse")
	const request = `{"tokens":[5,7,11,13],"new":8}` + "\n"
	status, out, errs = command(t, request, "model", "run", fixtureFolder, "--set",
		"tokens_per_block=4")
	assert.Zero(t, status, errs)
	assert.Contains(t, out, `"greedy"`)
}

// What would compute another model, or cannot be, is refused with the key's name.
func TestOptionsOfTheModel(t *testing.T) {
	for want, set := range map[string]string{
		"max_attention_window [64]: layer 1 of the model has 4096": "max_attention_window=[64]",
		"sink_token_length 4: the model has no sinks":              "sink_token_length=4",
		"mamba_ssm_cache_dtype float16: states are float32":        "mamba_ssm_cache_dtype=float16",
		"--set: unknown name tokens":                               "tokens=5",
		"tokens_per_block 24 is not a power of two":                "tokens_per_block=24",
		"use_uvm is deprecated":                                    "use_uvm=true",
	} {
		for _, name := range []string{"serve", "chat"} {
			status, out, errs := command(t, "", name, "--model", "tiny", "--set", set)
			assert.Equal(t, statusUsage, status, want)
			assert.Empty(t, out)
			assert.Contains(t, errs, want)
		}
	}
}
