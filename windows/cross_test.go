package windows

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// translator is small with an encoder: the cross pool's pages have
// 2 layers × K,V × 4 heads × 32 tokens × 16 × 2 B = 16 KiB, the others twice that.
func translator() (Config, Model) {
	m := small()
	m.CrossLayers, m.CrossKVHeads, m.EncoderMaxLen = 2, 4, 1500
	c := DefaultConfig()
	c.CrossKVCacheFraction = 0.25
	return c, m
}

func TestCrossPool(t *testing.T) {
	c, m := translator()
	require.NoError(t, c.Validate(m))
	p, ok := CrossPool(m, c)
	require.True(t, ok)
	assert.Equal(t, Pool{
		ID: 1, Name: "cross_h4", Kind: KindCross, KVHeads: 4, HeadDim: 16, ValueDim: 16, KVFactor: 2,
		DType: Float16, Layout: HND, Layers: []int{0, 1}, TokensPerBlock: 32,
	}, p)
	assert.EqualValues(t, 16<<10, p.PageBytes())

	m.CrossLayers, c.DType = 1, string(FP8)
	p, _ = CrossPool(m, c)
	assert.Equal(t, []int{0}, p.Layers)
	assert.Equal(t, FP8, p.DType)

	m.Shapes, c.DType = []Shape{{HeadDim: 8, DType: Int8}, {HeadDim: 16, DType: Float32}}, AutoDType
	p, _ = CrossPool(m, c)
	assert.Equal(t, 8, p.HeadDim, "of layer 0")
	assert.Equal(t, Int8, p.DType)
	assert.EqualValues(t, 2, p.ID, "behind both pools of the decoder")

	_, ok = CrossPool(small(), DefaultConfig())
	assert.False(t, ok)
}

func TestValidateEncoders(t *testing.T) {
	cases := []struct {
		want  string
		spoil func(*Config, *Model)
	}{
		{"cross_kv_cache_fraction is missing: an encoder-decoder model needs it",
			func(c *Config, _ *Model) { c.CrossKVCacheFraction = 0 }},
		{"cross_kv_cache_fraction 1 is not greater than 0 and less than 1",
			func(c *Config, _ *Model) { c.CrossKVCacheFraction = 1 }},
		{"cross_kv_cache_fraction -0.5 is not greater than 0 and less than 1",
			func(c *Config, _ *Model) { c.CrossKVCacheFraction = -0.5 }},
		{"cross_kv_cache_fraction NaN is not greater than 0 and less than 1",
			func(c *Config, _ *Model) { c.CrossKVCacheFraction = math.NaN() }},
		{"cross_layers 3 is not between 1 and the 2 layers of the decoder",
			func(_ *Config, m *Model) { m.CrossLayers = 3 }},
		{"cross_layers -1 is not between 1 and the 2 layers of the decoder; cross_kv_cache_fraction is " +
			"for encoder-decoder models only", func(_ *Config, m *Model) { m.CrossLayers = -1 }},
		{"cross_kv_heads 0 is not 1 or more", func(_ *Config, m *Model) { m.CrossKVHeads = 0 }},
		{"encoder_max_len 0 is not between 1 and 2147483647", func(_ *Config,
			m *Model) {
			m.EncoderMaxLen = 0
		}},
		{"encoder_max_len 9223372036854775807 is not between 1 and 2147483647",
			func(_ *Config, m *Model) { m.EncoderMaxLen = math.MaxInt }},
		{"a page of pool cross_h9223372036854775807 would have more than 9223372036854775806 bytes",
			func(_ *Config, m *Model) { m.CrossKVHeads = math.MaxInt }},
		{"cross_kv_heads is for encoder-decoder models only; encoder_max_len is for encoder-decoder " +
			"models only", func(c *Config, m *Model) { m.CrossLayers, c.CrossKVCacheFraction = 0, 0 }},
	}
	for _, tc := range cases {
		t.Run(tc.want, func(t *testing.T) {
			c, m := translator()
			tc.spoil(&c, &m)
			err := c.Validate(m)
			require.EqualError(t, err, tc.want)
			assert.ErrorIs(t, err, messages.ErrConfigInvalid)
			_, err = SplitCross(m, c, Budget{DeviceBytes: 1 << 30})
			assert.EqualError(t, err, tc.want)
		})
	}
}

// The fraction is of what the cache may use; what the cross pool leaves over is
// the others'.
func TestSplitCross(t *testing.T) {
	c, m := translator()
	c.FreeGPUMemoryFraction, c.HostCacheSize = 0.5, 40*(16<<10)
	pools, err := Pools(m, c)
	require.NoError(t, err)
	split := func(deviceBytes int64) (self, cross PageCounts) {
		counts, err := Split(pools, m, c, Budget{DeviceBytes: deviceBytes})
		require.NoError(t, err)
		own, err := SplitCross(m, c, Budget{DeviceBytes: deviceBytes})
		require.NoError(t, err)
		return counts[0], own
	}
	self, cross := split(800 * (16 << 10))
	assert.Equal(t, PageCounts{Primary: 100, Secondary: 10}, cross)
	assert.Equal(t, PageCounts{Primary: 150, Secondary: 15}, self,
		"300 and 30 units of 16 KiB, pages of two")

	c.CrossKVCacheFraction = 0.1
	self, cross = split(800*(16<<10) + 70)
	assert.Equal(t, PageCounts{Primary: 40, Secondary: 4}, cross)
	assert.Equal(t, PageCounts{Primary: 180, Secondary: 18}, self)

	c.MaxTokens = 33
	self, cross = split(800 * (16 << 10))
	assert.Equal(t, PageCounts{Primary: 2, Secondary: 4}, cross, "max_tokens caps it like every pool")
	assert.Equal(t, PageCounts{Primary: 2, Secondary: 18}, self)
}

func TestSplitCrossRefuses(t *testing.T) {
	c, m := translator()
	_, err := SplitCross(m, c, Budget{DeviceBytes: 4 * (16 << 10)})
	require.EqualError(t, err, "pool cross_h4 gets no page: one takes 16384 bytes")
	_, err = SplitCross(m, c, Budget{DeviceBytes: -1})
	require.ErrorContains(t, err, "negative")
	m.HeadDim, c.TokensPerBlock = 1, 2
	_, err = SplitCross(m, c, Budget{DeviceBytes: math.MaxInt64})
	require.ErrorContains(t, err, "more than 268435456 pages")

	none, err := SplitCross(small(), DefaultConfig(), Budget{DeviceBytes: 1 << 30})
	require.NoError(t, err)
	assert.Zero(t, none)
}
