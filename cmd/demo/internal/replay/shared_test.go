package replay

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharedTraces is where published traces lie next to a checkout.
const sharedTraces = "../../../../../shared/traces"

// long names the environment variable under which the slow traces, a minute
// together, are replayed too.
const long = "KVACTOR_LONG"

var slow = map[string]bool{"claude_code_agentic_dev": true, "mooncake_conversation_h1": true}

// The hit counts of the real engine are those of the published baselines.
func TestAtomicMatchesTheBaselines(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(sharedTraces, "baselines.json"))
	if err != nil {
		t.Skip("the shared traces are not here: ", err)
	}
	var baselines struct {
		Traces map[string]struct {
			File      string
			LookedUp  int64 `json:"looked_up"`
			Requests  int
			BlockSize int `json:"block_tokens"`
			Hits      map[string]map[string]int64
		}
	}
	require.NoError(t, json.Unmarshal(text, &baselines))
	capacities := map[string][]int{
		"agent_runs_lmcache":       {250, 500, 1250, 2500, 5000, 25075},
		"mooncake_conversation_h1": {500, 10000, 95189},
		"mooncake_synthetic":       {1000, 5000, 43924},
		"claude_code_agentic_dev":  {4096, 32768, 303055},
	}
	for name, list := range capacities {
		if testing.Short() && name != "agent_runs_lmcache" || os.Getenv(long) == "" && slow[name] {
			t.Run(name, func(t *testing.T) { t.Skipf("left out in short runs, and slow traces unless %s is set", long) })
			continue
		}
		baseline := baselines.Traces[name]
		for _, capacity := range list {
			t.Run(name+"/"+strconv.Itoa(capacity), func(t *testing.T) {
				c := config(filepath.Join(sharedTraces, baseline.File), capacity)
				c.Spawn = nil
				result, _, err := Atomic(t.Context(), c)
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
		c.Spawn = nil
		result, _, err := Atomic(t.Context(), c)
		require.NoError(t, err)
		assert.Equal(t, lru(t, path, capacity), result.Hits)
		assert.Empty(t, result.Problems)
	}
	c := config(path, longest+12)
	c.Spawn, c.HostPages = nil, 2*longest
	result, _, err := Serve(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, 200, result.Requests)
	assert.Positive(t, result.OffloadedPages)
	assert.Positive(t, result.OnboardedPages)
	assert.Empty(t, result.Problems)
	assert.Zero(t, result.LeakedPages)
	assert.Zero(t, result.Refused)
}
