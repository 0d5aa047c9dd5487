package kvconfig

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// readers run a test over both forms; every JSON text is YAML as well.
var readers = map[string]func(io.Reader) (windows.Config, error){"json": ReadJSON, "yaml": ReadYAML}

const everything = `{
 "tokens_per_block": 64, "max_attention_window": [4096, 256], "sink_token_length": 4,
 "dtype": "fp8",
 "free_gpu_memory_fraction": 0.5, "max_tokens": 1000, "host_cache_size": 8589934592,
 "secondary_offload_min_priority": 50, "onboard_blocks": false, "enable_block_reuse": false,
 "enable_partial_reuse": false, "copy_on_partial_reuse": false, "event_buffer_max_size": 7,
 "cross_kv_cache_fraction": 0.25, "use_uvm": true, "transfer_mode": "gds",
 "eviction_policy": "fifo", "expected_seq_len": 2048, "prefill_doubles_at": 30000,
 "pool_fractions": {"a": 0.25, "b": 1}, "offload_ahead": false,
 "salt_quotas": {"tenant-1": 0.5, "tenant-2": 1}, "other_salts_quota": 0.125,
 "state_checkpoint_interval": 128, "mamba_ssm_cache_dtype": "float32"}`

func TestEveryField(t *testing.T) {
	want := windows.Config{
		TokensPerBlock: 64, MaxAttentionWindow: []int{4096, 256}, SinkTokenLength: 4, DType: "fp8",
		FreeGPUMemoryFraction: 0.5, MaxTokens: 1000, HostCacheSize: 8589934592,
		SecondaryOffloadMinPriority: 50, EventBufferMaxSize: 7, CrossKVCacheFraction: 0.25, UseUVM: true,
		TransferMode: "gds", EvictionPolicy: "fifo", ExpectedSeqLen: 2048, PrefillDoublesAt: 30_000,
		PoolFractions: map[string]float64{"a": 0.25, "b": 1},
		SaltQuotas:    map[string]float64{"tenant-1": 0.5, "tenant-2": 1}, OtherSaltsQuota: 0.125,
		StateCheckpointInterval: 128, MambaSSMCacheDType: "float32",
	}
	for name, read := range readers {
		got, err := read(strings.NewReader(everything))
		require.NoError(t, err, name)
		assert.EqualExportedValues(t, want, got, name)
		got, err = read(strings.NewReader(`{"kv_cache_config":` + everything + `}`))
		require.NoError(t, err, name)
		assert.EqualExportedValues(t, want, got, name)
	}
	var written map[string]any
	require.NoError(t, json.Unmarshal([]byte(everything), &written))
	for _, name := range Names() {
		assert.Contains(t, written, name, "the test sets every field")
	}
}

func TestDefaults(t *testing.T) {
	nulls := make(map[string]any)
	for _, name := range Names() {
		nulls[name] = nil
	}
	text, err := json.Marshal(nulls)
	require.NoError(t, err)
	for name, read := range readers {
		for _, in := range []string{"{}", string(text), `{"kv_cache_config":null}`,
			`{"kv_cache_config":{}}`} {
			got, err := read(strings.NewReader(in))
			require.NoError(t, err, name)
			assert.Equal(t, windows.DefaultConfig(), got, name)
		}
	}
	for _, in := range []string{"", "# nothing\n", "kv_cache_config:\n"} {
		got, err := ReadYAML(strings.NewReader(in))
		require.NoError(t, err)
		assert.Equal(t, windows.DefaultConfig(), got)
	}
}

func TestYAMLAsTensorRTLLMHasIt(t *testing.T) {
	got, err := ReadYAML(strings.NewReader(`
kv_cache_config:
  enable_block_reuse: true
  free_gpu_memory_fraction: 0.8   # of what is free
  max_attention_window: [512, 512, 32768]
  host_cache_size: 8_589_934_592
  dtype: auto
`))
	require.NoError(t, err)
	want := windows.DefaultConfig()
	want.FreeGPUMemoryFraction, want.MaxAttentionWindow, want.HostCacheSize = 0.8,
		[]int{512, 512, 32768}, 8589934592
	assert.Equal(t, want, got)
}

// badTexts read alike in both forms.
var badTexts = []struct {
	in   string
	code messages.Code
	want string
}{
	{`{"blocks":1}`, messages.ErrConfigInvalid, "unknown name blocks"},
	{`{"b":1,"a":2,"tokens_per_block":4}`, messages.ErrConfigInvalid,
		"unknown name b; unknown name a"},
	{`{"kv_cache_config":{"x":1}}`, messages.ErrConfigInvalid, "unknown name x"},
	{`{"kv_cache_config":{"kv_cache_config":{}}}`, messages.ErrConfigInvalid,
		"unknown name kv_cache_config"},
	{`{"kv_cache_config":{},"max_tokens":4}`, messages.ErrConfigInvalid,
		"max_tokens is outside kv_cache_config"},
	{`{"pool_ratio":[1],"kv_cache_config":{}}`, messages.ErrConfigInvalid,
		"pool_ratio is outside kv_cache_config"},
	{`{"dtype":"fp8","kv_cache_config":{"x":1}}`, messages.ErrConfigInvalid, "unknown name x"},
	{`{"kv_cache_config":[]}`, messages.ErrBadRequest, "kv_cache_config is a list, not an object"},
	{`{"tokens_per_block":"4"}`, messages.ErrBadRequest,
		"tokens_per_block is a string, not an integer"},
	{`{"tokens_per_block":4.0}`, messages.ErrBadRequest,
		"tokens_per_block is a number with a fraction, not an integer"},
	{`{"tokens_per_block":true}`, messages.ErrBadRequest,
		"tokens_per_block is a boolean, not an integer"},
	{`{"use_uvm":1}`, messages.ErrBadRequest, "use_uvm is an integer, not a boolean"},
	{`{"dtype":16}`, messages.ErrBadRequest, "dtype is an integer, not a string"},
	{`{"transfer_mode":1}`, messages.ErrConfigInvalid, "transfer_mode is deprecated"},
	{`{"transfer_mode":""}`, messages.ErrConfigInvalid, "transfer_mode is deprecated"},
	{`{"free_gpu_memory_fraction":"x"}`, messages.ErrBadRequest,
		"free_gpu_memory_fraction is a string, not a number"},
	{`{"cross_kv_cache_fraction":0}`, messages.ErrConfigInvalid,
		"cross_kv_cache_fraction is for encoder-decoder models only"},
	{`{"cross_kv_cache_fraction":[]}`, messages.ErrBadRequest,
		"cross_kv_cache_fraction is a list, not a number"},
	{`{"max_tokens":0}`, messages.ErrConfigInvalid, "max_tokens 0 is not 1 or more"},
	{`{"expected_seq_len":0}`, messages.ErrConfigInvalid, "expected_seq_len 0 is not 1 or more"},
	{`{"host_cache_size":9223372036854775808}`, messages.ErrConfigInvalid,
		"host_cache_size 9223372036854775808 is too large"},
	{`{"free_gpu_memory_fraction":9223372036854775808}`, messages.ErrConfigInvalid,
		"free_gpu_memory_fraction 9223372036854775808 is too large"},
	{`{"max_attention_window":4096}`, messages.ErrBadRequest,
		"max_attention_window is an integer, not a list of integers"},
	{`{"max_attention_window":[1,"a",2.5,null]}`, messages.ErrBadRequest,
		"max_attention_window has a string in it, not an integer; " +
			"max_attention_window has a number with a fraction in it, not an integer; " +
			"max_attention_window has null in it, not an integer"},
	{`{"max_attention_window":[9223372036854775808]}`, messages.ErrConfigInvalid,
		"max_attention_window 9223372036854775808 is too large"},
	{`{"pool_fractions":0.5}`, messages.ErrBadRequest,
		"pool_fractions is a number with a fraction, not an object"},
	{`{"pool_fractions":{"a":null,"b":{}}}`, messages.ErrBadRequest,
		"pool_fractions of b is an object, not a number"},
	{`{"salt_quotas":[0.5]}`, messages.ErrBadRequest, "salt_quotas is a list, not an object"},
	{`{"salt_quotas":{"a":"half"}}`, messages.ErrBadRequest,
		"salt_quotas of a is a string, not a number"},
	{`{"other_salts_quota":0}`, messages.ErrConfigInvalid,
		"other_salts_quota 0 is not greater than 0 and at most 1"},
	{`{"nope":1,"use_uvm":"yes","max_tokens":0}`, messages.ErrBadRequest,
		"unknown name nope; use_uvm is a string, not a boolean; max_tokens 0 is not 1 or more"},
	{`[1]`, messages.ErrBadRequest, "the cache configuration is a list, not an object"},
	{`3`, messages.ErrBadRequest, "the cache configuration is an integer, not an object"},
}

func TestRefused(t *testing.T) {
	for _, tc := range badTexts {
		for name, read := range readers {
			t.Run(name+" "+tc.in, func(t *testing.T) {
				_, err := read(strings.NewReader(tc.in))
				require.EqualError(t, err, tc.want)
				assert.ErrorIs(t, err, tc.code)
			})
		}
	}
}

// TestAWholeOptionsFile reads what a user of TensorRT-LLM has: a file with the
// options of all its parts, as written by hand or dumped with every default.
func TestAWholeOptionsFile(t *testing.T) {
	got, err := ReadYAML(strings.NewReader(`
backend: pytorch
dtype: bfloat16
cuda_graph_config:
  enable_padding: true
  max_batch_size: 256
enable_chunked_prefill: true
max_batch_size: 256
max_seq_len: null
kv_cache_config:
  enable_block_reuse: false
  max_tokens: null
  max_attention_window: null
  sink_token_length: null
  free_gpu_memory_fraction: 0.75
  host_cache_size: null
  cross_kv_cache_fraction: null
  secondary_offload_min_priority: null
  event_buffer_max_size: 0
  attention_dp_events_gather_period_ms: 5
  enable_partial_reuse: true
  copy_on_partial_reuse: true
  use_uvm: false
  max_gpu_total_bytes: 0
  iteration_stats_interval: 1
  dtype: fp8
  tokens_per_block: 64
  mamba_ssm_cache_dtype: float16
  mamba_ssm_stochastic_rounding: true
  mamba_ssm_philox_rounds: 5
  mamba_state_config:
    periodic_snapshot_interval: 8192
    enable_branch_snapshot: true
    additional_snapshot_offsets_from_end: [0]
  use_kv_cache_manager_v2: auto
  max_util_for_resume: 0.95
  avg_seq_len: 2048
  disk_cache_size: 0
  disk_cache_path: ""
  kv_events_config: null
  pool_ratio: null
  block_reuse_config: null
  enable_kv_pool_rebalance: false
moe_config:
  backend: TRTLLM
speculative_config: {decoding_type: MTP, max_draft_len: 3}
`))
	require.NoError(t, err)
	want := windows.DefaultConfig()
	want.EnableBlockReuse, want.FreeGPUMemoryFraction, want.DType, want.TokensPerBlock = false, 0.75,
		"fp8", 64
	want.MambaSSMCacheDType, want.StateCheckpointInterval, want.ExpectedSeqLen = "float16", 8192, 2048
	assert.Equal(t, want, got)
}

// TestOptionsOfOthers: each name of KvCacheConfig that the engine has no field
// for is accepted or refused with the reason.
func TestOptionsOfOthers(t *testing.T) {
	cases := []struct{ in, want string }{
		{`{"avg_seq_len":0}`, "avg_seq_len 0 is not 1 or more"},
		{`{"avg_seq_len":"x"}`, "avg_seq_len is a string, not an integer"},
		{`{"avg_seq_len":8,"expected_seq_len":8}`, ""},
		{`{"avg_seq_len":8,"expected_seq_len":9}`,
			"avg_seq_len 8 and expected_seq_len 9 are one option with two values"},
		{`{"mamba_state_cache_interval":256,"mamba_state_config":{"periodic_snapshot_interval":0}}`,
			"mamba_state_cache_interval 256 and mamba_state_config.periodic_snapshot_interval 0 are one " +
				"option with two values"},
		{`{"mamba_state_config":{"x":1}}`, "unknown name mamba_state_config.x"},
		{`{"mamba_state_config":[]}`, "mamba_state_config is a list, not an object"},
		{`{"mamba_state_config":{"enable_branch_snapshot":false}}`,
			"mamba_state_config.enable_branch_snapshot false is not supported: branches always get a " +
				"checkpoint"},
		{`{"mamba_state_config":{"additional_snapshot_offsets_from_start":[128]}}`,
			"mamba_state_config.additional_snapshot_offsets_from_start is not supported: " +
				"checkpoints are made at branches, at the prompt's end and at multiples of " +
				"state_checkpoint_interval"},
		{`{"disk_cache_size":5}`, "disk_cache_size 5 is not supported: " + onDisk},
		{`{"disk_cache_path":"/x"}`, `disk_cache_path "/x" is not supported: ` + onDisk},
		{`{"kv_events_config":{"publisher":"zmq"}}`, "kv_events_config is not supported: " +
			"a publisher is attached to the engine: --events, events/publish"},
		{`{"max_gpu_total_bytes":5}`,
			"max_gpu_total_bytes 5 is not supported: limit the cache by free_gpu_memory_fraction or " +
				"max_tokens"},
		{`{"pool_ratio":[0.5,0.5]}`,
			"pool_ratio is not supported: set pool_fractions, which names the pools"},
		{`{"enable_kv_pool_rebalance":true}`, "enable_kv_pool_rebalance true is not supported: " +
			"pass WithAutoRebalance to the engine"},
		{`{"block_reuse_config":{"policy":"per_conversation"}}`,
			"block_reuse_config is not supported: reuse follows enable_block_reuse, without a policy per " +
				"conversation"},
		{`{"iteration_stats_interval":"often"}`, "iteration_stats_interval is a string, not an integer"},
		{`{"max_util_for_resume":[1]}`, "max_util_for_resume is a list, not a number"},
		{`{"use_kv_cache_manager_v2":"auto","kv_cache_event_hash_algo":"auto","enable_swa_scratch_reuse":true,
			"fp8_context_mla_kv_len_cap":1}`, ""},
	}
	for _, tc := range cases {
		for name, read := range readers {
			_, err := read(strings.NewReader(tc.in))
			if tc.want == "" {
				assert.NoError(t, err, "%s %s", name, tc.in)
			} else {
				assert.EqualError(t, err, tc.want, "%s %s", name, tc.in)
			}
		}
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name := range options {
		assert.Contains(t, string(doc), "//	"+name, "the package comment names every option")
		for form, read := range readers {
			_, err := read(strings.NewReader(`{"` + name + `":null}`))
			assert.NoError(t, err, "%s %s", form, name)
		}
	}
}

func TestRefusedTexts(t *testing.T) {
	for _, in := range []string{"", "{", "{} {}", `{"a":1,}`, `nul`, "{\"a\":\xff}"} {
		_, err := ReadJSON(strings.NewReader(in))
		assert.ErrorIs(t, err, messages.ErrBadRequest, "%q", in)
		assert.ErrorContains(t, err, "the cache configuration is not JSON: ", "%q", in)
	}
	for _, in := range []string{"a: [", "a: &x 1\nb: *x", "a: 1\n---\nb: 2", "a: 1\na: 2"} {
		_, err := ReadYAML(strings.NewReader(in))
		assert.ErrorIs(t, err, messages.ErrBadRequest, "%q", in)
		assert.ErrorContains(t, err, "the cache configuration is not YAML: ", "%q", in)
		assert.NotContains(t, err.Error(), "\n")
	}
	for _, word := range []string{"yes", "on", "1"} {
		_, err := ReadYAML(strings.NewReader("use_uvm: " + word))
		assert.ErrorContains(t, err, "not a boolean", word)
	}
	_, err := ReadJSON(strings.NewReader("null"))
	assert.EqualError(t, err, "the cache configuration is null, not an object")
	_, err = ReadJSON(strings.NewReader(`{"max_tokens":1,"max_tokens":2}`))
	assert.EqualError(t, err, "max_tokens is given twice")
	_, err = ReadJSON(strings.NewReader(`{"pool_fractions":{"a":1,"a":1}}`))
	assert.EqualError(t, err, "pool_fractions has a twice")
	_, err = ReadJSON(strings.NewReader(`{"free_gpu_memory_fraction":1e999}`))
	assert.EqualError(t, err, "free_gpu_memory_fraction 1e999 is too large")
	for name, read := range readers {
		_, err := read(strings.NewReader(strings.Repeat(" ", MaxBytes+1)))
		assert.ErrorContains(t, err, "longer than 65536 bytes", name)
		_, err = read(iotest.ErrReader(errors.New("broken pipe")))
		assert.ErrorContains(t, err, "broken pipe", name)
	}
}

// TestNaNReachesValidate: YAML can write what JSON cannot.
func TestNaNReachesValidate(t *testing.T) {
	c, err := ReadYAML(strings.NewReader("free_gpu_memory_fraction: .nan\n"))
	require.NoError(t, err)
	model := windows.Presets()["Llama-3.2-1B"].Model
	assert.ErrorContains(t, c.Validate(model), "free_gpu_memory_fraction NaN")
}

// TestProblemsOfBothKinds: what could be read comes back with the error, and
// Join reports types, names and values together.
func TestProblemsOfBothKinds(t *testing.T) {
	c, err := ReadJSON(strings.NewReader(`{"tokens_per_block":24,"nope":1}`))
	model := windows.Presets()["Llama-3.2-1B"].Model
	assert.EqualError(t, windows.Join(err, c.Validate(model)),
		"unknown name nope; tokens_per_block 24 is not a power of two greater than 1")
}

// TestMerge: what a text leaves out stays as it was.
func TestMerge(t *testing.T) {
	c := windows.DefaultConfig()
	c.TokensPerBlock, c.OffloadAhead = 16, false
	const file, section = "kv_cache_config:\n  max_tokens: 5\nbackend: pytorch\n",
		`{"dtype":"fp8","salt_quotas":{"a":0.5,"b":null}}`
	require.NoError(t, MergeYAML(&c, strings.NewReader(file)))
	require.NoError(t, MergeSection(&c, "cache.", []byte(section)))
	want := windows.DefaultConfig()
	want.TokensPerBlock, want.OffloadAhead, want.MaxTokens, want.DType = 16, false, 5, "fp8"
	want.SaltQuotas = map[string]float64{"a": 0.5}
	assert.Equal(t, want, c)

	// The section is read alone, and names have the path.
	const wrong = `{"kv_cache_config":{},"nope":1,"max_tokens":0,"avg_seq_len":1,"expected_seq_len":2}`
	err := MergeSection(&c, "cache.", []byte(wrong))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
	assert.EqualError(t, err, "unknown name cache.kv_cache_config; unknown name cache.nope; "+
		"cache.max_tokens 0 is not 1 or more; "+
		"cache.avg_seq_len 1 and cache.expected_seq_len 2 are one option with two values")
	err = MergeSection(&c, "cache.", []byte(`{"dtype":1}`))
	require.ErrorIs(t, err, messages.ErrBadRequest)
	assert.EqualError(t, err, "cache.dtype is an integer, not a string")

	// It is a part of a request, not a file that was named by mistake: it may be long.
	quota := `{"salt_quotas":{"` + strings.Repeat("s", MaxBytes) + `":0.5}}`
	require.NoError(t, MergeSection(&c, "cache.", []byte(quota)))
}

// TestSet: a value of a flag is read as one in a file.
func TestSet(t *testing.T) {
	c := windows.DefaultConfig()
	for name, value := range map[string]string{
		"tokens_per_block": "64", "max_attention_window": "[512, 4096]",
		"enable_block_reuse": "false", "eviction_policy": "forecast",
		"salt_quotas": `{"a: b": 0.5}`, "avg_seq_len": "100", "dtype": "",
	} {
		require.NoError(t, Set(&c, name, value), name)
	}
	want := windows.DefaultConfig()
	want.TokensPerBlock, want.EnableBlockReuse, want.ExpectedSeqLen = 64, false, 100
	want.MaxAttentionWindow, want.EvictionPolicy = []int{512, 4096}, "forecast"
	want.SaltQuotas = map[string]float64{"a: b": 0.5}
	assert.Equal(t, want, c)
	for _, tc := range []struct{ name, value, want string }{
		{"tokens", "64", "unknown name tokens"},
		{"max_tokens", "many", "max_tokens is a string, not an integer"},
		{"max_tokens", "0", "max_tokens 0 is not 1 or more"},
		{"dtype", "fp8: {", "dtype is not YAML: "},
		{"disk_cache_size", "5", "disk_cache_size 5 is not supported"},
		{"use_uvm", "false\n---\ntrue", "use_uvm is not YAML: 2 documents instead of one"},
	} {
		assert.ErrorContains(t, Set(&c, tc.name, tc.value), tc.want)
	}
	assert.Equal(t, want, c, "a value that is refused changes nothing")
}

// TestFormsAgree: what is valid as JSON means the same as YAML.
func TestFormsAgree(t *testing.T) { rapid.Check(t, checkFormsAgree) }

func FuzzFormsAgree(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkFormsAgree)) }

func checkFormsAgree(t *rapid.T) {
	value := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), toAny), rapid.Map(rapid.Int64(), toAny),
		rapid.Map(rapid.StringMatching(`[a-z ]{0,6}`), toAny),
		rapid.Map(rapid.SliceOfN(rapid.Int64(), 0, 3), toAny),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`w[0-9]{1,3}h1`), rapid.Int64(), 0, 2), toAny),
	)
	names := append(Names(), "unheard_of")
	names = append(names, slices.Sorted(maps.Keys(options))...)
	object := rapid.MapOfN(rapid.SampledFrom(names), value, 0, 6).Draw(t, "object")
	text, err := json.Marshal(object)
	require.NoError(t, err)
	fromJSON, errJSON := ReadJSON(strings.NewReader(string(text)))
	fromYAML, errYAML := ReadYAML(strings.NewReader(string(text)))
	assert.Equal(t, errJSON, errYAML)
	assert.Equal(t, fromJSON, fromYAML)
}

func toAny[T any](v T) any { return v }

// FuzzRead: no text makes a reader panic or answer something other than a refusal.
func FuzzRead(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("kv_cache_config:\n  max_tokens: 5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range readers {
			_, err := read(strings.NewReader(string(text)))
			var refusal *messages.Refusal
			if err != nil && !errors.As(err, &refusal) {
				t.Fatalf("%v is no refusal", err)
			}
		}
	})
}
