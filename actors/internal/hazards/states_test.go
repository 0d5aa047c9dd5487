package hazards

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// frequent makes checkpoints at every second block too, besides branches and ends of prompts.
func frequent(c *windows.Config) { c.StateCheckpointInterval = 2 * tpb }

// hybrid is crowded with recurrent layers, whose pool is short in both tiers too: the
// guest's sequences hold more than half of its device pages.
func hybrid(seed uint64, options ...actors.Option) setup {
	s := crowded(seed, options...)
	s.states, s.change = windows.PageCounts{Primary: 12, Secondary: 8}, frequent
	return s
}

// onlyStates is hybrid with so many pages of keys and values that none is evicted or
// copied but by forks. The checker reports two operations once, for the first page that
// both touch; here that page is one of states.
func onlyStates(seed uint64, options ...actors.Option) setup {
	s := hybrid(seed, options...)
	s.windows, s.pages = nil, windows.PageCounts{Primary: 4096}
	s.change = func(c *windows.Config) {
		frequent(c)
		c.EnablePartialReuse = false
	}
	return s
}

// With states everything is in order, too.
func TestAllWaitsWithStates(t *testing.T) {
	for name, hosts := range map[string]func(uint64, ...actors.Option) setup{"hybrid": hybrid,
		"only states": onlyStates} {
		t.Run(name, func(t *testing.T) {
			var all inspect.PoolCounters
			for seed := range uint64(seeds / 2) {
				problems, _, did := runHostIn(t, hosts(seed), seed)
				require.Empty(t, problems, "seed %d", seed)
				all.Offloaded += did.Offloaded
				all.ReusedPartial += did.ReusedPartial
				all.Checkpoints += did.Checkpoints
			}
			// The workload does what it is for.
			assert.NotZero(t, all.Offloaded)
			assert.NotZero(t, all.ReusedPartial)
			assert.NotZero(t, all.Checkpoints)
			t.Logf("checkpoints %d, copied %d, offloaded %d", all.Checkpoints, all.ReusedPartial,
				all.Offloaded)
		})
	}
}

// elsewhere are waits that are not found so. No kernel only reads a page of states. A
// kernel that is under way may be followed by another one's write on another stream, so
// who writes then waits for all that touch the page, whatever the wait is called; see
// TestAKernelWaitsForTheCheckpointOfItsPage.
var elsewhere = []string{"read waits for writer", "write waits for readers"}

// Each other wait that is left out is seen on a page of states.
func TestEveryWaitIsNeededByStates(t *testing.T) {
	for _, name := range offloader.WaitNames() {
		if slices.Contains(elsewhere, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				problems, _, _ := runHostIn(t, onlyStates(seed, enginetest.WithoutWait(name)), seed)
				for _, p := range problems {
					if strings.HasPrefix(p, "pool state ") && strings.Contains(p, "nothing orders") {
						t.Logf("seed %d: %s", seed, p)
						return
					}
				}
			}
			t.Error("the checker saw nothing")
		})
	}
}

// When a host has seen a kernel pass before it commits, the copy to the checkpoint is all
// that touches the working page, and the next kernel waits for this reader.
func TestAKernelWaitsForTheCheckpointOfItsPage(t *testing.T) {
	for _, skip := range []string{"", "write waits for readers"} {
		w := newWorld(t, setup{
			pages: windows.PageCounts{Primary: 8}, states: windows.PageCounts{Primary: 2},
			change:  withoutAhead,
			options: []actors.Option{enginetest.WithoutWait(skip)},
		})
		q, _, err := w.admit(text(1, 6))
		require.NoError(t, err)
		require.NoError(t, w.launch(q, 4))
		w.rest()
		q.last = messages.Ticket{} // the past
		require.NoError(t, w.commit(q, 4))
		require.NoError(t, w.compute(q, 6))
		if problems := w.wrong(q); skip == "" {
			assert.Empty(t, problems)
		} else {
			require.NotEmpty(t, problems)
			assert.Contains(t, problems[0], "pool state ")
		}
		w.discard(q)
		w.close()
	}
}
