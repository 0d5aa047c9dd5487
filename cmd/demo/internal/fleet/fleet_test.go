package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testTokens   = 16 // of a block
	testRequests = 60
)

// writeTrace writes a trace of conversations that begin alike and go on by a few blocks
// each time.
func writeTrace(t *testing.T) string {
	t.Helper()
	const conversations, shared = 8, 4
	var lines strings.Builder
	for i := range testRequests {
		c, turn := i%conversations, i/conversations
		own := 3 + 3*turn
		fmt.Fprintf(&lines,
			`{"timestamp":%d,"input_length":%d,"output_length":5,"hash_runs":[[0,%d],[%d,%d]]}`+"\n",
			150*i, testTokens*(shared+own)+3, shared, 1000*(c+1), own)
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}

// fleetOf is a configuration of three engines over the trace, and over a store, which may be nil.
func fleetOf(t *testing.T, path string, store stores.Store) Config {
	t.Helper()
	reader, err := trace.Open(path)
	require.NoError(t, err)
	require.Equal(t, testTokens, reader.TokensPerBlock())
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	return Config{Engines: 3, Settings: settings(), Store: store,
		Source:    &replay.Arrivals{Reader: reader},
		Seed:      7,
		KillAfter: testRequests / 2}
}

func settings() Settings {
	return Settings{TokensPerBlock: testTokens, Pages: 150, HostPages: 60, Model: "test",
		Save: actors.SaveOnCommit, StoreGbit: 100}
}

// sane checks what holds for every run.
func sane(t *testing.T, r *Result) {
	t.Helper()
	assert.Equal(t, testRequests, r.Requests)
	assert.Equal(t, testRequests, r.Answered+r.GivenUp)
	assert.Zero(t, r.GivenUp)
	assert.Zero(t, r.WrongPages)
	assert.Empty(t, r.Problems)
	assert.Positive(t, r.VerifiedPages)
	assert.Positive(t, r.CheckedPages)
	assert.Positive(t, r.Events)
	assert.Zero(t, r.RejectedObjects)
	assert.Equal(t, r.Retried, r.Again.Answered)
	assert.Equal(t, r.PromptTokens, r.Before.PromptTokens+r.After.PromptTokens+r.Again.PromptTokens)
}

// What engines share saves prefill: a router that follows them, a store, and both.
func TestSharingSaves(t *testing.T) {
	path := writeTrace(t)
	results := map[string]*Result{}
	for _, routing := range []bool{false, true} {
		for _, stored := range []bool{false, true} {
			var store stores.Store
			if stored {
				store = &stores.Memory{}
			}
			c := fleetOf(t, path, store)
			c.Routing = routing
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			sane(t, r)
			assert.Equal(t, -1, r.Killed)
			results[fmt.Sprint(routing, stored)] = r
		}
	}
	none, routing, store, both := results["false false"], results["true false"], results["false true"],
		results["true true"]
	assert.Greater(t, routing.HitRate, none.HitRate)
	assert.Greater(t, store.HitRate, none.HitRate)
	assert.GreaterOrEqual(t, both.HitRate, routing.HitRate)
	assert.Zero(t, none.StoreReads+routing.StoreReads)
	assert.Less(t, both.StoreReads, store.StoreReads,
		"what is routed to its blocks needs not be fetched")
	assert.Positive(t, store.FetchSeconds)
	assert.Less(t, routing.PrefillSeconds, none.PrefillSeconds)
	assert.Greater(t, routing.SavedSeconds, none.SavedSeconds)
}

// A fleet serves models of every shape. The router knows the pages of all their pools, and
// fetches and a failure leave no wrong byte in any.
func TestModelsOfAllShapes(t *testing.T) {
	path := writeTrace(t)
	events := map[string]int{}
	for _, name := range Models {
		c := fleetOf(t, path, &stores.Memory{})
		c.Settings.Shape, c.Settings.Pages = name, 80 // windows lose pages
		c.Routing, c.Kill = true, true
		r, err := Run(t.Context(), c)
		require.NoError(t, err, name)
		sane(t, r)
		assert.Positive(t, r.StoreReads, name)
		assert.Positive(t, r.StoreReadBytes, name)
		assert.Positive(t, r.HitRate, name)
		events[name] = r.Events
	}
	assert.Greater(t, events["hybrid"], 3*events["tiny"]/2, "a model with two pools tells of both")
}

// Bytes of a store are those of the modelled model: a block of Llama-3.1-8B has 128 KiB for
// each token, one of Gemma-3-12B has 64 KiB in the layers without a window and 320 KiB in
// those with one.
func TestModelledBytes(t *testing.T) {
	for name, want := range map[string][]int64{"tiny": {128 << 10}, "hybrid": {320 << 10, 64 << 10},
		"sliding": {128 << 10}} {
		s, err := shapeOf(name)
		require.NoError(t, err)
		cache := windows.DefaultConfig()
		cache.TokensPerBlock, cache.MaxAttentionWindow = testTokens, s.Windows
		pools, err := windows.Pools(s.Model, cache)
		require.NoError(t, err)
		require.Len(t, pools, len(want), name)
		space, block := stores.Space{}, stores.Block{Tokens: make([]messages.Token, testTokens)}
		for i := range pools {
			page := make([]byte, pools[i].PageBytes())
			body := space.Encode(nil, block, page)
			assert.Equal(t, 3*testTokens*want[i], s.modelled(3, int64(3*len(body)), testTokens),
				"%s, pool %s", name, pools[i].Name)
		}
	}
}

// A killed engine costs what it alone had: with a store that is little.
func TestAKilledEngineCosts(t *testing.T) {
	path := writeTrace(t)
	cost := map[bool]int64{}
	for _, stored := range []bool{false, true} {
		computed := map[bool]int64{}
		for _, kill := range []bool{false, true} {
			var store stores.Store
			if stored {
				store = &stores.Memory{}
			}
			c := fleetOf(t, path, store)
			c.Routing, c.Kill = true, kill
			alive := map[int]bool{}
			c.Progress = func(s Status) {
				for i, n := range s.Flights {
					alive[i] = n >= 0
				}
			}
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			sane(t, r)
			computed[kill] = r.ComputedTokens
			if kill {
				assert.GreaterOrEqual(t, r.Killed, 0)
				assert.Positive(t, r.LostBlocks)
				assert.False(t, alive[r.Killed])
			}
		}
		cost[stored] = computed[true] - computed[false]
	}
	assert.Positive(t, cost[false])
	assert.Less(t, cost[true], cost[false])
}

// A run that is ended in its middle says so.
func TestARunIsEnded(t *testing.T) {
	c := fleetOf(t, writeTrace(t), nil)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	c.Progress = func(s Status) {
		if s.Answered > testRequests/2 {
			end()
		}
	}
	_, err := Run(ctx, c)
	require.ErrorIs(t, err, context.Canceled)
}

// What is wrong with the engines' settings is said before anything is served.
func TestSettingsAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Settings){
		"over the limit": func(s *Settings) { s.Pages = 1 << 40 },
		"none of [tiny":  func(s *Settings) { s.Shape = "x" },
	} {
		c := fleetOf(t, writeTrace(t), nil)
		change(&c.Settings)
		_, err := Run(t.Context(), c)
		require.ErrorContains(t, err, what)
	}
}
