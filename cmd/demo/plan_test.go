package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/plan"
)

// planned runs `demo plan` for JSON.
func planned(t *testing.T, args ...string) plan.Plan {
	t.Helper()
	status, out, errs := command(t, "", append([]string{"plan", "--json"}, args...)...)
	require.Zero(t, status, errs)
	var p plan.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

// written is a file of the given text.
func written(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const llamaConfig = `{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,
	"num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,
	"torch_dtype":"bfloat16"}`

// One pool: the numbers are a division.
func TestPlanOfOnePool(t *testing.T) {
	p := planned(t, written(t, "config.json", llamaConfig), "--memory", "20GiB", "--host-memory",
		"8GiB", "--sequences", "3", "--seq-len", "8192")
	require.Len(t, p.Pools, 1)
	pool := p.Pools[0]
	assert.Equal(t, "wfullh8", pool.Name)
	assert.Equal(t, 32, pool.Layers)
	assert.EqualValues(t, 131072, pool.TokenBytes)
	assert.EqualValues(t, 4<<20, pool.PageBytes)
	assert.Equal(t, 20*1024/4*9/10, pool.Primary)
	assert.Equal(t, 2048-228, pool.Secondary, "a ninth is for copies ahead of demand")
	assert.Equal(t, plan.HostUse{Contents: 1820 * 4 << 20, Ahead: 228 * 4 << 20, Save: 2 << 30},
		p.HostUse)
	assert.EqualValues(t, 8<<30, p.Host)
	assert.Equal(t, plan.Ranks{Devices: 1, Device: 4608 * 4 << 20, Host: 8 << 30}, p.Ranks)
	assert.InEpsilon(t, 6e6, p.Metadata, 0.1)
	assert.InDelta(t, 1, pool.Share, 1e-9)
	assert.Equal(t, plan.Need{Sequences: 3, Tokens: 8192, Bytes: 3 << 30}, p.Need)
	assert.Equal(t, plan.Fit{Tokens: 8192, Sequences: 18, Limit: "wfullh8", Bytes: 1 << 30}, p.Fits[2])
	assert.Equal(t, 131072, p.LongestAlone)
	assert.Empty(t, p.Warnings)
}

// The other ways to name a model and its options come to the same.
func TestPlanSources(t *testing.T) {
	config := written(t, "config.json", llamaConfig)
	preset := planned(t, "Llama-3.1-8B", "--dtype", "fp8", "--tp", "2", "--tokens-per-block", "64",
		"--memory", "1e10")
	file := planned(t, config, "--dtype", "fp8", "--tp", "2", "--tokens-per-block", "64", "--memory",
		"10GB")
	folder := planned(t, filepath.Dir(config), written(t, "options.yaml",
		"max_batch_size: 8\nkv_cache_config: {dtype: fp8, tokens_per_block: 64}\n"),
		"--tp", "2", "--memory", "10gb")
	assert.Equal(t, "wfullh4", preset.Pools[0].Name)
	assert.Equal(t, preset.Pools, file.Pools)
	assert.Equal(t, preset.Pools, folder.Pools)
	assert.Equal(t, preset.Fits, folder.Fits)
}

func TestPlanOfHybrids(t *testing.T) {
	p := planned(t, "GPT-OSS-20B", "--memory", "16GiB", "--parameters", "3.6e9", "--link",
		"h100-pcie5")
	assert.Equal(t, 2343, p.Pools[0].Primary, "as an engine has it")
	assert.Equal(t, 17317, p.Pools[1].Primary)
	// 4096 blocks of full attention and five of the window, 768 KiB each.
	assert.Equal(t, plan.Fit{Tokens: 131072, Sequences: 4, Limit: "wfullh8",
		Bytes: (4096 + 5) * 768 << 10}, p.Fits[4])
	assert.Len(t, p.Warnings, 1)
	assert.Equal(t, 74976, p.LongestPrompt)
	assert.Equal(t, "h100-pcie5", p.Offload.Link)
	assert.Positive(t, p.Offload.BreakEven)

	p = planned(t, "Qwen3-Next-80B-A3B", "--memory", "40GiB", "--seq-len", "32768", "--tp", "2")
	require.Len(t, p.Pools, 2)
	assert.Equal(t, "state", p.Pools[1].Name)
	assert.EqualValues(t, 39518208/2, p.Pools[1].PageBytes)
	assert.Zero(t, p.Pools[1].TokenBytes)
	// A prefix brings back all its blocks and one checkpoint.
	assert.Equal(t, int64(1024)*12288+39518208/2, p.Offload.Rows[0].Bytes)

	whisper := written(t, "config.json",
		`{"model_type":"whisper","d_model":1280,"decoder_layers":32,"decoder_attention_heads":20,
		"max_source_positions":1500,"max_target_positions":448,"dtype":"float16"}`)
	p = planned(t, whisper, "--memory", "10GiB")
	assert.Equal(t, "cross_h20", p.Pools[1].Name)
	assert.Contains(t, p.Notes[0], "half of the memory")
}

func TestPlanTables(t *testing.T) {
	status, out, errs := command(t, "", "plan", "DeepSeek-V3", "--memory", "60GiB", "--seq-len",
		"16384", "--parameters", "37e9")
	require.Zero(t, status, errs)
	for _, want := range []string{
		"DeepSeek-V3: 61 layers, sequences of up to 163 840 tokens, blocks of 32\n",
		"latent 576 bfloat16", "68.6 KiB", "limited by",
		"1 sequence of 16 384 tokens: 1.1 GiB\n", "tokens or more is back sooner than computed",
	} {
		assert.Contains(t, out, want)
	}
}

func TestPlanResources(t *testing.T) {
	status, out, errs := command(t, "", "plan", "GPT-OSS-20B", "--resources", "--seq-len", "8192")
	require.Zero(t, status, errs)
	assert.Contains(t, out,
		"layers 1 3 5 7 9 11 13 15 17 19 21 23: 8 KV heads x 64 bfloat16, kv_factor 2, HND\n"+
			"    2.0 KiB a token in pages of pool wfullh8: agrees with kv_cache_0")
	assert.Len(t, planned(t, "GPT-OSS-20B", "--resources", "--seq-len", "8192").Resources, 3)
	assert.Empty(t, planned(t, "GPT-OSS-20B", "--seq-len", "8192").Resources)
	// The cross pool is none of a layer's.
	whisper := written(t, "config.json",
		`{"model_type":"whisper","d_model":1280,"decoder_layers":32,"decoder_attention_heads":20,
		"max_source_positions":1500,"max_target_positions":448,"dtype":"float16"}`)
	assert.Len(t, planned(t, whisper, "--memory", "10GiB", "--resources").Resources, 2)
}

func TestPlanMistakes(t *testing.T) {
	cases := map[string]struct {
		args   []string
		status int
		want   string
	}{
		"host memory": {[]string{"plan", "Llama-3.1-8B", "--tp", "4", "--host-memory", "8GiB",
			"--host-free", "31GiB"}, 1,
			"host_cache_size 8.0 GiB on each of 4 devices is more than the 31.0 GiB"},
		"no model": {[]string{"plan"}, 2, "accepts between 1 and 2 arg"},
		"unknown model": {[]string{"plan", "Llama-9"}, 1,
			"Llama-9 is neither a file nor one of the presets DeepSeek-V3, GPT"},
		"bad size": {[]string{"plan", "Llama-3.1-8B", "--memory", "much"}, 2,
			"not a size such as 80GiB"},
		"no devices": {[]string{"plan", "Llama-3.1-8B", "--tp", "0"}, 2, "--tp 0"},
		"too many devices": {[]string{"plan", "Llama-3.1-8B", "--tp", "3"}, 1,
			"8 KV heads cannot be divided between 3 devices"},
		"too little": {[]string{"plan", "Llama-3.1-8B", "--memory", "1MiB"}, 1,
			"pool wfullh8 gets no page"},
		"no such link": {[]string{"plan", "Llama-3.1-8B", "--link", "rope"}, 2,
			"--link rope is none of a100-pcie4, h100"},
		"no memory": {[]string{"plan", "Llama-3.1-8B", "--memory", "0"}, 2,
			"--memory 0 holds no cache"},
		"blocks of 0": {[]string{"plan", "Llama-3.1-8B", "--tokens-per-block", "0"}, 2,
			"--tokens-per-block 0 is not at least 1"},
		"lengths of 0": {[]string{"plan", "Llama-3.1-8B", "--max-seq-len", "0"}, 2,
			"--max-seq-len 0 is not at least 1"},
		"negative length": {[]string{"plan", "Llama-3.1-8B", "--max-seq-len", "-3"}, 2,
			"--max-seq-len -3 is negative"},
		"no number": {[]string{"plan", "Llama-3.1-8B", "--parameters", "NaN"}, 2,
			"--parameters NaN is not within"},
		"too many": {[]string{"plan", "Llama-3.1-8B", "--sequences", "100000000000"}, 1,
			"100 000 000 000 sequences of 131 072 tokens take more than 8 EiB"},
		"states of preset": {[]string{"plan", "Qwen3-Next-80B-A3B",
			written(t, "o.yaml", "kv_cache_config: {mamba_ssm_cache_dtype: float32}")}, 1,
			"needs a config.json"},
		"an encoder": {[]string{"plan", written(t, "c.json", `{"model_type":"bert"}`)}, 1,
			"an encoder has no cache"},
		"no such dtype": {[]string{"plan", "Llama-3.1-8B", "--dtype", "int3"}, 1,
			`dtype "int3" is not one of`},
		"key not read": {[]string{"plan", written(t, "c.json",
			`{"model_type":"wonder","sliding_window":9,"max_position_embeddings":99,"dtype":"float16"}`)}, 1,
			"sliding_window"},
		"unknown key": {[]string{"plan", written(t, "c.json",
			`{"model_type":"wonder","ssm_size":1}`)}, 1, "ssm_size"},
		"not a GGUF file": {[]string{"plan", written(t, "m.gguf", "text")}, 1, "is not a GGUF file"},
		"all at once": {[]string{"plan", "Llama-3.1-8B", written(t, "o.yaml",
			"{tokens_per_block: many, free_gpu_memory_fraction: 7}")}, 1,
			"tokens_per_block is a string, not an integer; free_gpu_memory_fraction 7 is not"},
		"options not read": {[]string{"plan", "Llama-3.1-8B", written(t, "o.yaml",
			"kv_cache_config: {nope: 1}")}, 1, "unknown name nope"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, out, errs := command(t, "", tc.args...)
			assert.Equal(t, tc.status, status, errs)
			assert.Empty(t, out)
			assert.Contains(t, errs, tc.want)
			for _, arg := range tc.args[1:] {
				assert.LessOrEqual(t, strings.Count(errs, arg), 1, "an error names what it is about once: %s",
					errs)
			}
		})
	}
}

// Both columns are times of the same devices.
func TestPlanDividesComputing(t *testing.T) {
	one := planned(t, "Llama-3.1-8B", "--parameters", "8e9").Offload.Rows[0]
	eight := planned(t, "Llama-3.1-8B", "--parameters", "8e9", "--tp", "8").Offload.Rows[0]
	assert.InEpsilon(t, one.Compute, 8*eight.Compute, 1e-6)
	assert.InEpsilon(t, one.Bytes, 8*eight.Bytes, 1e-6)
}

// A folder comes before a preset of its name, and presets are found in any case.
func TestPlanNames(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.Equal(t, 32, planned(t, "llama-3.1-8b").Layers)
	require.NoError(t, os.Mkdir("Llama-3.1-8B", 0o700))
	config := strings.Replace(llamaConfig, `"num_hidden_layers":32`, `"num_hidden_layers":10`, 1)
	require.NoError(t, os.WriteFile("Llama-3.1-8B/config.json", []byte(config), 0o600))
	assert.Equal(t, 10, planned(t, "Llama-3.1-8B").Layers)
}
