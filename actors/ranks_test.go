package actors_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// A store keeps the shares of all ranks: another engine over as many devices finds them,
// and each rank gets its own back. Engines over other numbers of devices find nothing.
func TestAStoreOfAGroup(t *testing.T) {
	for _, save := range []actors.SavePolicy{actors.SaveOnCommit, actors.SaveHostEvict} {
		var memory stores.Memory
		s := setup{ranks: 3, windows: []int{full, 8},
			pages: []windows.PageCounts{{Primary: 6, Secondary: 3}, {Primary: 6, Secondary: 3}}}
		first := newRig(t, s, withStore(&memory, save))
		first.store(run(0, 21))
		first.store(run(1000, 21)) // displaces the first text from the device
		first.store(run(2000, 21)) // and from host memory
		assert.Positive(t, flushed(t, first))
		first.close()

		second := newRig(t, s, withStore(&memory, actors.SaveOnReuse))
		f := fetched(t, second, run(0, 21))
		assert.Positive(t, f.Blocks)
		second.verify()
		a, err := second.start(run(0, 21))
		require.NoError(t, err)
		second.verify(a)
		assert.Zero(t, actors.StoreOf(second.Engine).Stats().Rejected)
		require.NoError(t, second.release(a))
		second.close()

		for _, ranks := range []int{0, 2} {
			s.ranks = ranks
			other := newRig(t, s, withStore(&memory, actors.SaveOnReuse))
			assert.Zero(t, fetched(t, other, run(0, 21)).Blocks, "%d ranks", ranks)
			other.close()
		}
	}
}

// Latent attention, 4-bit elements with their scales and side bytes are in pages like
// others: each rank has its own bytes of them. Recurrent states over groups are in bench/sim.
func TestPoolsOfEveryKindOverAGroup(t *testing.T) {
	kinds := map[string]func(*windows.Model){
		"latent": func(m *windows.Model) { m.KVFactor = 1 },
		"nvfp4":  func(m *windows.Model) { m.DType, m.HeadDim = windows.NVFP4, 16 },
		"side":   func(m *windows.Model) { m.SideBytes = 12 },
	}
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			s := setup{ranks: 2, windows: []int{full, 8}, model: change,
				pages: []windows.PageCounts{{Primary: 6, Secondary: 8}, {Primary: 6, Secondary: 8}}}
			r := newRig(t, s)
			for i := range 6 {
				r.store(run(1000*(i%2), 21))
				r.verify()
			}
			stats, err := r.Stats(t.Context())
			require.NoError(t, err)
			var onboarded int64
			for _, p := range stats.Pools {
				onboarded += p.Onboarded
			}
			assert.Positive(t, onboarded)
			r.close()
		})
	}
}

// Memory of the host is that of all ranks, and is refused when it is too small for them.
func TestMemoryOfTheHostOverAGroup(t *testing.T) {
	s := setup{ranks: 2, pages: []windows.PageCounts{{Primary: 4, Secondary: 4}}}
	config := s.config(check.Wrap(simulate(t, 2), check.Options{}))
	pools, err := windows.Pools(config.Model, config.Cache)
	require.NoError(t, err)
	page := pools[0].PageBytes()

	s.memory = []actors.PoolMemory{{Host: make([]byte, 2*4*page)}}
	r := newRig(t, s)
	r.store(run(0, 15))
	r.store(run(1000, 15))
	r.verify()
	var used [2]bool
	for i, b := range s.memory[0].Host {
		used[i/int(4*page)] = used[i/int(4*page)] || b != 0
	}
	assert.Equal(t, [2]bool{true, true}, used, "both halves hold pages")
	r.close()

	system := newSystem()
	defer system.Shutdown()
	for want, memory := range map[string]actors.PoolMemory{
		"bytes of host memory for pages": {Host: make([]byte, 4*page)},
		"which has 64, on rank 1": {Tensors: []gpu.Tensor{{Address: 1 << 20, PageBytes: page,
			Stride: page}}},
	} {
		config.Memory = []actors.PoolMemory{memory}
		_, err := actors.Spawn(system.Root, config)
		require.ErrorIs(t, err, messages.ErrConfigInvalid)
		require.ErrorContains(t, err, want)
	}
}
