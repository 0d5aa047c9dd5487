package replay

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/demo/internal/paper"
	_ "github.com/kvactor/kvactor/pool/evict/published" // its policies
	"github.com/kvactor/kvactor/windows"
)

// TestBaselines: the policy that knows the trace hits exactly what the published
// baselines say of the optimum, and the stack distances give exactly their hits of LRU, at
// each capacity.
func TestBaselines(t *testing.T) {
	for name, baseline := range published(t) {
		trace, err := Load(filepath.Join(sharedTraces, baseline.File), 0)
		require.NoError(t, err)
		assert.Equal(t, baseline.LookedUp, trace.Blocks)
		distances := paper.Measure(trace.Trace)
		assert.Equal(t, baseline.LookedUp, distances.Lookups)
		assert.Equal(t, trace.Distinct, distances.Distinct)
		require.NotEmpty(t, baseline.Hits["lru"])
		for text, hits := range baseline.Hits["lru"] {
			capacity, err := strconv.Atoi(text)
			require.NoError(t, err)
			assert.Equal(t, hits, distances.Hits(capacity), "%s, LRU with %d blocks", name, capacity)
		}
		if testing.Short() && name != "mooncake_conversation_h1" {
			continue
		}
		for _, capacity := range baseline.capacities(t) {
			r, err := Optimal(t.Context(), Config{Pages: capacity}, trace)
			require.NoError(t, err)
			assert.Equal(t, baseline.Hits[paper.Optimal][strconv.Itoa(capacity)], r.Hits,
				"%s with %d blocks", name, capacity)
		}
	}
}

// TestDistancesAreTheEngines: the engine under priority_lru hits at each capacity exactly
// what the stack distances say, one pool, no host memory, one request at a time.
func TestDistancesAreTheEngines(t *testing.T) {
	path := generate(t, 150, 12)
	trace, err := Load(path, 0)
	require.NoError(t, err)
	distances := paper.Measure(trace.Trace)
	for _, capacity := range []int{1, 3, 10, 30, 50, 100, 200, distances.Distinct - 1,
		distances.Distinct} {
		c := config(path, capacity)
		r, err := Atomic(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, distances.Hits(capacity), r.Hits, "%d blocks", capacity)
	}
}

// TestTheEngineDoesNotBeatTheOptimum, under none of its policies.
func TestTheEngineDoesNotBeatTheOptimum(t *testing.T) {
	path := generate(t, 400, 3)
	for _, pages := range []int{20, 60, 200, 5000} {
		best, err := Optimal(t.Context(), Config{Trace: path, Pages: pages}, nil)
		require.NoError(t, err)
		assert.Positive(t, best.Hits)
		for _, policy := range windows.EvictionPolicies() {
			c := config(path, pages)
			c.Policy = policy
			r, err := Atomic(t.Context(), c)
			require.NoError(t, err)
			assert.LessOrEqual(t, r.Hits, best.Hits, "%s with %d pages", policy, pages)
			assert.Equal(t, best.Blocks, r.Blocks)
			assert.Empty(t, r.Problems)
		}
	}
}

// TestPoliciesRepeat: the same replay has the same figures, atomic and timed.
func TestPoliciesRepeat(t *testing.T) {
	for _, policy := range windows.EvictionPolicies() {
		t.Run(policy, func(t *testing.T) { repeats(t, policy) })
	}
}

func repeats(t *testing.T, policy string) {
	c := config(generate(t, 300, 5), 40)
	c.Policy, c.HostPages = policy, 20
	for _, kind := range []func() (*Result, error){
		func() (*Result, error) { r, err := Atomic(t.Context(), c); return r, err },
		func() (*Result, error) { r, err := Timed(t.Context(), c); return r, err },
	} {
		first, err := kind()
		require.NoError(t, err)
		again, err := kind()
		require.NoError(t, err)
		assert.Empty(t, first.Problems)
		assert.Zero(t, first.LeakedPages)
		assert.Positive(t, first.Hits)
		assert.Equal(t, first.Hits, again.Hits)
		assert.Equal(t, first.EvictedPages, again.EvictedPages)
	}
}
