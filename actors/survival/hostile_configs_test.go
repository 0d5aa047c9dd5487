package survival_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// badConfig is a configuration that no engine may come of.
type badConfig struct {
	name   string
	change func(*actors.Config)
}

func cacheOf(name string, change func(*windows.Config)) badConfig {
	return badConfig{name, func(c *actors.Config) { change(&c.Cache) }}
}

func modelWith(name string, change func(*windows.Model)) badConfig {
	return badConfig{name, func(c *actors.Config) { change(&c.Model) }}
}

func badConfigs() []badConfig {
	list := []badConfig{
		cacheOf("a window of 1", func(c *windows.Config) { c.MaxAttentionWindow = []int{1} }),
		cacheOf("no window", func(c *windows.Config) { c.MaxAttentionWindow = []int{} }),
		cacheOf("a window of 0 behind others", func(c *windows.Config) { c.MaxAttentionWindow = []int{long, 0} }),
		cacheOf("the lowest window", func(c *windows.Config) { c.MaxAttentionWindow = []int{minInt} }),
		cacheOf("a negative sink", func(c *windows.Config) { c.SinkTokenLength = -1 }),
		cacheOf("no such dtype", func(c *windows.Config) { c.DType = "float8" }),
		cacheOf("no such policy", func(c *windows.Config) { c.EvictionPolicy = "random" }),
		cacheOf("uvm", func(c *windows.Config) { c.UseUVM = true }),
		cacheOf("a transfer mode", func(c *windows.Config) { c.TransferMode = "gds" }),
		cacheOf("max_tokens below 0", func(c *windows.Config) { c.MaxTokens = minInt }),
		cacheOf("host memory below 0", func(c *windows.Config) { c.HostCacheSize = math.MinInt64 }),
		cacheOf("expected length above max_seq_len", func(c *windows.Config) { c.ExpectedSeqLen = maxInt }),
		cacheOf("priority -1", func(c *windows.Config) { c.SecondaryOffloadMinPriority = -1 }),
		cacheOf("priority 101", func(c *windows.Config) { c.SecondaryOffloadMinPriority = 101 }),
		cacheOf("events below 0", func(c *windows.Config) { c.EventBufferMaxSize = -1 }),
		cacheOf("no pool named", func(c *windows.Config) { c.PoolFractions = map[string]float64{} }),
		cacheOf("a pool's fraction no number", func(c *windows.Config) { c.PoolFractions = map[string]float64{"wfullh1": math.NaN()} }),
		cacheOf("a strange pool", func(c *windows.Config) { c.PoolFractions = map[string]float64{"other": 1} }),
		modelWith("no layers", func(m *windows.Model) { m.Layers = 0 }),
		modelWith("too many layers", func(m *windows.Model) { m.Layers = maxInt }),
		modelWith("no heads", func(m *windows.Model) { m.KVHeads = []int{0} }),
		modelWith("heads for no layer", func(m *windows.Model) { m.KVHeads = nil }),
		modelWith("heads for other layers", func(m *windows.Model) { m.KVHeads = []int{1, 1, 1} }),
		modelWith("the most heads", func(m *windows.Model) { m.KVHeads = []int{maxInt} }),
		modelWith("heads below 0", func(m *windows.Model) { m.KVHeads = []int{minInt} }),
		modelWith("a head of nothing", func(m *windows.Model) { m.HeadDim = 0 }),
		modelWith("the largest head", func(m *windows.Model) { m.HeadDim = maxInt }),
		modelWith("heads and sizes that wrap around", func(m *windows.Model) { m.KVHeads, m.HeadDim = []int{1 << 32}, 1<<32 }),
		modelWith("no dtype", func(m *windows.Model) { m.DType = "" }),
		modelWith("sequences of nothing", func(m *windows.Model) { m.MaxSeqLen = 0 }),
		modelWith("the longest sequences", func(m *windows.Model) { m.MaxSeqLen = maxInt }),
		modelWith("an encoder of no heads", func(m *windows.Model) { m.CrossLayers, m.EncoderMaxLen = 1, 8 }),
		{"no device", func(c *actors.Config) { c.Device = nil }},
	}
	for _, n := range []int{0, 1, 3, -4, 24, maxInt, minInt, math.MaxInt32} {
		list = append(list, cacheOf("blocks of no power of two", func(c *windows.Config) { c.TokensPerBlock = n }))
	}
	list = append(list, cacheOf("the largest blocks", func(c *windows.Config) { c.TokensPerBlock = 1 << 62 }))
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		list = append(list, cacheOf("a fraction outside (0, 1)", func(c *windows.Config) { c.FreeGPUMemoryFraction = f }))
	}
	for _, n := range []windows.Counts{
		{}, {Primary: -1}, {Primary: minInt}, {Primary: maxInt}, {Primary: math.MaxInt32 + 1}, {Primary: windows.MaxPages + 1},
		{Primary: 1, Secondary: -1}, {Primary: 1, Secondary: maxInt}, {Primary: 1, Secondary: minInt}, {Primary: 1, Secondary: windows.MaxPages + 1},
	} {
		list = append(list, badConfig{"absurd pages", func(c *actors.Config) { c.Pages = []windows.Counts{n} }})
	}
	return append(list,
		badConfig{"pages of no pool", func(c *actors.Config) { c.Pages = []windows.Counts{} }},
		badConfig{"pages of another pool", func(c *actors.Config) { c.Pages = make([]windows.Counts, 2) }})
}

// Absurd numbers are refused before memory is touched.
func TestHostileConfigurationsAreRefused(t *testing.T) {
	system := newSystem()
	for _, b := range badConfigs() {
		s := setup{}
		config := s.config(t)
		device := config.Device
		b.change(&config)
		e, err := actors.Spawn(system.Root, config)
		if !assert.ErrorIs(t, err, messages.ErrConfigInvalid, b.name) {
			if err == nil {
				_, _ = e.Close(ctx)
			}
			continue
		}
		memory, err := device.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.Total, memory.Free, b.name)
	}
	system.Shutdown()
}

// Page counts that are allowed, but more than the device holds.
func TestMorePagesThanMemory(t *testing.T) {
	system := newSystem()
	s := setup{pages: []windows.Counts{{Primary: windows.MaxPages}}}
	config := s.config(t)
	_, err := actors.Spawn(system.Root, config)
	require.Error(t, err)
	assert.NotErrorIs(t, err, messages.ErrInternal)
	var refusal *messages.Refusal
	if errors.As(err, &refusal) {
		t.Logf("refused as %s", refusal.Code)
	}
	memory, err := config.Device.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory.Total, memory.Free)
	system.Shutdown()
}
