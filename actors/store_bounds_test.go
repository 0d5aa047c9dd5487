package actors_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// askedStore notes how many objects each call asks about.
type askedStore struct {
	stores.Memory
	mu    sync.Mutex
	asked []int
}

func (s *askedStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	s.mu.Lock()
	s.asked = append(s.asked, len(keys))
	s.mu.Unlock()
	return s.Memory.Has(ctx, keys, found)
}

// The store is asked about twice as many blocks with each call, never block by block, and about
// no more once a block is missing.
func TestAFetchAsksInGrowingBatches(t *testing.T) {
	s := &askedStore{}
	shape := setup{
		pages: []windows.PageCounts{{Primary: 160, Secondary: 160}}, windows: []int{1024},
		model: func(m *windows.Model) { m.MaxSeqLen = 1024 },
	}
	first := newRig(t, shape, withStore(&s.Memory, actors.SaveOnCommit))
	first.store(run(0, 150*tpb))
	assert.Equal(t, 150, flushed(t, first))
	first.close()

	second := newRig(t, shape, withStore(s, actors.SaveOnReuse))
	assert.Equal(t, actors.Fetched{}, fetched(t, second, run(5000, 150*tpb)))
	assert.Equal(t, []int{16}, s.asked, "a prefix that the store does not have")
	s.asked = nil
	assert.Equal(t, 150, fetched(t, second, run(0, 150*tpb)).Blocks)
	assert.Equal(t, []int{16, 32, 64, 38}, s.asked)
	second.verify()
	second.close()
}

// An admission waits for the store as long as it says and no longer, and no one else waits. The
// clock is that of the test.
func TestAnAdmissionWaitsForTheStoreAsLongAsItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangs := context.Background(), make(chan struct{})
		var memory stores.Memory
		s := &hookedStore{Memory: &memory, beforeHas: func(ctx context.Context) error {
			select {
			case <-hangs:
			case <-ctx.Done():
			}
			return ctx.Err()
		}}
		first := newRig(t, onePool, withStore(&memory, actors.SaveOnCommit))
		first.store(run(0, 9))
		flushed(t, first)
		first.close()

		r := newRig(t, onePool,
			actors.WithStore(actors.StoreConfig{Store: s, Model: "m", BreakerFailures: -1,
				Timeout: time.Hour}))
		admit := func(tokens []messages.Token, fetch time.Duration) (waited time.Duration, reused int) {
			start := time.Now()
			a, err := r.Admit(ctx, messages.AdmitRequest{Tokens: tokens, Fetch: fetch})
			require.NoError(t, err)
			waited = time.Since(start)
			_, err = r.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
			require.NoError(t, err)
			return waited, a.ReusedTokens
		}
		var waits sync.WaitGroup
		waits.Go(func() {
			waited, reused := admit(run(0, 9), 3*time.Second)
			assert.Equal(t, 3*time.Second, waited)
			assert.Zero(t, reused)
		})
		synctest.Wait() // the admission waits
		waited, _ := admit(run(100, 9), 0)
		assert.Zero(t, waited, "others are served, and without Fetch the store is not asked")
		waits.Wait()

		waits.Go(func() {
			waited, reused := admit(run(0, 9), time.Minute)
			assert.Equal(t, time.Second, waited, "it goes on when the store answers")
			assert.Equal(t, 8, reused)
		})
		time.Sleep(time.Second)
		close(hangs)
		waits.Wait()
		r.close()
	})
}

// No more than Concurrency batches are at the store at a time; a Flush waits for all of them, or
// for its context.
func TestTheStoreIsGivenAFewBatchesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangs := context.Background(), make(chan struct{})
		var now, most atomic.Int64
		s := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(context.Context) error {
			for n := now.Add(1); n > most.Load(); {
				most.Store(n)
			}
			<-hangs
			now.Add(-1)
			return nil
		}}
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 64, Secondary: 8}}},
			actors.WithStore(actors.StoreConfig{
				Store: s, Model: "m", Save: actors.SaveOnCommit, Concurrency: 3, BreakerFailures: -1,
				Timeout: time.Hour,
			}))
		for i := range 6 {
			r.store(run(100*i, 8))
			synctest.Wait()
		}
		assert.EqualValues(t, 3, most.Load())
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := actors.StoreOf(r.Engine).Flush(short, 0)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		q, err := r.start(run(900, 8))
		require.NoError(t, err)
		answered := make(chan int)
		go func() {
			n, err := actors.StoreOf(r.Engine).Flush(ctx, q.id)
			assert.NoError(t, err)
			answered <- n
		}()
		synctest.Wait()
		select {
		case <-answered:
			t.Error("a flush was answered before the pages of its sequence were stored")
		default:
		}
		close(hangs)
		assert.Equal(t, 14, <-answered)
		assert.LessOrEqual(t, most.Load(), int64(3))
		_, err = actors.StoreOf(r.Engine).Flush(ctx, 12345)
		assert.ErrorIs(t, err, messages.ErrUnknownSequence)
		require.NoError(t, r.release(q))
		r.close()
	})
}

// hangingStore answers no question before it is released.
func hangingStore() (s *hookedStore, release func()) {
	hangs := make(chan struct{})
	return &hookedStore{Memory: &stores.Memory{}, beforeHas: func(context.Context) error {
		<-hangs
		return nil
	}}, func() { close(hangs) }
}

// newHangingRig opens an engine whose store answers no question before it is released, and stores
// two blocks that it then waits to save.
func newHangingRig(
	t *testing.T, list ...actors.Option,
) (r *rig, s *hookedStore, release func()) {
	s, release = hangingStore()
	r = newRig(t, onePool, append(list, actors.WithStore(actors.StoreConfig{
		Store: s, Model: "m", Save: actors.SaveOnCommit, BreakerFailures: -1, Timeout: time.Hour,
	}))...)
	r.store(run(0, 9))
	r.awaitKernels()
	return r, s, release
}

// A Flush that was accepted ends when the store has the pages, although the engine is full then: it
// is answered before the two calls that fill the engine, and takes the place of neither.
func TestAFlushEndsInAFullEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := hangingStore()
		r := busyRig(t, actors.WithStore(actors.StoreConfig{
			Store: s, Model: "m", Save: actors.SaveOnCommit, BreakerFailures: -1, Timeout: time.Hour,
		}), actors.WithMaxInFlight(2), actors.WithBusyRefusal())
		flush := later(func() error {
			n, err := actors.StoreOf(r.Engine).Flush(context.Background(), 0)
			assert.Equal(t, 4, n)
			return err
		})
		synctest.Wait()
		stall, first := r.work()
		second := later(func() error { return r.lookup(context.Background()) })
		time.Sleep(time.Second)
		assert.Empty(t, flush, "the store has not answered yet")
		release()
		time.Sleep(time.Second)
		require.Len(t, flush, 1)
		assert.NoError(t, <-flush)
		assert.Empty(t, first)
		assert.Empty(t, second)
		close(stall.released)
		assert.NoError(t, <-first)
		assert.NoError(t, <-second)
		r.close()
	})
}

// Close serves a Flush that was accepted before.
func TestCloseServesAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		r, s, release := newHangingRig(t)
		var calls sync.WaitGroup
		calls.Go(func() {
			_, err := actors.StoreOf(r.Engine).Flush(ctx, 0)
			assert.NoError(t, err)
		})
		synctest.Wait()
		calls.Go(func() {
			_, err := r.Close(ctx)
			assert.NoError(t, err)
		})
		time.Sleep(time.Second)
		release()
		calls.Wait()
		n, _ := s.Memory.Len()
		assert.Equal(t, 2, n)
		r.ended()
	})
}

// A Flush ends with an engine that fails, though the store does not answer.
func TestAFlushEndsWithItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		r, _, release := newHangingRig(t, actors.WithRestartLimit(0, time.Minute))
		flush := later(func() error {
			_, err := actors.StoreOf(r.Engine).Flush(ctx, 0)
			return err
		})
		synctest.Wait()
		require.NoError(t, r.points.Arm("tree"))
		assert.ErrorIs(t, r.lookup(ctx), messages.ErrFailed)
		assert.ErrorIs(t, <-flush, messages.ErrFailed)
		release()
		_, err := r.Close(ctx)
		assert.NoError(t, err)
		r.ended()
	})
}

// Close waits for what is to be saved no longer than its context says, also when the store does
// not heed contexts.
func TestCloseWaitsForTheStoreAsLongAsItsContextSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		s := &hookedStore{Memory: &stores.Memory{}, beforeHas: func(context.Context) error {
			<-hangs
			return nil
		}}
		r := newRig(t, onePool, actors.WithStore(actors.StoreConfig{
			Store: s, Model: "m", Save: actors.SaveOnCommit, BreakerFailures: -1, Timeout: time.Hour,
		}))
		r.store(run(0, 9))
		r.awaitKernels()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_, _ = r.Close(ctx)
		assert.Less(t, time.Since(start), time.Minute)
		_, err := r.Close(context.Background())
		assert.NoError(t, err)
		r.ended()
		close(hangs)
	})
}
