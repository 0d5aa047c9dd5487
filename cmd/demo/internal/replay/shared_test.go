package replay

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedTraces is where published traces lie next to a checkout.
const sharedTraces = "../../../../../shared/traces"

// long names the environment variable under which traces are replayed at every
// capacity that is published, some minutes together, and not at three.
const long = "KVACTOR_LONG"

// baselines are the published hit counts of a trace.
type baselines struct {
	File      string
	LookedUp  int64                       `json:"looked_up"`
	BlockSize int                         `json:"block_tokens"`
	Hits      map[string]map[string]int64 // by policy and capacity
}

// published reads the baselines of all traces, by name. Only where no one has put
// them the test is skipped.
func published(t *testing.T) map[string]baselines {
	text, err := os.ReadFile(filepath.Join(sharedTraces, "baselines.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the shared traces are not here: ", err)
	}
	require.NoError(t, err)
	var all struct{ Traces map[string]baselines }
	require.NoError(t, json.Unmarshal(text, &all))
	return all.Traces
}

// capacities are those that are replayed: the least, the most and one between.
func (b *baselines) capacities(t *testing.T) []int {
	var all []int
	for text := range b.Hits["lru"] {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		all = append(all, n)
	}
	require.GreaterOrEqual(t, len(all), 3)
	slices.Sort(all)
	if os.Getenv(long) != "" {
		return all
	}
	return []int{all[0], all[len(all)/2], all[len(all)-1]}
}

// The hit counts of the real engine are those of the published baselines.
func TestAtomicMatchesTheBaselines(t *testing.T) {
	all := published(t)
	require.NotEmpty(t, all)
	for name, baseline := range all {
		if testing.Short() && name != "agent_runs_lmcache" {
			t.Run(name, func(t *testing.T) { t.Skip("left out in short runs") })
			continue
		}
		for _, capacity := range baseline.capacities(t) {
			t.Run(name+"/"+strconv.Itoa(capacity), func(t *testing.T) {
				t.Parallel()
				c := config(filepath.Join(sharedTraces, baseline.File), capacity)
				result, err := Atomic(t.Context(), c)
				require.NoError(t, err)
				assert.Equal(t, baseline.Hits["lru"][strconv.Itoa(capacity)], result.Hits)
				assert.Equal(t, baseline.LookedUp, result.Blocks)
				assert.Equal(t, baseline.BlockSize, result.TokensPerBlock)
				assert.Empty(t, result.Problems)
				assert.Zero(t, result.Refused)
			})
		}
	}
}

// The real engine, served and atomic, with host memory and in other blocks.
func TestRealEngine(t *testing.T) {
	path := generate(t, 200, 11)
	longest, _ := shape(t, path)
	for _, capacity := range []int{longest / 2, longest, 3 * longest} {
		c := config(path, capacity)
		result, err := Atomic(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, lru(t, path, capacity), result.Hits)
		assert.Empty(t, result.Problems)
	}
	c := config(path, longest+12)
	c.HostPages = 2 * longest
	result, err := Timed(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 200, result.Requests)
	assert.Positive(t, result.OffloadedPages)
	assert.Positive(t, result.OnboardedPages)
	assert.Empty(t, result.Problems)
	assert.Zero(t, result.LeakedPages)
	assert.Zero(t, result.Refused)
}
