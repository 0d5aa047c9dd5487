package kvactor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
)

// hybrids are models whose pools need memory in different ways: full attention grows with
// the sequence, a window and a state do not.
var hybrids = map[string]kvactor.Model{
	"windows": {Layers: 4, KVHeads: []int{1}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 65536},
	"states": {
		Layers: 4, KVHeads: []int{1, 1, 0, 0}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 65536,
		States: []kvactor.State{{Layers: []int{2, 3}, Bytes: 8 << 10}},
	},
}

// openHybrid opens an engine over memory for two of the longest sequences.
func openHybrid(t *testing.T, name string, expected int) *kvactor.Engine {
	t.Helper()
	device, err := sim.New(sim.Config{MemoryBytes: 36 << 20})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.ExpectedSeqLen = expected
	cache.MaxAttentionWindow = []int{65536}
	if name == "windows" {
		cache.MaxAttentionWindow = []int{128, 65536}
	}
	e, err := kvactor.Open(kvactor.Config{Model: hybrids[name], Cache: cache, Device: device})
	require.NoError(t, err)
	return e
}

// fitting is how many sequences of a length, admitted in chunks, an engine takes in.
func fitting(t *testing.T, name string, expected, tokens int) (n int) {
	t.Helper()
	e := openHybrid(t, name, expected)
	defer shut(t, e)
	for {
		prompt := make([]kvactor.Token, tokens)
		prompt[0] = kvactor.Token(n)
		_, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt, ChunkTokens: 256})
		if err != nil {
			require.ErrorIs(t, err, kvactor.ErrOutOfPages)
			return n
		}
		n++
	}
}

// A hybrid model without a word about lengths holds many short sequences and the longest
// ones, too: at least half as many of each as an engine that is made for that length alone.
func TestTheDefaultSplitOfHybridModels(t *testing.T) {
	for name, model := range hybrids {
		t.Run(name, func(t *testing.T) {
			const short = 1000
			byNeed := fitting(t, name, model.MaxSeqLen, short)
			most, mixed := fitting(t, name, 1024, short), fitting(t, name, 0, short)
			t.Logf(
				"sequences of %d tokens: %d split for the longest, %d by default, %d split for this length",
				short, byNeed, mixed, most)
			assert.Greater(t, mixed, 2*byNeed)
			assert.GreaterOrEqual(t, mixed, most/2)

			const long = 60_000
			most, mixed = fitting(t, name, model.MaxSeqLen, long), fitting(t, name, 0, long)
			t.Logf("sequences of %d tokens: %d split for the longest, %d by default", long, most, mixed)
			assert.Positive(t, mixed)
			assert.GreaterOrEqual(t, mixed, most/2)
		})
	}
}

// Engines of both packages and plans divide memory alike.
func TestOneDivisionOfMemory(t *testing.T) {
	for name := range hybrids {
		e := openHybrid(t, name, 0)
		opened, err := e.Stats(ctx)
		require.NoError(t, err)
		shut(t, e)

		device, err := sim.New(sim.Config{MemoryBytes: 36 << 20})
		require.NoError(t, err)
		cache := kvactor.DefaultCache()
		if name == "windows" {
			cache.MaxAttentionWindow = []int{128, 65536}
		}
		system := actors.NewSystem(nil)
		spawned, err := actors.Spawn(system.Root, actors.Config{Model: hybrids[name], Cache: cache,
			Device: device})
		require.NoError(t, err)
		stats, err := spawned.Stats(ctx)
		require.NoError(t, err)
		for p := range opened.Pools {
			assert.Equal(t, opened.Pools[p].Primary.Total, stats.Pools[p].Primary.Total, "%s, pool %d",
				name, p)
		}
		_, err = spawned.Close(ctx)
		require.NoError(t, err)
		system.Shutdown()
	}
}

// Chunks are advised where they help: a pool with a window takes the pages of a chunk, one of full
// attention those of the whole prompt.
func TestWarningsOnLongPrompts(t *testing.T) {
	model := kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 16, DType: kvactor.Float16,
		MaxSeqLen: 65536}
	cache := kvactor.DefaultCache()
	for _, tc := range []struct {
		window int
		want   string
	}{
		{65536, "pool wfullh1 holds 320 tokens: longer prompts are refused"},
		{64, "pool w64h1 holds 320 tokens: longer prompts must be admitted in chunks"},
	} {
		cache.MaxAttentionWindow = []int{tc.window}
		pools, err := windows.Pools(model, cache)
		require.NoError(t, err)
		warnings := windows.Warnings(pools, model, cache, []windows.PageCounts{{Primary: 10}})
		assert.Equal(t, tc.want, warnings[0])
	}
}

// A device is not made by itself.
func TestOpenWithoutADevice(t *testing.T) {
	_, err := kvactor.Open(kvactor.Config{})
	require.ErrorIs(t, err, kvactor.ErrConfigInvalid)
	assert.ErrorContains(t, err, "Config.Device is nil")
	assert.ErrorContains(t, err, "layers 0 is not between 1 and 4096", "all that is missing")
	_, err = kvactor.Open(kvactor.Config{}, actors.WithStore(actors.StoreConfig{}))
	for _, missing := range []string{"layers 0", "Config.Device", "StoreConfig.Store",
		"StoreConfig.Model"} {
		assert.ErrorContains(t, err, missing)
	}
}

// Host memory that nothing could use is refused.
func TestUselessConfigurations(t *testing.T) {
	type cache = kvactor.CacheConfig
	const host = "host_cache_size 1048576 without "
	for want, change := range map[string]func(*cache){
		host + "enable_block_reuse": func(c *cache) { c.EnableBlockReuse = false },
		host + "onboard_blocks":     func(c *cache) { c.OnboardBlocks = false },
	} {
		device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
		require.NoError(t, err)
		cache := kvactor.DefaultCache()
		cache.HostCacheSize = 1 << 20
		change(&cache)
		_, err = kvactor.Open(kvactor.Config{
			Model: kvactor.Model{
				Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
			},
			Cache:  cache,
			Device: device,
		})
		require.ErrorIs(t, err, kvactor.ErrConfigInvalid)
		assert.ErrorContains(t, err, want)
	}
}
