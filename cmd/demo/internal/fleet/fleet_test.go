package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/offloader/stores/blob"
	"github.com/kvactor/kvactor/windows"
	_ "gocloud.dev/blob/fileblob" // file://
)

// TestMain makes the test binary an engine's process when it is told so.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "engine" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, openFolder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func openFolder(ctx context.Context, url string) (stores.Store, error) {
	return blob.Open(ctx, url, blob.Options{})
}

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

// fleetOf is a configuration of three engines over the trace.
func fleetOf(t *testing.T, path string, open func(context.Context, int) (Engine, error)) Config {
	t.Helper()
	n, tokens, err := CountTrace(path, 0)
	require.NoError(t, err)
	require.Equal(t, testRequests, n)
	require.Equal(t, testTokens, tokens)
	source, err := OpenTrace(path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return Config{Engines: 3, Tokens: tokens, Source: source, Seed: 7, KillAfter: n / 2, Open: open}
}

func settings() Settings {
	return Settings{TokensPerBlock: testTokens, Pages: 150, HostPages: 60, Model: "test",
		Save: actors.SaveOnCommit, StoreGbit: 100, AwaitSaves: true}
}

// locals starts engines in this process over a store, which may be nil.
func locals(store stores.Store) func(context.Context, int) (Engine, error) {
	return func(ctx context.Context, _ int) (Engine, error) { return NewLocal(ctx, settings(), store) }
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
			c := fleetOf(t, path, locals(store))
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
		s := settings()
		s.Shape, s.Pages = name, 80 // windows lose pages
		store := &stores.Memory{}
		c := fleetOf(t, path, func(ctx context.Context, _ int) (Engine,
			error) {
			return NewLocal(ctx, s, store)
		})
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
			c := fleetOf(t, path, locals(store))
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

// processes starts engines in processes of their own.
func processes(t *testing.T, s Settings) func(context.Context, int) (Engine, error) {
	s.AwaitSaves = false
	return func(ctx context.Context, _ int) (Engine, error) {
		return NewProcess(ctx, s, exec.CommandContext(t.Context(), os.Args[0], "engine"))
	}
}

// Engines in processes answer as those in goroutines do, to a router that has their
// events from the wire.
func TestProcessesDoAsGoroutinesDo(t *testing.T) {
	path := writeTrace(t)
	var results []Result
	for _, open := range []func(context.Context, int) (Engine, error){locals(nil),
		processes(t, settings())} {
		c := fleetOf(t, path, open)
		c.Routing = true
		r, err := Run(t.Context(), c)
		require.NoError(t, err)
		sane(t, r)
		// The wire has whole blocks only, and runs of them in one event. With -tags isolated
		// the time of a copy depends on the scheduler.
		r.Seconds, r.Events, r.IndexBlocks, r.FirstSeconds = 0, 0, 0, 0
		results = append(results, *r)
	}
	assert.Equal(t, results[0], results[1])
}

// A process that is killed while it serves, and writes to the store, costs requests that
// are sent again and no wrong byte.
func TestAProcessIsKilled(t *testing.T) {
	path := writeTrace(t)
	s := settings()
	s.Shape = "hybrid"
	s.Store = "file://" + t.TempDir() + "?metadata=skip&no_tmp_dir=1"
	c := fleetOf(t, path, processes(t, s))
	c.Routing, c.Kill = true, true
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	sane(t, r)
	assert.GreaterOrEqual(t, r.Killed, 0)
	assert.Positive(t, r.StoreWrites)
}

// A process that ends by itself fails the run, by its number; the others are ended.
func TestAProcessEnds(t *testing.T) {
	path := writeTrace(t)
	open := processes(t, settings())
	c := fleetOf(t, path, func(ctx context.Context, i int) (Engine, error) {
		e, err := open(ctx, i)
		if i == 1 && err == nil {
			err = e.(*process).command.Process.Kill()
		}
		return e, err
	})
	_, err := Run(t.Context(), c)
	require.ErrorContains(t, err, "engine 1: the process does not answer")
}

// A run that is ended in its middle says so, and ends its processes.
func TestARunIsEnded(t *testing.T) {
	path := writeTrace(t)
	for _, open := range []func(context.Context, int) (Engine, error){locals(nil),
		processes(t, settings())} {
		c := fleetOf(t, path, open)
		ctx, end := context.WithCancel(t.Context())
		c.Progress = func(s Status) {
			if s.Answered > testRequests/2 {
				end()
			}
		}
		_, err := Run(ctx, c)
		require.ErrorIs(t, err, context.Canceled)
		end()
	}
}

// What is wrong with an engine's settings is said by the process that has them.
func TestAProcessRefusesSettings(t *testing.T) {
	for what, change := range map[string]func(*Settings){
		"over the limit": func(s *Settings) { s.Pages = 1 << 40 },
		"nowhere":        func(s *Settings) { s.Store = "nowhere://x" },
		"none of [tiny":  func(s *Settings) { s.Shape = "x" },
	} {
		s := settings()
		change(&s)
		_, err := processes(t, s)(t.Context(), 0)
		require.ErrorContains(t, err, what)
	}
}
