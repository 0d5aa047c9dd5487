package actors_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// withStore attaches an engine to a store, so that what is saved does not depend on time.
func withStore(s stores.Store, save actors.SavePolicy) actors.Option {
	return actors.WithStore(actors.StoreConfig{Store: s, Model: "m", Save: save, WaitForCopies: true,
		BreakerFailures: -1})
}

func flushed(t *testing.T, r *rig) int {
	t.Helper()
	n, err := actors.StoreOf(r.Engine).Flush(context.Background(), 0)
	require.NoError(t, err)
	return n
}

func fetched(t *testing.T, r *rig, tokens []messages.Token) actors.Fetched {
	t.Helper()
	f, err := actors.StoreOf(r.Engine).Fetch(context.Background(), messages.Prefix{Tokens: tokens})
	require.NoError(t, err)
	return f
}

// A second engine on a store finds what the first has computed, in all pools, and every
// byte is right.
func TestAStoreOutlivesItsEngine(t *testing.T) {
	var memory stores.Memory
	s := setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 16, Secondary: 8},
		{Primary: 16, Secondary: 8}}}
	first := newRig(t, s, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 21))
	assert.Equal(t, 10, flushed(t, first), "five whole blocks in two pools")
	assert.Zero(t, flushed(t, first), "nothing has been saved since")
	first.close()

	second := newRig(t, s, withStore(&memory, actors.SaveOnReuse))
	assert.Equal(t, actors.Fetched{Blocks: 5, LocalTokens: 20}, fetched(t, second, run(0, 21)))
	second.verify()
	assert.Equal(t, actors.Fetched{LocalTokens: 20}, fetched(t, second, run(0, 21)), "it is there")
	a, err := second.start(run(0, 21))
	require.NoError(t, err)
	second.verify(a)
	stats := actors.StoreOf(second.Engine).Stats()
	assert.EqualValues(t, 7, stats.FetchedObjects, "five blocks of full attention, two of the window")
	assert.Zero(t, stats.Rejected)
	require.NoError(t, second.release(a))
	second.close()
}

// Host memory of the application has the pages on their way to a store beyond the secondary
// ones: as many as fit, and no engine without one.
func TestAStoreOnHostMemoryOfTheHost(t *testing.T) {
	const page, secondary = 64, 8
	// With one save page the five pages of a prompt wait for it, one after the other.
	for _, c := range []struct{ beyond, ranks int }{{20, 0}, {20, 2}, {1, 0}} {
		var memory stores.Memory
		given := func(beyond int) setup {
			bytes := make([]byte, max(1, c.ranks)*(secondary+beyond)*page)
			return setup{
				ranks: c.ranks, pages: []windows.PageCounts{{Primary: 16, Secondary: secondary}},
				memory: []actors.PoolMemory{{Host: bytes}},
			}
		}
		first := newRig(t, given(c.beyond), withStore(&memory, actors.SaveOnCommit))
		first.store(run(0, 20)) // one commit: five pages ask for room at once
		assert.Equal(t, 5, flushed(t, first))
		assert.Zero(t, actors.StoreOf(first.Engine).Stats().Dropped)
		first.verify()
		first.close()

		second := newRig(t, given(1), withStore(&memory, actors.SaveOnReuse))
		assert.Equal(t, actors.Fetched{Blocks: 5, LocalTokens: 5 * tpb}, fetched(t, second, run(0, 21)))
		second.verify()
		second.close()
	}
	system := newSystem()
	defer shutdown(system)
	s := setup{pages: []windows.PageCounts{{Primary: 16, Secondary: secondary}},
		memory: []actors.PoolMemory{{Host: make([]byte, secondary*page)}}}
	_, err := actors.Spawn(system.Root, s.config(simulate(t, 0)),
		withStore(&stores.Memory{}, actors.SaveOnCommit))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
	require.ErrorContains(t, err,
		"the host memory of pool wfullh1 is the application's, and beyond 8 secondary pages it has no room")
}

// Pages of so many bytes are encoded, decoded and written to host memory on several
// goroutines. One of them is damaged in the store: the match ends before it.
func TestAStoreHasLargePages(t *testing.T) {
	var memory stores.Memory
	s := setup{
		pages: []windows.PageCounts{{Primary: 12, Secondary: 12}},
		model: func(m *windows.Model) { m.HeadDim *= 1 << 14 },
	}
	first := newRig(t, s, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 40))
	assert.Equal(t, 10, flushed(t, first))
	_, size := memory.Len()
	require.Greater(t, size, int64(4<<20), "enough for several goroutines")
	first.close()

	second := newRig(t, s, withStore(&memory, actors.SaveOnReuse))
	assert.Equal(t, actors.Fetched{Blocks: 10, LocalTokens: 40}, fetched(t, second, run(0, 41)))
	second.verify()
	second.close()

	damaged := &hookedStore{Memory: &memory, read: func(bodies [][]byte) {
		if len(bodies) > 6 {
			b := bodies[6]
			b[len(b)-1] ^= 1
		}
	}}
	third := newRig(t, s, withStore(damaged, actors.SaveOnReuse))
	assert.Equal(t, actors.Fetched{Blocks: 6, LocalTokens: 24}, fetched(t, third, run(0, 41)))
	stats := actors.StoreOf(third.Engine).Stats()
	assert.EqualValues(t, 1, stats.Rejected)
	assert.EqualValues(t, 9, stats.FetchedObjects)
	third.verify()
	third.close()
}

// An engine without a store, and one with another model, find nothing.
func TestAStoreOfAnotherModel(t *testing.T) {
	var memory stores.Memory
	s := setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 8}}}
	first := newRig(t, s, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 9))
	flushed(t, first)
	first.close()

	other := newRig(t, s, actors.WithStore(actors.StoreConfig{Store: &memory, Model: "n"}))
	assert.Equal(t, actors.Fetched{}, fetched(t, other, run(0, 9)))
	other.close()
	none := newRig(t, s)
	_, err := actors.StoreOf(none.Engine).Fetch(context.Background(),
		messages.Prefix{Tokens: run(0, 9)})
	assert.ErrorIs(t, err, messages.ErrNotSupported)
	_, err = actors.StoreOf(none.Engine).Flush(context.Background(), 0)
	assert.ErrorIs(t, err, messages.ErrNotSupported)
	assert.Zero(t, actors.StoreOf(none.Engine).Stats())
	none.close()
}

// What host memory displaces is saved, also what the same request has evicted from the
// device.
func TestSaveOfDisplacedContents(t *testing.T) {
	var memory stores.Memory
	s := setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 1}}}
	first := newRig(t, s, withStore(&memory, actors.SaveHostEvict))
	first.store(run(0, 16))
	assert.Zero(t, flushed(t, first))
	first.store(run(100, 16))
	assert.Equal(t, 3, flushed(t, first), "four blocks go to one host page")
	first.close()

	s.pages[0].Secondary = 4
	second := newRig(t, s, withStore(&memory, actors.SaveOnReuse))
	fetched(t, second, run(0, 16))
	second.verify()
	second.close()
}

// A fetch for a model with recurrent layers brings the checkpoint at its end, without which
// nothing could be matched, and is no longer than one that has it.
func TestAStoreHasCheckpoints(t *testing.T) {
	var memory stores.Memory
	s := setup{
		pages: []windows.PageCounts{{Primary: 8, Secondary: 8}, {Primary: 4, Secondary: 4}},
		model: func(m *windows.Model) {
			m.KVHeads = append(slices.Repeat(m.KVHeads[:1], m.Layers), 0)
			m.States = []windows.State{{Layers: []int{m.Layers}, Bytes: 32}}
			m.Layers++
		},
	}
	first := newRig(t, s, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 8)) // the release makes the working page the checkpoint
	assert.Equal(t, 3, flushed(t, first), "two blocks and one checkpoint")
	first.close()

	second := newRig(t, s, withStore(&memory, actors.SaveOnCommit))
	assert.Equal(t, actors.Fetched{}, fetched(t, second, run(0, 7)),
		"the first block has no checkpoint")
	assert.Equal(t, actors.Fetched{Blocks: 2, LocalTokens: 8}, fetched(t, second, run(0, 10)))
	second.close()
}

// What a store has not taken is saved when a prompt reuses it the next time.
func TestASaveThatFailedIsTriedAgain(t *testing.T) {
	var memory stores.Memory
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 8}}},
		withStore(&memory, actors.SaveOnReuse))
	r.store(run(0, 9))
	memory.Fail(1)
	r.store(run(0, 9))
	assert.Zero(t, flushed(t, r), "the store has failed")
	r.store(run(0, 9))
	assert.Equal(t, 2, flushed(t, r))
	r.store(run(0, 9))
	assert.Zero(t, flushed(t, r), "it has them")
	r.close()
}

// badStore fails, forgets, and returns wrong bodies by chance.
type badStore struct {
	stores.Memory
	mu  sync.Mutex
	rnd *rand.Rand
	old [][]byte // bodies of other objects
}

var errBad = errors.New("bad store")

func (s *badStore) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *badStore) Put(ctx context.Context, objects []stores.Object) error {
	if s.draw(8) == 0 {
		return errBad
	}
	s.mu.Lock()
	for _, o := range objects {
		s.old = append(s.old, bytes.Clone(o.Body))
	}
	s.mu.Unlock()
	return s.Memory.Put(ctx, objects)
}

func (s *badStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	if s.draw(8) == 0 {
		return errBad
	}
	err := s.Memory.Has(ctx, keys, found)
	if len(found) > 0 && s.draw(4) == 0 {
		found[s.draw(len(found))] = s.draw(2) == 0
	}
	return err
}

func (s *badStore) Get(ctx context.Context, keys []stores.Key, bodies [][]byte) error {
	if s.draw(8) == 0 {
		return errBad
	}
	err := s.Memory.Get(ctx, keys, bodies)
	for i, b := range bodies {
		switch s.draw(10) {
		case 0:
			bodies[i] = nil
		case 1:
			if len(b) > 0 {
				b[s.draw(len(b))] ^= 1 << s.draw(8)
			}
		case 2:
			bodies[i] = b[:s.draw(len(b)+1)]
		case 3:
			s.mu.Lock()
			if len(s.old) > 0 {
				bodies[i] = bytes.Clone(s.old[s.rnd.IntN(len(s.old))])
			}
			s.mu.Unlock()
		}
	}
	return err
}

// A store that fails, lies, forgets and duplicates costs hits. Whatever it returns, no
// byte is wrong, and no request fails with it.
func TestABadStore(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 100
	}
	var got int64
	for _, save := range []actors.SavePolicy{actors.SaveOnReuse, actors.SaveOnCommit,
		actors.SaveHostEvict} {
		bad := &badStore{rnd: rand.New(rand.NewPCG(uint64(save), 1))}
		s := setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 12, Secondary: 6},
			{Primary: 12, Secondary: 6}}}
		rnd := rand.New(rand.NewPCG(uint64(save), 2))
		for range 4 {
			r := newRig(t, s, withStore(bad, save))
			for range steps / 4 {
				tokens := run(100*rnd.IntN(4), 5+rnd.IntN(20))
				switch rnd.IntN(3) {
				case 0:
					fetched(t, r, tokens)
				case 1:
					r.store(tokens)
				default:
					_, err := r.Prefetch(context.Background(), messages.Prefix{Tokens: tokens})
					require.NoError(t, err)
				}
				if rnd.IntN(8) == 0 {
					r.awaitKernels()
					r.verify()
				}
			}
			r.awaitKernels()
			r.verify()
			got += actors.StoreOf(r.Engine).Stats().FetchedObjects
			r.close()
		}
	}
	// Of all policies together: what the store draws depends on the order of its calls.
	assert.Positive(t, got, "pages that came from the store")
}

// A store that hangs costs an admission that asks for it its own time, and the breaker
// opens.
func TestAHangingStore(t *testing.T) {
	s := setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 8}}}
	hanging := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	r := newRig(t, s, actors.WithStore(actors.StoreConfig{
		Store: hanging, Model: "m", BreakerFailures: 2, BreakerPause: time.Hour,
	}))
	admit := func() {
		a, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 9),
			Fetch: time.Millisecond})
		require.NoError(t, err)
		assert.Zero(t, a.ReusedTokens)
		_, err = r.Release(context.Background(),
			[]messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
		require.NoError(t, err)
	}
	stats := actors.StoreOf(r.Engine).Stats
	// On a busy machine the time of an admission may be over before the store is asked.
	for !stats().BreakerOpen {
		admit()
	}
	before := stats().Calls
	assert.EqualValues(t, 2, before)
	admit()
	assert.Equal(t, before, stats().Calls, "it is not asked any more")
	r.close()
}
