package windows

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

func small() Model {
	return Model{Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: Float16, MaxSeqLen: 4096}
}

func TestDefaultConfigIsValid(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate(small()))
	assert.Error(t, Config{}.Validate(small()), "the zero value is not")
}

// invalidConfigs are the problems of a configuration, one each.
var invalidConfigs = []struct {
	want  string
	spoil func(*Config, *Model)
}{
	{"tokens_per_block 24 is not a power of two greater than 1",
		func(c *Config, _ *Model) { c.TokensPerBlock = 24 }},
	{"tokens_per_block 1 is not a power of two greater than 1",
		func(c *Config, _ *Model) { c.TokensPerBlock = 1 }},
	{"tokens_per_block -8 is not a power of two greater than 1",
		func(c *Config, _ *Model) { c.TokensPerBlock = -8 }},
	{"tokens_per_block -9223372036854775808 is not a power of two greater than 1",
		func(c *Config, _ *Model) { c.TokensPerBlock = math.MinInt }},
	{"max_attention_window is an empty list", func(c *Config,
		_ *Model) {
		c.MaxAttentionWindow = []int{}
	}},
	{"max_attention_window 1 is not 2 or more; max_attention_window 0 is not 2 or more: for full " +
		"attention it is max_seq_len",
		func(c *Config, _ *Model) { c.MaxAttentionWindow = []int{1, 8, 0} }},
	{"sink_token_length -1 is negative", func(c *Config, _ *Model) { c.SinkTokenLength = -1 }},
	{`dtype "float64" is not one of auto, float32, float16, bfloat16, fp8, int8, nvfp4`,
		func(c *Config, _ *Model) { c.DType = "float64" }},
	{"free_gpu_memory_fraction 0 is not greater than 0 and less than 1",
		func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = 0 }},
	{"free_gpu_memory_fraction 1 is not greater than 0 and less than 1",
		func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = 1 }},
	{"free_gpu_memory_fraction NaN is not greater than 0 and less than 1",
		func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = math.NaN() }},
	{"free_gpu_memory_fraction +Inf is not greater than 0 and less than 1",
		func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = math.Inf(1) }},
	{"max_tokens -1 is not 1 or more", func(c *Config, _ *Model) { c.MaxTokens = -1 }},
	{"host_cache_size -1 is negative", func(c *Config, _ *Model) { c.HostCacheSize = -1 }},
	{"expected_seq_len -1 is not 1 or more", func(c *Config, _ *Model) { c.ExpectedSeqLen = -1 }},
	{"expected_seq_len 4097 is more than max_seq_len 4096",
		func(c *Config, _ *Model) { c.ExpectedSeqLen = 4097 }},
	{"cross_kv_cache_fraction is for encoder-decoder models only",
		func(c *Config, _ *Model) { c.CrossKVCacheFraction = 0.5 }},
	{"cross_kv_cache_fraction is for encoder-decoder models only",
		func(c *Config, _ *Model) { c.CrossKVCacheFraction = math.NaN() }},
	{"secondary_offload_min_priority 101 is not between 0 and 100",
		func(c *Config, _ *Model) { c.SecondaryOffloadMinPriority = 101 }},
	{"secondary_offload_min_priority -1 is not between 0 and 100",
		func(c *Config, _ *Model) { c.SecondaryOffloadMinPriority = -1 }},
	{"event_buffer_max_size -1 is negative", func(c *Config, _ *Model) { c.EventBufferMaxSize = -1 }},
	{
		`eviction_policy "lru" is not known; there are priority_lru, forecast (importing ` +
			`pool/evict/published adds those from papers)`,
		func(c *Config, _ *Model) { c.EvictionPolicy = "lru" },
	},
	{"prefill_doubles_at -1 is negative", func(c *Config, _ *Model) {
		c.EvictionPolicy, c.PrefillDoublesAt = Forecast, -1
	}},
	{"prefill_doubles_at goes with eviction_policy forecast only",
		func(c *Config, _ *Model) { c.PrefillDoublesAt = 30_000 }},
	{"use_uvm is deprecated", func(c *Config, _ *Model) { c.UseUVM = true }},
	{"transfer_mode is deprecated", func(c *Config, _ *Model) { c.TransferMode = "gds" }},

	{"state_checkpoint_interval -32 is negative", func(c *Config,
		_ *Model) {
		c.StateCheckpointInterval = -32
	}},
	{"state_checkpoint_interval 40 is not a multiple of tokens_per_block 32",
		func(c *Config, _ *Model) { c.StateCheckpointInterval = 40 }},
	{`mamba_ssm_cache_dtype "fp8" is not one of auto, float16, bfloat16, float32`,
		func(c *Config, _ *Model) { c.MambaSSMCacheDType = "fp8" }},

	{"layers 0 is not between 1 and 4096", func(_ *Config, m *Model) { m.Layers = 0 }},
	{"layers 9223372036854775807 is not between 1 and 4096",
		func(_ *Config, m *Model) { m.Layers = math.MaxInt }},
	{"max_seq_len 0 is not between 1 and 2147483647", func(_ *Config, m *Model) { m.MaxSeqLen = 0 }},
	{"kv_heads has 0 values for 2 layers", func(_ *Config, m *Model) { m.KVHeads = nil }},
	{"kv_heads has 3 values for 2 layers", func(_ *Config, m *Model) { m.KVHeads = []int{1, 2, 3} }},
	{"kv_heads 0 is not 1 or more", func(_ *Config, m *Model) { m.KVHeads = []int{0} }},
	{"kv_heads -2 of layer 1 is not 1 or more", func(_ *Config,
		m *Model) {
		m.KVHeads = []int{1, -2}
	}},
	{"head_dim 0 is not 1 or more", func(_ *Config, m *Model) { m.HeadDim = 0 }},
	{"shapes has 1 entries for 2 layers",
		func(_ *Config, m *Model) { m.Shapes = []Shape{{HeadDim: 4, DType: FP8}} }},
	{"head_dim 0 of layer 1 is not 1 or more", func(_ *Config,
		m *Model) {
		m.Shapes = []Shape{{HeadDim: 4, DType: FP8}, {DType: FP8}}
	}},
	{"value_dim -1 is negative", func(_ *Config, m *Model) { m.ValueDim = -1 }},
	{"value_dim 8 is given with kv_factor 1, which has no values",
		func(_ *Config, m *Model) { m.ValueDim, m.KVFactor = 8, 1 }},
	{"kv_factor 3 is not 1 or 2", func(_ *Config, m *Model) { m.KVFactor = 3 }},
	{"side_bytes -1 is negative", func(_ *Config, m *Model) { m.SideBytes = -1 }},
	{`layout "HDN" is not one of HND, NHD`, func(_ *Config, m *Model) { m.Layout = "HDN" }},
	{"attention_chunk 1 is neither 0 nor 2 or more", func(_ *Config,
		m *Model) {
		m.AttentionChunk = []int{1}
	}},
	{"attention_chunk -4 of layer 1 is neither 0 nor 2 or more",
		func(_ *Config, m *Model) { m.AttentionChunk = []int{0, -4} }},
	{"attention_chunk has 3 values for 2 layers", func(_ *Config,
		m *Model) {
		m.AttentionChunk = []int{0, 8, 8}
	}},
	{"max_attention_window 64 of layer 1: the layer has an attention_chunk of 8",
		func(c *Config, m *Model) {
			c.MaxAttentionWindow, m.AttentionChunk = []int{64}, []int{0, 8}
		}},
	{"head_dim of layer 0 is not a multiple of 16, as dtype nvfp4 needs; head_dim of layer 1 is not " +
		"a multiple of 16, as dtype nvfp4 needs", func(c *Config, m *Model) {
		c.DType, m.HeadDim = "nvfp4", 24
	}},
	{"shared_kv has 1 values for 2 layers", func(_ *Config, m *Model) { m.SharedKV = []int{0} }},
	{"shared_kv of layer 1: there is no layer 2", func(_ *Config,
		m *Model) {
		m.SharedKV = []int{0, 2}
	}},
	{"shared_kv of layer 0: layer 1 has no keys and values of its own; shared_kv of layer 1: layer " +
		"0 has no keys and values of its own", func(_ *Config, m *Model) { m.SharedKV = []int{1, 0} }},
	{"shared_kv of layer 1: its attention_chunk 8 differs from 0 of layer 0",
		func(_ *Config, m *Model) { m.SharedKV, m.AttentionChunk = []int{0, 0}, []int{0, 8} }},
	{"max_attention_window of layer 1 differs from that of layer 0, whose keys and values it shares",
		func(c *Config, m *Model) {
			c.MaxAttentionWindow, m.SharedKV = []int{64, 4096}, []int{0, 0}
		}},

	{"layer 1 has neither keys and values (kv_heads) nor a state",
		func(_ *Config, m *Model) { m.KVHeads = []int{8, 0} }},
	{"layer 0 has neither keys and values (kv_heads) nor a state; layer 1 has neither keys and " +
		"values (kv_heads) nor a state; " +
		"kv_heads is 0 in every layer: at least one must have keys and values or a state",
		func(_ *Config, m *Model) { m.KVHeads = []int{0, 0} }},
	{"no_cache names layer 1, which has keys and values or a state",
		func(_ *Config, m *Model) { m.NoCache = []int{1} }},
	{"no_cache: there is no layer -1", func(_ *Config, m *Model) { m.NoCache = []int{-1} }},
	{"state.layers is an empty list", func(_ *Config, m *Model) { m.States = []State{{Bytes: 8}} }},
	{"state.bytes 0 is not 1 or more",
		func(_ *Config, m *Model) { m.States = []State{{Layers: []int{0}}} }},
	{"state.layers: there is no layer 2",
		func(_ *Config, m *Model) { m.States = []State{{Layers: []int{2}, Bytes: 8}} }},
	{"state.layers names layer 0 twice", func(_ *Config, m *Model) {
		m.States = []State{{Layers: []int{0}, Bytes: 8}, {Layers: []int{0}, Bytes: 8}}
	}},
	{"a page of pool state would have more than 9223372036854775806 bytes", func(_ *Config, m *Model) {
		m.States = []State{{Layers: []int{0, 1}, Bytes: math.MaxInt64}}
	}},
	{`dtype "" of the model is not one of float32, float16, bfloat16, fp8, int8, nvfp4`,
		func(_ *Config, m *Model) { m.DType = "" }},
	{`dtype "x" of layer 0 is not one of float32, float16, bfloat16, fp8, int8, nvfp4`,
		func(_ *Config, m *Model) {
			m.Shapes = []Shape{{HeadDim: 4, DType: "x"}, {HeadDim: 4, DType: FP8}}
		}},
	{"a page of pool wfullh8 would have more than 9223372036854775806 bytes",
		func(_ *Config, m *Model) { m.HeadDim = math.MaxInt / 16 }},
	{"a page of pool wfullh9223372036854775807 would have more than 9223372036854775806 bytes",
		func(_ *Config, m *Model) { m.KVHeads = []int{math.MaxInt} }},
	{"a sequence of 4096 tokens would take more than 9223372036854775806 bytes",
		func(_ *Config, m *Model) { m.HeadDim = 1 << 46 }},

	{`pool_fractions lacks pool wfullh8; pool_fractions names "full", which is no pool`,
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"full": 1} }},
	{"pool_fractions of wfullh8: 0 is not greater than 0 and at most 1",
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 0} }},
	{"pool_fractions of wfullh8: NaN is not greater than 0 and at most 1",
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": math.NaN()} }},
	{"pool_fractions of wfullh8: 1.5 is not greater than 0 and at most 1",
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 1.5} }},
	{"pool_fractions sum to 0.999, not 1",
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 0.999} }},
	{"pool_fractions lacks pool wfullh8; pool_fractions sum to 0, not 1",
		func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{} }},
}

// TestStatesAlone: a model whose layers have no keys and values has pools of states.
func TestStatesAlone(t *testing.T) {
	for _, heads := range [][]int{{0}, {0, 0}} {
		m := Model{Layers: 2, KVHeads: heads, MaxSeqLen: 4096,
			States: []State{{Layers: []int{1}, Bytes: 8}, {Layers: []int{0}, Bytes: 16}}}
		c := DefaultConfig()
		require.NoError(t, c.Validate(m))
		assert.True(t, m.OnlyStates())
		pools, err := Pools(m, c)
		require.NoError(t, err)
		require.Len(t, pools, 2)
		assert.Equal(t, KindState, pools[1].Kind)
		pages, err := Divide(pools, m, c, 240)
		require.NoError(t, err)
		assert.Equal(t, []int{10, 10}, pages,
			"a working page and a checkpoint in each pool for a sequence")
	}
}

// Each problem is named with its field, alone and joined with others.
func TestValidate(t *testing.T) {
	for _, tc := range invalidConfigs {
		t.Run(tc.want, func(t *testing.T) {
			c, m := DefaultConfig(), small()
			tc.spoil(&c, &m)
			err := c.Validate(m)
			require.EqualError(t, err, tc.want)
			assert.ErrorIs(t, err, messages.ErrConfigInvalid)
			_, err = Pools(m, c)
			assert.EqualError(t, err, tc.want)
			_, err = Split(nil, m, c, Budget{})
			assert.EqualError(t, err, tc.want)
			_, err = Divide(nil, m, c, 1)
			assert.EqualError(t, err, tc.want)
		})
	}
}

func TestValidateReportsEverything(t *testing.T) {
	c := Config{UseUVM: true, TokensPerBlock: 24, FreeGPUMemoryFraction: math.NaN(), MaxTokens: -1,
		PoolFractions: map[string]float64{"a": 2, "b": -1}}
	err := c.Validate(Model{})
	require.Error(t, err)
	for _, want := range []string{"use_uvm", "tokens_per_block 24", "free_gpu", "max_tokens", "layers",
		"max_seq_len", "kv_heads",
		"head_dim", "dtype", "eviction_policy", "pool_fractions of a", "pool_fractions of b"} {
		assert.Contains(t, err.Error(), want)
	}
	assert.True(t, strings.HasPrefix(err.Error(), "use_uvm is deprecated; "))
}

func TestAllowed(t *testing.T) {
	c := DefaultConfig()
	c.OnboardBlocks, c.EnableBlockReuse, c.EnablePartialReuse, c.CopyOnPartialReuse, c.OffloadAhead =
		false, false, false, false, false
	c.PoolFractions = map[string]float64{"wfullh8": 1 - 1e-7}
	c.MaxAttentionWindow = []int{5000, 4096, 2, 2} // longer than the layers
	c.SinkTokenLength, c.DType, c.ExpectedSeqLen, c.HostCacheSize = math.MaxInt, "int8", 1,
		math.MaxInt64
	assert.NoError(t, c.Validate(small()))
}

func TestJoin(t *testing.T) {
	assert.NoError(t, Join(nil, nil))
	err := Join(errors.New("a"), nil, refusals.New(messages.ErrBadRequest, "b"))
	require.EqualError(t, err, "a; b")
	assert.ErrorIs(t, err, messages.ErrConfigInvalid)
}

// In a configuration of some fields each of the others, one by one, has its default; one that
// starts from DefaultConfig keeps what is zero.
func TestWithDefaults(t *testing.T) {
	def := reflect.ValueOf(DefaultConfig())
	assert.Equal(t, DefaultConfig(), Config{}.WithDefaults())
	for i, field := range reflect.VisibleFields(def.Type()) {
		if !field.IsExported() {
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			var some, want Config
			want = DefaultConfig()
			for _, c := range []*Config{&some, &want} {
				setOther(t, reflect.ValueOf(c).Elem().Field(i))
			}
			assert.Equal(t, want, some.WithDefaults())
			cleared := DefaultConfig()
			reflect.ValueOf(&cleared).Elem().Field(i).SetZero()
			assert.Equal(t, cleared, cleared.WithDefaults())
		})
	}
}

// setOther sets a field to a value that is neither zero nor, but for flags, a default.
func setOther(t *testing.T, field reflect.Value) {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int, reflect.Int64:
		field.SetInt(64)
	case reflect.Float64:
		field.SetFloat(0.25)
	case reflect.String:
		field.SetString("other")
	case reflect.Slice:
		field.Set(reflect.ValueOf([]int{64}))
	case reflect.Map:
		field.Set(reflect.ValueOf(map[string]float64{"a": 0.5}))
	default:
		t.Fatalf("a field of kind %v", field.Kind())
	}
}
