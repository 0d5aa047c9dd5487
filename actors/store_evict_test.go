package actors_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// evicting is an engine with SaveHostEvict, and what it has stored.
type evicting struct {
	*rig
	memory stores.Memory
	stored int // whole blocks, over all pools
}

// fill leaves prompts of four blocks, of which no two have a block in common.
func (e *evicting) fill(from, prompts int) {
	for n := range prompts {
		visit(e.t.(*testing.T), e.rig, "", 100*(from+n), 4)
		e.stored += 4 * len(e.layouts)
	}
}

// found is how many pages are in memory, in the store or counted as not saved.
func (e *evicting) found(t *testing.T) int {
	t.Helper()
	flushed(t, e.rig)
	stats, err := e.Stats(context.Background())
	require.NoError(t, err)
	cached := 0
	for i := range stats.Pools {
		cached += stats.Pools[i].Primary.Cached + stats.Pools[i].Secondary.Cached
	}
	return cached + int(stats.Store.SavedObjects+stats.Store.Dropped)
}

// wayOut is how contents leave memory, in a host on an engine.
type wayOut struct {
	setup
	host func(t *testing.T, e *evicting)
}

func waysOut() map[string]wayOut {
	ctx := context.Background()
	one := []windows.PageCounts{{Primary: 8, Secondary: 6}}
	return map[string]wayOut{
		"eviction": {setup{pages: one}, func(_ *testing.T, e *evicting) { e.fill(0, 8) }},
		"no host memory": {setup{pages: []windows.PageCounts{{Primary: 8}}},
			func(_ *testing.T, e *evicting) { e.fill(0, 8) }},
		"resize": {setup{pages: one}, func(t *testing.T, e *evicting) {
			e.fill(0, 3)
			_, err := e.Resize(ctx, []int{3})
			require.NoError(t, err)
		}},
		"rebalance": {
			setup{windows: []int{full, 64}, pages: []windows.PageCounts{{Primary: 16, Secondary: 3},
				{Primary: 16, Secondary: 2}}},
			func(t *testing.T, e *evicting) {
				e.fill(0, 4)
				_, err := e.Rebalance(ctx, map[string]float64{"wfullh1": 0.25, "w64h1": 0.75})
				require.NoError(t, err)
				e.fill(4, 2)
			},
		},
		"quota": {
			setup{pages: one,
				change: func(c *windows.Config) { c.SaltQuotas = map[string]float64{"a": 0.25} }},
			func(t *testing.T, e *evicting) {
				for n := range 3 {
					visit(t, e.rig, "a", 100*n, 4)
					e.stored += 4
				}
				e.fill(3, 3)
			},
		},
		"invalidation": {setup{pages: one}, func(t *testing.T, e *evicting) {
			e.fill(0, 3)
			_, err := e.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(0, 4)}})
			require.NoError(t, err)
			_, err = e.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(200, 4)}})
			require.NoError(t, err)
		}},
		"reset": {setup{pages: one},
			func(t *testing.T, e *evicting) { e.fill(0, 3); require.NoError(t, e.Reset(ctx)) }},
		"weights": {setup{pages: one},
			func(t *testing.T, e *evicting) { e.fill(0, 3); require.NoError(t, e.SetWeights(ctx, "2")) }},
		"blocks stored in part": {setup{pages: one}, func(_ *testing.T, e *evicting) {
			for n := range 6 {
				e.store(run(100*n, 18))
				e.stored += 4
			}
			for n := range 6 {
				_, err := e.Invalidate(ctx, messages.Selector{Prefix: &messages.Prefix{Tokens: run(100*n, 17)}})
				require.NoError(e.t, err)
			}
		}},
		"pages taken over": {setup{pages: one,
			change: func(c *windows.Config) { c.CopyOnPartialReuse = false }},
			func(t *testing.T, e *evicting) {
				e.fill(0, 1)
				e.store(append(run(0, 14), run(500, 6)...)) // writes behind half of the last block
				e.stored += 2
			}},
		"refused copies": {setup{pages: one}, func(_ *testing.T, e *evicting) {
			e.fill(0, 2)
			e.sim.(*sim.Device).Fail(gpu.Offload, 3)
			e.fill(2, 4)
		}},
	}
}

// With SaveHostEvict what leaves memory is saved or counted, whichever way it leaves.
func TestWhatLeavesMemoryIsSavedOrCounted(t *testing.T) {
	for name, c := range waysOut() {
		t.Run(name, func(t *testing.T) {
			e := &evicting{}
			e.rig = newRig(t, c.setup, withStore(&e.memory, actors.SaveHostEvict))
			c.host(t, e)
			assert.Equal(t, e.stored, e.found(t))
			e.verify()
			e.close()
		})
	}
}

// An actor that fails loses no page in silence. What was displaced in the round that failed may
// count twice: the recovery does not know that the store was to have it.
func TestWhatFailuresLoseIsCounted(t *testing.T) {
	for _, actor := range []string{"store", "offloader", "coordinator", "pool:wfullh1"} {
		t.Run(actor, func(t *testing.T) {
			e := &evicting{}
			few := setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 6}}}
			e.rig = newRig(t, few, withStore(&e.memory, actors.SaveHostEvict))
			e.fill(0, 3)
			require.NoError(t, e.points.Arm(actor))
			e.fill(3, 4)
			assert.GreaterOrEqual(t, e.found(t), e.stored)
			assert.LessOrEqual(t, e.found(t), e.stored+6)
			e.close()
		})
	}
}
