package hazards

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// crowded has two limited windows and full attention, in memory that is short
// in both tiers.
func crowded(seed uint64, options ...actors.Option) setup {
	return setup{
		windows: []int{maxLen, 12, 24}, pages: windows.PageCounts{Primary: 40, Secondary: 24}, streams: 3,
		seed: int64(seed), options: options,
	}
}

const (
	seeds    = 8   // of guests
	lifetime = 400 // things that a guest does
)

// runHost runs a guest in a crowded world and returns all that was wrong.
func runHost(
	t *testing.T, seed uint64, options ...actors.Option,
) (problems []string, hazards int, did inspect.PoolCounters) {
	return runHostIn(t, crowded(seed, options...), seed)
}

// runHostIn runs a guest in a world of its own.
func runHostIn(
	t *testing.T, s setup, seed uint64,
) (problems []string, hazards int, did inspect.PoolCounters) {
	w := newWorld(t, s)
	g := newGuest(w, seed)
	g.runSteps(lifetime)
	problems = w.wrong(g.running...)
	g.leaveAll()
	problems = append(problems, w.wrong()...)
	require.NoError(t, w.Check(t.Context()))
	hazards, did = w.device.Count(), w.stats()
	w.close()
	return problems, hazards, did
}

func TestAllWaits(t *testing.T) {
	var all inspect.PoolCounters
	for seed := range uint64(seeds) {
		problems, _, did := runHost(t, seed)
		require.Empty(t, problems, "seed %d", seed)
		all.Offloaded += did.Offloaded
		all.Onboarded += did.Onboarded
		all.ReusedPartial += did.ReusedPartial
		all.Dropped += did.Dropped
		all.AheadPages += did.AheadPages
	}
	// The workload does what it is for.
	assert.NotZero(t, all.Offloaded)
	assert.NotZero(t, all.Onboarded)
	assert.NotZero(t, all.ReusedPartial)
	assert.NotZero(t, all.Dropped)
	t.Logf("offloaded %d, ahead %d, onboarded %d, in part %d, dropped %d", all.Offloaded,
		all.AheadPages, all.Onboarded, all.ReusedPartial, all.Dropped)
}

// Each wait that is left out is seen, whichever the schedule of the device.
func TestEveryWaitIsNeeded(t *testing.T) {
	for _, name := range offloader.WaitNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total := 0
			for seed := range uint64(seeds) {
				problems, hazards, _ := runHost(t, seed, enginetest.WithoutWait(name))
				total += hazards
				if total > 0 {
					t.Logf("%d from seed %d on, the first: %s", hazards, seed, problems[0])
					break
				}
			}
			assert.NotZero(t, total, "the checker saw nothing")
		})
	}
}
