package actors_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// savePages is the number of save pages of the engines below, and of the blocks of each prompt.
const savePages = 4

// savingRig is an engine with so many save pages that one prompt's blocks use all of them.
func savingRig(t *testing.T, s stores.Store, save actors.SavePolicy, secondary int) *rig {
	const page = 64
	pages := windows.PageCounts{Primary: 8, Secondary: secondary}
	if save == actors.SaveHostEvict {
		pages.Primary = savePages
	}
	return newRig(t, setup{
		pages:  []windows.PageCounts{pages},
		memory: []actors.PoolMemory{{Host: make([]byte, (secondary+savePages)*page)}},
	}, withStore(s, save), actors.WithRestartLimit(1000, 1))
}

// served stores a prompt and reuses it, so that its blocks are saved under each policy; with
// SaveHostEvict it is an earlier prompt that is saved. Errors are those of an actor that fails.
func (r *rig) served(prompt int, save actors.SavePolicy) {
	n := savePages * tpb
	if save == actors.SaveOnReuse {
		n++ // the last token is never reused
	}
	for range 2 {
		if s, err := r.start(run(100*prompt, n)); err == nil {
			_ = r.release(s)
		}
	}
}

// allSavePagesAreThere checks that all save pages can be used at once. Nothing is under way.
func (r *rig) allSavePagesAreThere(t *testing.T, save actors.SavePolicy, about string) {
	t.Helper()
	store := actors.StoreOf(r.Engine)
	for prompt := range 4 { // a failed actor has forgotten what blocks are: these are known again
		r.served(50+prompt, save)
		flushed(t, r)
		synctest.Wait()
	}
	dropped := store.Stats().Dropped
	r.served(60, save)
	require.Equal(t, savePages, flushed(t, r), about)
	require.Equal(t, dropped, store.Stats().Dropped, about)
}

// The store's actor may fail at any message and after any part of one: its save pages come
// back, and every Flush is answered.
func TestAFailedStoresActorLosesNoSavePage(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for _, save := range []actors.SavePolicy{actors.SaveOnReuse, actors.SaveOnCommit,
		actors.SaveHostEvict} {
		for parts, hit := 0, true; hit; parts += stride {
			synctest.Test(t, func(t *testing.T) {
				var memory stores.Memory
				r := savingRig(t, &memory, save, savePages)
				require.NoError(t, r.points.ArmWithin("store", parts))
				for prompt := range 3 {
					r.served(prompt, save)
					_, _ = actors.StoreOf(r.Engine).Flush(context.Background(), 0)
				}
				synctest.Wait()
				stats, err := r.Stats(context.Background())
				require.NoError(t, err)
				if hit = stats.Restarts > 0; !hit {
					require.NoError(t, r.points.ArmWithin("store", 1<<20))
				}
				r.allSavePagesAreThere(t, save, fmt.Sprintf("policy %d, after %d parts", save, parts))
				r.verify()
				r.close()
			})
		}
	}
}

// The offloader may fail over the message that gives save pages back, and within a change that
// has taken some.
func TestAFailedOffloaderLosesNoSavePage(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 5
	}
	t.Run("pages that come back", func(t *testing.T) {
		for _, save := range []actors.SavePolicy{actors.SaveOnReuse, actors.SaveOnCommit,
			actors.SaveHostEvict} {
			synctest.Test(t, func(t *testing.T) {
				var r *rig
				var calls atomic.Int64
				s := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(context.Context) error {
					if calls.Add(1) == 1 {
						assert.NoError(t, r.points.Arm("offloader"))
					}
					return nil
				}}
				r = savingRig(t, s, save, savePages)
				for prompt := range 3 {
					r.served(prompt, save)
					synctest.Wait()
				}
				stats, err := r.Stats(context.Background())
				require.NoError(t, err)
				assert.Positive(t, stats.Restarts)
				r.allSavePagesAreThere(t, save, fmt.Sprintf("policy %d", save))
				r.verify()
				r.close()
			})
		}
	})
	t.Run("pages that a change has taken", func(t *testing.T) {
		// An even number ends the round within what is decided, after half as many parts; an odd
		// one before all is submitted.
		for parts := 0; parts < 24; parts += stride {
			synctest.Test(t, func(t *testing.T) {
				var memory stores.Memory
				// With one page of host memory a round displaces what it has just put there.
				r := savingRig(t, &memory, actors.SaveHostEvict, 1)
				r.served(0, actors.SaveHostEvict)
				require.NoError(t, r.points.ArmWithin("offloader", parts))
				r.served(1, actors.SaveHostEvict)
				synctest.Wait()
				r.allSavePagesAreThere(t, actors.SaveHostEvict, fmt.Sprintf("after %d parts", parts))
				r.verify()
				r.close()
			})
		}
	})
}
