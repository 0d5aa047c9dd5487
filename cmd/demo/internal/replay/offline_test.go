package replay

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/windows"
)

// TestOptimalBaselines: the policy on paper that knows the trace hits exactly what the
// published baselines say of the optimum.
func TestOptimalBaselines(t *testing.T) {
	all := published(t)
	for _, name := range []string{"mooncake_conversation_h1", "mooncake_synthetic"} {
		trace := all[name]
		for _, pages := range trace.capacities(t) {
			r, err := Paper(t.Context(), Config{Trace: filepath.Join(sharedTraces, trace.File), Policy: Optimal, Pages: pages})
			require.NoError(t, err)
			assert.Equal(t, trace.Hits[Optimal][strconv.Itoa(pages)], r.Hits, "%s with %d blocks", name, pages)
		}
	}
}

// TestNoPolicyBeatsTheOptimum, nor does any hit more than there is room for.
func TestNoPolicyBeatsTheOptimum(t *testing.T) {
	path := generate(t, 400, 3)
	for _, pages := range []int{20, 60, 200, 5000} {
		best, err := Paper(t.Context(), Config{Trace: path, Policy: Optimal, Pages: pages})
		require.NoError(t, err)
		assert.Positive(t, best.Hits)
		for _, name := range OfflineNames() {
			r, err := Paper(t.Context(), Config{Trace: path, Policy: name, Pages: pages})
			require.NoError(t, err)
			assert.LessOrEqual(t, r.Hits, best.Hits, "%s with %d pages", name, pages)
			assert.Equal(t, best.Blocks, r.Blocks)
			if pages == 5000 {
				assert.Equal(t, best.Hits, r.Hits, "%s with room for everything", name)
			}
		}
		for _, policy := range []string{windows.PriorityLRU, windows.Forecast} {
			c := config(path, pages)
			c.Policy = policy
			r, _, err := Atomic(t.Context(), c)
			require.NoError(t, err)
			assert.LessOrEqual(t, r.Hits, best.Hits, "%s with %d pages", policy, pages)
			assert.Empty(t, r.Problems)
		}
	}
}

// TestForecastRepeats: the same replay has the same figures, atomic and served.
func TestForecastRepeats(t *testing.T) {
	c := config(generate(t, 300, 5), 40)
	c.Policy, c.HostPages = windows.Forecast, 20
	for _, kind := range []func() (*Result, error){
		func() (*Result, error) { r, _, err := Atomic(t.Context(), c); return r, err },
		func() (*Result, error) { r, _, err := Serve(t.Context(), c); return r, err },
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
