package windows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const gib = 1 << 30

// The example of a split by the longest sequence that leaves a limited pool few
// pages: the warnings name the numbers.
func TestWarnings(t *testing.T) {
	preset := Presets()["GPT-OSS-20B"]
	c := DefaultConfig()
	c.MaxAttentionWindow = preset.MaxAttentionWindow
	split := func(c Config) ([]Pool, []PageCounts, []string) {
		pools, err := Pools(preset.Model, c)
		require.NoError(t, err)
		counts, err := Split(pools, preset.Model, c, Budget{DeviceBytes: 16 * gib})
		require.NoError(t, err)
		return pools, counts, Warnings(pools, preset.Model, c, counts)
	}
	pools, counts, warnings := split(c)
	assert.Equal(t, []PageCounts{{Primary: 24}, {Primary: 19636}}, counts)
	assert.Equal(t, Fit{Tokens: 1024, Sequences: 4, Pool: "w128h8"}, FitOf(pools, counts, 1024))
	assert.Equal(t, Fit{Tokens: 768, Sequences: 1, Pool: "w128h8"}, LongestPrompt(pools, counts))
	assert.Equal(t, []string{
		"pool w128h8 holds 768 tokens: longer prompts must be admitted in chunks",
		"expected_seq_len is max_seq_len, 131072: 4 sequences of 1024 tokens fit, limited by pool " +
			"w128h8; with expected_seq_len 1024 531 would fit",
	}, warnings)

	c.ExpectedSeqLen = 1024
	pools, counts, warnings = split(c)
	assert.Equal(t, 531, FitOf(pools, counts, 1024).Sequences, "what the warning promised")
	assert.Equal(t,
		[]string{"pool w128h8 holds 85024 tokens: longer prompts must be admitted in chunks"}, warnings)

	// Half of either is what two lengths get at least.
	long := FitOf(pools, []PageCounts{{Primary: 24}, {Primary: 19636}}, 131072).Sequences
	c.ExpectedSeqLen, c.PoolFractions = 0, Fractions(pools, 1024, 131072)
	pools, counts, _ = split(c)
	assert.GreaterOrEqual(t, FitOf(pools, counts, 1024).Sequences, 531/2)
	assert.GreaterOrEqual(t, FitOf(pools, counts, 131072).Sequences, long/2)
}

func TestNoWarnings(t *testing.T) {
	m := Presets()["Llama-3.1-8B"].Model
	c := DefaultConfig()
	pools, err := Pools(m, c)
	require.NoError(t, err)
	counts, err := Split(pools, m, c, Budget{DeviceBytes: 20 * gib})
	require.NoError(t, err)
	assert.Empty(t, Warnings(pools, m, c, counts), "with one pool every length is served alike")
}

// Options that do nothing, and those that other servers have dropped, are named.
func TestWarningsOfOptions(t *testing.T) {
	m := Presets()["Llama-3.1-8B"].Model
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"host memory":  {func(c *Config) { c.HostCacheSize = 1 << 30 }, nil},
		"nothing kept": {func(c *Config) { c.EnableBlockReuse = false }, nil},
		"without reuse": {
			func(c *Config) { c.HostCacheSize, c.EnableBlockReuse = 1<<30, false },
			[]string{"host_cache_size 1073741824 without enable_block_reuse: nothing is stored, so " +
				"nothing is offloaded"},
		},
		"without a way back": {
			func(c *Config) { c.HostCacheSize, c.OnboardBlocks = 1<<30, false },
			[]string{"host_cache_size 1073741824 without onboard_blocks: nothing would come back, so " +
				"nothing is offloaded"},
		},
		"sinks": {
			func(c *Config) { c.SinkTokenLength, c.MaxAttentionWindow = 4, []int{65536} },
			[]string{"sink_token_length 4: TensorRT-LLM has dropped this option; here the tokens are kept " +
				"beside those of the window"},
		},
		"sinks without a window": {
			func(c *Config) { c.SinkTokenLength = 4 },
			[]string{"sink_token_length 4 has no effect: no layer has a window"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultConfig()
			c.change(&config)
			pools, err := Pools(m, config)
			require.NoError(t, err)
			counts, err := Split(pools, m, config, Budget{DeviceBytes: 64 * gib})
			require.NoError(t, err)
			assert.Equal(t, c.want, Warnings(pools, m, config, counts))
		})
	}
}

// TestFractionsServeEveryLength holds the bound that the comment of Fractions
// states, up to a page of rounding in each pool.
func TestFractionsServeEveryLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Layers: 3, KVHeads: []int{2, 1, 4}, HeadDim: 8, DType: Float16, MaxSeqLen: 4096}
		c := DefaultConfig()
		c.TokensPerBlock = 8
		c.MaxAttentionWindow = rapid.SliceOfN(rapid.SampledFrom([]int{16, 100, 500, 4096}), 1, 3).Draw(t,
			"windows")
		lengths := rapid.SliceOfN(rapid.IntRange(1, 4096), 1, 4).Draw(t, "lengths")
		pools, err := Pools(m, c)
		require.NoError(t, err)
		const bytes = 1 << 28
		fit := func(c Config, tokens int) int {
			pages, err := Divide(pools, m, c, bytes)
			require.NoError(t, err)
			counts := make([]PageCounts, len(pages))
			for i, n := range pages {
				counts[i].Primary = n
			}
			return FitOf(pools, counts, tokens).Sequences
		}
		for _, n := range lengths {
			alone := c
			alone.ExpectedSeqLen = n
			mixed := c
			mixed.PoolFractions = Fractions(pools, lengths[0], lengths[1:]...)
			require.NoError(t, mixed.Validate(m))
			assert.GreaterOrEqual(t, fit(mixed, n)+1, fit(alone, n)/len(lengths), "%d tokens", n)
		}
	})
}

// An engine's own split gives states with checkpoints a quarter of the memory at least, and leaves
// a larger part, states without checkpoints, and what a host has chosen alone.
func TestStatesHaveAQuarter(t *testing.T) {
	model := func(stateBytes int64) Model {
		return Model{
			Layers: 2, KVHeads: []int{1, 0}, HeadDim: 64, DType: Float16, MaxSeqLen: 1 << 17,
			States: []State{{Layers: []int{1}, Bytes: stateBytes}},
		}
	}
	share := func(m Model, c Config) float64 {
		pools, err := Pools(m, c)
		require.NoError(t, err)
		return c.ForMixedLengths(m).PoolFractions[pools[1].Name]
	}
	assert.InDelta(t, 0.25, share(model(1<<12), DefaultConfig()), 1e-9)
	assert.Greater(t, share(model(1<<24), DefaultConfig()), 0.4)
	chosen := DefaultConfig()
	chosen.ExpectedSeqLen = 1024
	assert.Zero(t, share(model(1<<12), chosen))
	without := DefaultConfig()
	without.EnableBlockReuse = false
	assert.Less(t, share(model(1<<12), without), 0.1)
}
