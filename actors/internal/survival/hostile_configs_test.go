package survival_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

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

func badConfigs() []badConfig { return slices.Concat(badCaches(), badModels(), badCounts()) }

func badCaches() []badConfig {
	return []badConfig{
		cacheOf("a window of 1", func(c *windows.Config) { c.MaxAttentionWindow = []int{1} }),
		cacheOf("no window", func(c *windows.Config) { c.MaxAttentionWindow = []int{} }),
		cacheOf("a window of 0 behind others", func(c *windows.Config) {
			c.MaxAttentionWindow = []int{long, 0}
		}),
		cacheOf("the lowest window", func(c *windows.Config) { c.MaxAttentionWindow = []int{minInt} }),
		cacheOf("a negative sink", func(c *windows.Config) { c.SinkTokenLength = -1 }),
		cacheOf("no such dtype", func(c *windows.Config) { c.DType = "float8" }),
		cacheOf("no such policy", func(c *windows.Config) { c.EvictionPolicy = "random" }),
		cacheOf("uvm", func(c *windows.Config) { c.UseUVM = true }),
		cacheOf("a transfer mode", func(c *windows.Config) { c.TransferMode = "gds" }),
		cacheOf("max_tokens below 0", func(c *windows.Config) { c.MaxTokens = minInt }),
		cacheOf("host memory below 0", func(c *windows.Config) { c.HostCacheSize = math.MinInt64 }),
		cacheOf("expected length above max_seq_len", func(c *windows.Config) {
			c.ExpectedSeqLen = maxInt
		}),
		cacheOf("priority -1", func(c *windows.Config) { c.SecondaryOffloadMinPriority = -1 }),
		cacheOf("priority 101", func(c *windows.Config) { c.SecondaryOffloadMinPriority = 101 }),
		cacheOf("events below 0", func(c *windows.Config) { c.EventBufferMaxSize = -1 }),
		cacheOf("a part for an encoder that is not there", func(c *windows.Config) {
			c.CrossKVCacheFraction = math.NaN()
		}),
		cacheOf("quotas for too many", func(c *windows.Config) {
			c.SaltQuotas = map[string]float64{}
			for i := range 1025 {
				c.SaltQuotas[fmt.Sprint(i)] = 0.5
			}
		}),
		cacheOf("a quota for no salt", func(c *windows.Config) {
			c.SaltQuotas = map[string]float64{"": 0.5}
		}),
		cacheOf("no pool named", func(c *windows.Config) { c.PoolFractions = map[string]float64{} }),
		cacheOf("a pool's fraction no number", func(c *windows.Config) {
			c.PoolFractions = map[string]float64{"wfullh1": math.NaN()}
		}),
		cacheOf("an unknown pool", func(c *windows.Config) {
			c.PoolFractions = map[string]float64{"other": 1}
		}),
	}
}

func badModels() []badConfig {
	return []badConfig{
		modelWith("no layers", func(m *windows.Model) { m.Layers = 0 }),
		modelWith("too many layers", func(m *windows.Model) { m.Layers = maxInt }),
		modelWith("no heads", func(m *windows.Model) { m.KVHeads = []int{0} }),
		modelWith("heads for no layer", func(m *windows.Model) { m.KVHeads = nil }),
		modelWith("heads for other layers", func(m *windows.Model) { m.KVHeads = []int{1, 1, 1} }),
		modelWith("the most heads", func(m *windows.Model) { m.KVHeads = []int{maxInt} }),
		modelWith("heads below 0", func(m *windows.Model) { m.KVHeads = []int{minInt} }),
		modelWith("a head of nothing", func(m *windows.Model) { m.HeadDim = 0 }),
		modelWith("the largest head", func(m *windows.Model) { m.HeadDim = maxInt }),
		modelWith("heads and sizes that wrap around", func(m *windows.Model) {
			m.KVHeads, m.HeadDim = []int{1 << 32}, 1<<32
		}),
		modelWith("no dtype", func(m *windows.Model) { m.DType = "" }),
		modelWith("sequences of nothing", func(m *windows.Model) { m.MaxSeqLen = 0 }),
		modelWith("the longest sequences", func(m *windows.Model) { m.MaxSeqLen = maxInt }),
		modelWith("an encoder of no heads", func(m *windows.Model) {
			m.CrossLayers, m.EncoderMaxLen = 1, 8
		}),
		{"no device", func(c *actors.Config) { c.Device = nil }},
	}
}

// badCounts are numbers of tokens and pages, and fractions.
func badCounts() (list []badConfig) {
	for _, n := range []int{0, 1, 3, -4, 24, maxInt, minInt, math.MaxInt32} {
		list = append(list, cacheOf("blocks of no power of two", func(c *windows.Config) {
			c.TokensPerBlock = n
		}))
	}
	list = append(list, cacheOf("the largest blocks", func(c *windows.Config) {
		c.TokensPerBlock = 1 << 62
	}))
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		list = append(list, cacheOf("a fraction outside (0, 1)", func(c *windows.Config) {
			c.FreeGPUMemoryFraction = f
		}))
	}
	for _, n := range []windows.PageCounts{
		{}, {Primary: -1}, {Primary: minInt}, {Primary: maxInt}, {Primary: math.MaxInt32 + 1},
		{Primary: windows.MaxPages + 1},
		{Primary: 1, Secondary: -1}, {Primary: 1, Secondary: maxInt}, {Primary: 1, Secondary: minInt},
		{Primary: 1, Secondary: windows.MaxPages + 1},
	} {
		list = append(list, badConfig{"absurd pages", func(c *actors.Config) {
			c.Pages = []windows.PageCounts{n}
		}})
	}
	return append(list,
		badConfig{"pages of no pool", func(c *actors.Config) { c.Pages = []windows.PageCounts{} }},
		badConfig{"pages of another pool", func(c *actors.Config) {
			c.Pages = make([]windows.PageCounts, 2)
		}})
}

// badParts are quotas, and encoders.
func badParts() (list []badConfig) {
	for _, f := range []float64{0, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1),
		math.SmallestNonzeroFloat64 * -1} {
		list = append(list, cacheOf(fmt.Sprint("a quota of ", f), func(c *windows.Config) {
			c.SaltQuotas = map[string]float64{"a": f}
		}))
		if f != 0 { // which is none
			list = append(list, cacheOf(fmt.Sprint("others' quota of ", f), func(c *windows.Config) {
				c.OtherSaltsQuota = f
			}))
		}
	}
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1)} {
		list = append(list, badConfig{fmt.Sprint("an encoder's part of ", f), func(c *actors.Config) {
			c.Model.CrossLayers, c.Model.CrossKVHeads, c.Model.EncoderMaxLen, c.Cache.CrossKVCacheFraction =
				1, 1, 8, f
		}})
	}
	for _, n := range []int{-1, 0, minInt, maxInt} {
		encoder := func(name string, change func(*windows.Model)) badConfig {
			return badConfig{fmt.Sprint(name, " ", n), func(c *actors.Config) {
				c.Model.CrossLayers, c.Model.CrossKVHeads, c.Model.EncoderMaxLen, c.Cache.CrossKVCacheFraction =
					1, 1, 8, 0.5
				change(&c.Model)
			}}
		}
		list = append(list, encoder("cross heads", func(m *windows.Model) { m.CrossKVHeads = n }),
			encoder("encoder inputs of", func(m *windows.Model) { m.EncoderMaxLen = n }),
			encoder("cross layers", func(m *windows.Model) { m.CrossLayers = n }))
	}
	return list
}

// Absurd numbers are refused before memory is touched.
func TestHostileConfigurationsAreRefused(t *testing.T) {
	system := newSystem()
	for _, b := range append(badConfigs(), badParts()...) {
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

// The largest numbers that are allowed mean what they say: a sink of more tokens
// than there are keeps all, and of any number of events none is lost.
func TestTheLargestNumbersAreRight(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{long, 2 * tpb}, pages: []windows.PageCounts{{Primary: 64}, {Primary: 64}},
			change: func(c *windows.Config) {
				c.SinkTokenLength, c.EventBufferMaxSize = maxInt, maxInt
			}})
	a := r.admit(prompt(0, 30*tpb))
	r.compute(a.Sequence, 30*tpb)
	tables, err := r.TablesOf(ctx, a.Sequence)
	require.NoError(t, err)
	for p := range tables {
		assert.NotContains(t, tables[p][0], messages.NoPage)
	}
	r.release(a.Sequence)
	for i := range 50 {
		r.store(run(1000*i, 3*tpb))
	}
	batch, err := r.Events(ctx)
	require.NoError(t, err)
	assert.Zero(t, batch.Lost)
	assert.Greater(t, len(batch.Events), 100)
	r.close()
}

// Options are part of the configuration.
func TestHostileOptionsAreRefused(t *testing.T) {
	system := newSystem()
	for name, option := range map[string]actors.Option{
		"no calls": actors.WithMaxInFlight(0), "calls below 0": actors.WithMaxInFlight(minInt),
		"a room below 0":                  actors.WithWaitingRoom(-1),
		"a room larger than the engine":   actors.WithWaitingRoom(maxInt),
		"panics below 0":                  actors.WithRestartLimit(-1, time.Second),
		"a while below 0":                 actors.WithRestartLimit(1, math.MinInt64),
		"no clock":                        actors.WithClock(nil),
		"rebalances below 0":              actors.WithAutoRebalance(-1, func(messages.Rebalanced) {}),
		"rebalances that no one hears of": actors.WithAutoRebalance(1, nil),
	} {
		s := setup{}
		config := s.config(t)
		_, err := actors.Spawn(system.Root, config, option)
		assert.ErrorIs(t, err, messages.ErrConfigInvalid, name)
		memory, err := config.Device.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.Total, memory.Free, name)
	}
	system.Shutdown()
}

// Page counts that are allowed, but more than the device holds.
func TestMorePagesThanMemory(t *testing.T) {
	system := newSystem()
	s := setup{pages: []windows.PageCounts{{Primary: windows.MaxPages}}}
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
