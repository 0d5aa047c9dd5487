package actors_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// Engines whose longest sequences differ share objects.
func TestTheLongestLengthIsNoPartOfKeys(t *testing.T) {
	var memory stores.Memory
	first := newRig(t, onePool, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 9))
	assert.Equal(t, 2, flushed(t, first))
	first.close()

	longer := onePool
	longer.windows = []int{2 * full}
	longer.model = func(m *windows.Model) { m.MaxSeqLen = 2 * full }
	second := newRig(t, longer, withStore(&memory, actors.SaveOnCommit))
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 8}, fetched(t, second, run(0, 9)))
	second.close()
}

// recordingStore remembers what was put.
type recordingStore struct {
	stores.Memory
	objects []stores.Object
}

func (s *recordingStore) Put(ctx context.Context, objects []stores.Object) error {
	for _, o := range objects {
		s.objects = append(s.objects, stores.Object{Key: o.Key, Body: bytes.Clone(o.Body)})
	}
	return s.Memory.Put(ctx, objects)
}

// An object that cannot be used is a miss, is not read again, and is replaced by the next save
// of its block, whatever the policy.
func TestUnusableObjectsAreReplaced(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"older":   func(b []byte) []byte { b[4]--; return b },
		"foreign": func(b []byte) []byte { b[8]++; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"tiny":    func(b []byte) []byte { return b[:1] },
		"noise":   func(b []byte) []byte { clear(b); return b },
		"page":    func(b []byte) []byte { b[len(b)-1]++; return b },
	} {
		for _, policy := range []actors.SavePolicy{actors.SaveOnCommit, actors.SaveOnReuse} {
			t.Run(name, func(t *testing.T) { replacesUnusable(t, change, policy) })
		}
	}
}

func replacesUnusable(t *testing.T, change func([]byte) []byte, policy actors.SavePolicy) {
	var s recordingStore
	first := newRig(t, onePool, withStore(&s, actors.SaveOnCommit))
	first.store(run(0, 9))
	require.Equal(t, 2, flushed(t, first))
	first.close()
	damaged := s.objects
	s.objects = nil
	for i := range damaged {
		damaged[i].Body = change(damaged[i].Body)
	}
	require.NoError(t, s.Memory.Put(t.Context(), damaged))

	second := newRig(t, onePool, withStore(&s, policy))
	stats := actors.StoreOf(second.Engine).Stats
	for range 3 {
		assert.Equal(t, actors.Fetched{}, fetched(t, second, run(0, 9)))
	}
	assert.EqualValues(t, 2, stats().Rejected, "they are read once")
	for range 4 {
		second.store(run(0, 9))
	}
	assert.Equal(t, 2, flushed(t, second))
	assert.EqualValues(t, 2, stats().Replaced)
	assert.EqualValues(t, 2, stats().SavedObjects)
	second.close()

	third := newRig(t, onePool, withStore(&s, actors.SaveOnCommit))
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 8}, fetched(t, third, run(0, 9)))
	assert.Zero(t, actors.StoreOf(third.Engine).Stats().Rejected)
	third.verify()
	third.close()
}

// An engine that only saves reads what the store has already once, and replaces what cannot be
// used.
func TestAnEngineThatOnlySavesReplacesUnusableObjects(t *testing.T) {
	var s recordingStore
	first := newRig(t, onePool, withStore(&s, actors.SaveOnCommit))
	first.store(run(0, 13))
	require.Equal(t, 3, flushed(t, first))
	first.close()
	cut, noise := s.objects[0], s.objects[1]
	cut.Body = cut.Body[:len(cut.Body)/2]
	noise.Body[len(noise.Body)-1]++
	require.NoError(t, s.Memory.Put(t.Context(), []stores.Object{cut, noise}))

	reads := 0
	counted := &hookedStore{Memory: &s.Memory, beforeGet: func([]stores.Key) { reads++ }}
	c := actors.StoreConfig{
		Store: counted, Model: "m", Save: actors.SaveOnCommit, WaitForCopies: true, BreakerFailures: -1,
		WriteOnly: true,
	}
	second := newRig(t, setup{}, actors.WithStore(c))
	stats := actors.StoreOf(second.Engine).Stats
	second.store(run(0, 13))
	assert.Equal(t, 2, flushed(t, second))
	assert.EqualValues(t, 2, stats().Rejected)
	assert.EqualValues(t, 2, stats().Replaced)
	assert.Equal(t, 1, reads)
	// Evicted, computed and stored once more.
	second.store(run(500, 32))
	second.store(run(0, 13))
	assert.Equal(t, 8, flushed(t, second), "those of the other prompt")
	assert.Equal(t, 1, reads, "the three objects are known")
	second.close()

	third := newRig(t, onePool, withStore(&s, actors.SaveOnCommit))
	assert.Equal(t, actors.Fetched{Blocks: 3, LocalTokens: 12}, fetched(t, third, run(0, 13)))
	third.verify()
	third.close()
}

// While a store hangs, only the calls that open the breaker cost a request its time. Probes run
// beside the requests, at growing distances, and the first that is answered ends it.
func TestAHangingStoreIsProbedBesideTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		s := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(ctx context.Context) error {
			if !hangs.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		r := newRig(t, onePool, actors.WithStore(actors.StoreConfig{
			Store: s, Model: "m", Save: actors.SaveOnCommit, Timeout: 5 * time.Second,
			BreakerFailures: 2, BreakerPause: time.Second,
		}))
		admit := func(n int) time.Duration {
			start := time.Now()
			ask := messages.AdmitRequest{Tokens: run(n, 9), Fetch: 3 * time.Second}
			a, err := r.Admit(context.Background(), ask)
			require.NoError(t, err)
			_, err = r.Release(context.Background(), []messages.ReleaseStep{{Sequence: a.Sequence}})
			require.NoError(t, err)
			return time.Since(start)
		}
		stats := actors.StoreOf(r.Engine).Stats
		assert.Zero(t, admit(0))
		hangs.Store(true)
		assert.Equal(t, 3*time.Second, admit(100), "the time of the admission")
		assert.Equal(t, 3*time.Second, admit(200))
		before := stats()
		assert.True(t, before.BreakerOpen)
		for i := range 60 {
			time.Sleep(2 * time.Second)
			assert.Zero(t, admit(300+10*i))
		}
		// Probes begin 1, 2, 4 … seconds after the end of the one before, and take 5.
		assert.EqualValues(t, 6, stats().Calls-before.Calls, "after 1, 8, 17, 30, 51, 88 s")
		hangs.Store(false)
		time.Sleep(32 * time.Second)
		assert.False(t, stats().BreakerOpen)
		assert.Zero(t, admit(9000))
		assert.EqualValues(t, 1, stats().BreakerOpened)
		r.close()
	})
}

// With SaveHostEvict contents that leave the device and never come to host memory are counted as
// not saved.
func TestContentsThatHostMemoryNeverHad(t *testing.T) {
	for name, host := range map[string]int{"below the priority of host memory": 8,
		"no host memory": 0} {
		t.Run(name, func(t *testing.T) {
			var memory stores.Memory
			few := setup{pages: []windows.PageCounts{{Primary: 4, Secondary: host}}}
			few.change = func(c *windows.Config) { c.SecondaryOffloadMinPriority = 50 }
			r := newRig(t, few, withStore(&memory, actors.SaveHostEvict))
			for n := range 3 {
				r.store(run(100*n, 16))
			}
			assert.Zero(t, flushed(t, r))
			assert.EqualValues(t, 8, actors.StoreOf(r.Engine).Stats().Dropped)
			r.close()
		})
	}
}

// A memory split without host memory is refused beside a store, by name, unless the engine only
// saves.
func TestAStoreNeedsHostMemory(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	require.NoError(t, err)
	config := actors.Config{
		Model: windows.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 4, DType: windows.Float16, MaxSeqLen: full,
		},
		Cache: windows.DefaultConfig(), Device: device,
	}
	config.Cache.HostCacheSize = 0
	store := actors.StoreConfig{Store: &stores.Memory{}, Model: "m", Save: actors.SaveOnCommit}
	root := actors.NewSystem(nil).Root
	_, err = actors.Spawn(root, config, actors.WithStore(store))
	assert.ErrorIs(t, err, messages.ErrConfigInvalid)
	assert.ErrorContains(t, err, "pool wfullh1 has no host pages")
	assert.ErrorContains(t, err, "host_cache_size")

	store.WriteOnly = true
	e, err := actors.Spawn(root, config, actors.WithStore(store))
	require.NoError(t, err)
	a, err := e.Admit(t.Context(), messages.AdmitRequest{Tokens: run(0, 100)})
	require.NoError(t, err)
	_, err = e.Commit(t.Context(), []messages.CommitStep{{Sequence: a.Sequence, Computed: 100}})
	require.NoError(t, err)
	saved, err := actors.StoreOf(e).Flush(t.Context(), a.Sequence)
	require.NoError(t, err)
	assert.Equal(t, 100/config.Cache.TokensPerBlock, saved)
	fetched, err := actors.StoreOf(e).Fetch(t.Context(), messages.Prefix{Tokens: run(500, 100)})
	require.NoError(t, err)
	assert.Zero(t, fetched)
	_, err = e.Close(t.Context())
	require.NoError(t, err)
	require.NoError(t, device.Close())
}
