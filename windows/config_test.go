package windows

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	{"tokens_per_block 24 is not a power of two greater than 1", func(c *Config, _ *Model) { c.TokensPerBlock = 24 }},
	{"tokens_per_block 1 is not a power of two greater than 1", func(c *Config, _ *Model) { c.TokensPerBlock = 1 }},
	{"tokens_per_block -8 is not a power of two greater than 1", func(c *Config, _ *Model) { c.TokensPerBlock = -8 }},
	{"tokens_per_block -9223372036854775808 is not a power of two greater than 1", func(c *Config, _ *Model) { c.TokensPerBlock = math.MinInt }},
	{"max_attention_window is an empty list", func(c *Config, _ *Model) { c.MaxAttentionWindow = []int{} }},
	{"max_attention_window 1 is not 2 or more; max_attention_window 0 is not 2 or more", func(c *Config, _ *Model) { c.MaxAttentionWindow = []int{1, 8, 0} }},
	{"sink_token_length -1 is negative", func(c *Config, _ *Model) { c.SinkTokenLength = -1 }},
	{`dtype "float64" is not one of auto, float32, float16, bfloat16, fp8, int8`, func(c *Config, _ *Model) { c.DType = "float64" }},
	{"free_gpu_memory_fraction 0 is not greater than 0 and less than 1", func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = 0 }},
	{"free_gpu_memory_fraction 1 is not greater than 0 and less than 1", func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = 1 }},
	{"free_gpu_memory_fraction NaN is not greater than 0 and less than 1", func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = math.NaN() }},
	{"free_gpu_memory_fraction +Inf is not greater than 0 and less than 1", func(c *Config, _ *Model) { c.FreeGPUMemoryFraction = math.Inf(1) }},
	{"max_tokens -1 is not 1 or more", func(c *Config, _ *Model) { c.MaxTokens = -1 }},
	{"host_cache_size -1 is negative", func(c *Config, _ *Model) { c.HostCacheSize = -1 }},
	{"expected_seq_len -1 is not 1 or more", func(c *Config, _ *Model) { c.ExpectedSeqLen = -1 }},
	{"expected_seq_len 4097 is more than max_seq_len 4096", func(c *Config, _ *Model) { c.ExpectedSeqLen = 4097 }},
	{"cross_kv_cache_fraction is for encoder-decoder models only", func(c *Config, _ *Model) { c.CrossKVCacheFraction = 0.5 }},
	{"cross_kv_cache_fraction is for encoder-decoder models only", func(c *Config, _ *Model) { c.CrossKVCacheFraction = math.NaN() }},
	{"secondary_offload_min_priority 101 is not between 0 and 100", func(c *Config, _ *Model) { c.SecondaryOffloadMinPriority = 101 }},
	{"secondary_offload_min_priority -1 is not between 0 and 100", func(c *Config, _ *Model) { c.SecondaryOffloadMinPriority = -1 }},
	{"event_buffer_max_size -1 is negative", func(c *Config, _ *Model) { c.EventBufferMaxSize = -1 }},
	{`eviction_policy "lru" is not known; there is priority_lru`, func(c *Config, _ *Model) { c.EvictionPolicy = "lru" }},
	{"use_uvm is deprecated", func(c *Config, _ *Model) { c.UseUVM = true }},
	{"transfer_mode is deprecated", func(c *Config, _ *Model) { c.TransferMode = "gds" }},

	{"state_checkpoint_interval -32 is negative", func(c *Config, _ *Model) { c.StateCheckpointInterval = -32 }},
	{"state_checkpoint_interval 40 is not a multiple of tokens_per_block 32", func(c *Config, _ *Model) { c.StateCheckpointInterval = 40 }},
	{`mamba_ssm_cache_dtype "fp8" is not one of auto, float16, bfloat16, float32`, func(c *Config, _ *Model) { c.MambaSSMCacheDType = "fp8" }},

	{"layers 0 is not between 1 and 4096", func(_ *Config, m *Model) { m.Layers = 0 }},
	{"layers 9223372036854775807 is not between 1 and 4096", func(_ *Config, m *Model) { m.Layers = math.MaxInt }},
	{"max_seq_len 0 is not between 1 and 2147483647", func(_ *Config, m *Model) { m.MaxSeqLen = 0 }},
	{"kv_heads has 0 values for 2 layers", func(_ *Config, m *Model) { m.KVHeads = nil }},
	{"kv_heads has 3 values for 2 layers", func(_ *Config, m *Model) { m.KVHeads = []int{1, 2, 3} }},
	{"kv_heads 0 is not 1 or more", func(_ *Config, m *Model) { m.KVHeads = []int{0} }},
	{"kv_heads -2 of layer 1 is not 1 or more", func(_ *Config, m *Model) { m.KVHeads = []int{1, -2} }},
	{"head_dim 0 is not 1 or more", func(_ *Config, m *Model) { m.HeadDim = 0 }},
	{"head_dim has 1 values for 2 layers", func(_ *Config, m *Model) { m.HeadDims = []int{4} }},
	{"head_dim 0 of layer 1 is not 1 or more", func(_ *Config, m *Model) { m.HeadDims = []int{4, 0} }},
	{`dtype "" of the model is not one of float32, float16, bfloat16, fp8, int8`, func(_ *Config, m *Model) { m.DType = "" }},
	{"dtype has 1 values for 2 layers", func(_ *Config, m *Model) { m.DTypes = []DType{FP8} }},
	{`dtype "x" of layer 0 is not one of float32, float16, bfloat16, fp8, int8`, func(_ *Config, m *Model) { m.DTypes = []DType{"x", FP8} }},
	{"a page of pool wfullh8 would have more than 9223372036854775807 bytes", func(_ *Config, m *Model) { m.HeadDim = math.MaxInt / 16 }},
	{"a page of pool wfullh9223372036854775807 would have more than 9223372036854775807 bytes", func(_ *Config, m *Model) { m.KVHeads = []int{math.MaxInt} }},
	{"a sequence of 4096 tokens would take more than 9223372036854775807 bytes", func(_ *Config, m *Model) { m.HeadDim = 1 << 46 }},

	{`pool_fractions lacks pool wfullh8; pool_fractions names "full", which is no pool`, func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"full": 1} }},
	{"pool_fractions of wfullh8: 0 is not greater than 0 and at most 1", func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 0} }},
	{"pool_fractions of wfullh8: NaN is not greater than 0 and at most 1", func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": math.NaN()} }},
	{"pool_fractions of wfullh8: 1.5 is not greater than 0 and at most 1", func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 1.5} }},
	{"pool_fractions sum to 0.999, not 1", func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{"wfullh8": 0.999} }},
	{"pool_fractions lacks pool wfullh8; pool_fractions sum to 0, not 1", func(c *Config, _ *Model) { c.PoolFractions = map[string]float64{} }},
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
	for _, want := range []string{"use_uvm", "tokens_per_block 24", "free_gpu", "max_tokens", "layers", "max_seq_len", "kv_heads",
		"head_dim", "dtype", "eviction_policy", "pool_fractions of a", "pool_fractions of b"} {
		assert.Contains(t, err.Error(), want)
	}
	assert.True(t, strings.HasPrefix(err.Error(), "use_uvm is deprecated; "))
}

func TestAllowed(t *testing.T) {
	c := DefaultConfig()
	c.OnboardBlocks, c.EnableBlockReuse, c.EnablePartialReuse, c.CopyOnPartialReuse, c.OffloadAhead = false, false, false, false, false
	c.PoolFractions = map[string]float64{"wfullh8": 1 - 1e-7}
	c.MaxAttentionWindow = []int{5000, 4096, 2, 2} // longer than the layers
	c.SinkTokenLength, c.DType, c.ExpectedSeqLen, c.HostCacheSize = math.MaxInt, "int8", 1, math.MaxInt64
	assert.NoError(t, c.Validate(small()))
}

func TestJoin(t *testing.T) {
	assert.NoError(t, Join(nil, nil))
	err := Join(errors.New("a"), nil, messages.Refuse(messages.BadRequest, "b"))
	require.EqualError(t, err, "a; b")
	assert.ErrorIs(t, err, messages.ErrConfigInvalid)
}
