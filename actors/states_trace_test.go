package actors_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// statesTrace reads the prompts of a trace, with tpb tokens for each of its blocks; the test is
// skipped where there is none.
func statesTrace(t *testing.T, name string) (prompts [][]messages.Token, arrivals []time.Duration) {
	const tpb = 4
	file, err := os.Open(filepath.Join("..", "..", "shared", "traces", name+".jsonl.gz"))
	if os.IsNotExist(err) {
		t.Skip("no traces here")
	}
	require.NoError(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	for lines := json.NewDecoder(plain); lines.More(); {
		var r struct {
			Timestamp float64 `json:"timestamp"`
			IDs       []int   `json:"hash_ids"`
		}
		require.NoError(t, lines.Decode(&r))
		var prompt []messages.Token
		for _, id := range r.IDs {
			prompt = append(prompt, run(tpb*id, tpb)...)
		}
		prompts, arrivals = append(prompts, prompt), append(arrivals,
			time.Duration(r.Timestamp)*time.Millisecond)
	}
	return prompts, arrivals
}

// TestStatesOnATrace replays traces on a model with recurrent layers, one request at a time: with
// the policy forecast checkpoints in small pools save about twice as many tokens as with
// priority_lru.
//
// With -short and with the invariants, under which a request takes a hundred times as long, it
// replays the first requests and compares nothing.
func TestStatesOnATrace(t *testing.T) {
	whole, attention := !testing.Short() && !invariants.Enabled, 200_000 // room for all
	for _, c := range []struct {
		trace string
		pages int
		gain  float64
	}{{"mooncake_conversation_h1", 500, 0.1}, {"mooncake_synthetic", 200, 0.15}} {
		t.Run(c.trace, func(t *testing.T) {
			prompts, arrivals := statesTrace(t, c.trace)
			if !whole {
				prompts, attention, c.pages = prompts[:60], 3_000, c.pages/10
			}
			replay := func(policy string) float64 {
				now := time.Duration(0)
				e := hybridEngine(t, policy, attention, c.pages, func() time.Duration { return now })
				tokens, reused := 0, 0
				for i, prompt := range prompts {
					now = arrivals[i]
					tokens += len(prompt)
					reused += serveAtOnce(t, e, prompt)
				}
				leaked, err := e.Close(t.Context())
				require.NoError(t, err)
				assert.Zero(t, leaked)
				return float64(reused) / float64(tokens)
			}
			lru, forecast := replay(windows.PriorityLRU), replay(windows.Forecast)
			t.Logf("%d checkpoints: LRU %.4f, forecast %.4f", c.pages, lru, forecast)
			if whole {
				assert.Greater(t, forecast, lru+c.gain)
			}
		})
	}
}

// hybridEngine has one layer of attention and one with a state, with so many pages each.
func hybridEngine(
	t *testing.T, policy string, attention, states int, clock func() time.Duration,
) *actors.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 30, Poison: sim.PoisonOff})
	require.NoError(t, err)
	s := setup{
		windows: []int{full, full}, pages: []windows.PageCounts{{Primary: attention}, {Primary: states}},
		model: func(m *windows.Model) {
			m.KVHeads, m.States = []int{1, 0}, []windows.State{{Layers: []int{1}, Bytes: 64}}
			m.MaxSeqLen = 1 << 12
		},
		change: func(c *windows.Config) {
			c.EvictionPolicy, c.MaxAttentionWindow = policy, []int{1 << 12}
		},
	}
	system := newSystem()
	e, err := actors.Spawn(system.Root, s.config(device), actors.WithClock(clock))
	require.NoError(t, err)
	t.Cleanup(func() {
		shutdown(system)
		require.NoError(t, device.Close())
	})
	return e
}

// serveAtOnce admits a prompt, computes it up to each of its checkpoints and its end, and releases
// it.
func serveAtOnce(t *testing.T, e *actors.Engine, prompt []messages.Token) (reused int) {
	return serveTurn(t, e, prompt).ReusedTokens
}

// serveTurn is serveAtOnce, and returns the admission.
func serveTurn(t *testing.T, e *actors.Engine, prompt []messages.Token) messages.Admitted {
	a, err := e.Admit(t.Context(), messages.AdmitRequest{Tokens: prompt})
	require.NoError(t, err)
	for _, end := range append(a.Checkpoints, len(prompt)) {
		steps, err := e.Commit(t.Context(), []messages.CommitStep{{Sequence: a.Sequence, Computed: end}})
		require.NoError(t, err)
		require.NoError(t, steps[0].Err)
	}
	_, err = e.Release(t.Context(), []messages.ReleaseStep{{Sequence: a.Sequence}})
	require.NoError(t, err)
	return a
}
