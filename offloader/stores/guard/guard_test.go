package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hookedStore is a store in memory whose calls ask has first, if it is there.
type hookedStore struct {
	stores.Memory
	has func(context.Context) error
}

func (s *hookedStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	if s.has != nil {
		if err := s.has(ctx); err != nil {
			return err
		}
	}
	return s.Memory.Has(ctx, keys, found)
}

// guarded guards a store with pages of 8 bytes.
func guarded(t *testing.T, c Config) *Store {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c.Log = slog.New(slog.DiscardHandler)
	c.Geometry = stores.Geometry{Model: "m", Pools: []messages.PoolInfo{{PageBytes: 8}}}
	return New(ctx, c)
}

var keys = []stores.Key{{1}, {2}}

// The breaker opens after failures one after the other, and calls fail at once then. Probes go on
// with growing pauses until one is answered.
func TestTheBreakerClosesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := errors.New("down")
		var down atomic.Bool
		down.Store(true)
		var mu sync.Mutex
		var calls []float64 // seconds
		start := time.Now()
		s := guarded(t, Config{
			Store: &hookedStore{has: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if calls = append(calls, time.Since(start).Seconds()); down.Load() {
					return failing
				}
				return nil
			}}, Timeout: time.Second, BreakerFailures: 2, BreakerPause: time.Second,
		})
		ask := func() error {
			_, err := s.Has(t.Context(), keys)
			return err
		}
		require.ErrorIs(t, ask(), failing)
		assert.False(t, s.Refuses())
		require.ErrorIs(t, ask(), failing)
		assert.True(t, s.Refuses())
		require.ErrorIs(t, ask(), errBreaker)
		time.Sleep(100 * time.Second)
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, []float64{0, 0, 1, 3, 7, 15, 31, 63, 95}, calls)
		mu.Unlock()
		down.Store(false)
		time.Sleep(32 * time.Second)
		synctest.Wait()
		assert.False(t, s.Refuses())
		require.NoError(t, ask())
		assert.EqualValues(t, 1, s.Stats().BreakerOpened)
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, calls, 11, "no probe while the breaker is closed")
	})
}

// A breaker that is closed by a call and opens again has one probe under way, not two.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := guarded(t, Config{
			Store: &hookedStore{has: func(context.Context) error {
				calls.Add(1)
				return errors.New("down")
			}}, Timeout: time.Second, BreakerFailures: 1, BreakerPause: time.Second,
		})
		for range 8 {
			_, err := s.Has(t.Context(), keys)
			require.Error(t, err)
			s.ended(0, nil) // of a call that began before
		}
		_, err := s.Has(t.Context(), keys)
		require.Error(t, err)
		calls.Store(0)
		time.Sleep(8 * time.Second)
		assert.EqualValues(t, 3, calls.Load(), "after 1, 3 and 7 s")
	})
}

// A call that does not heed its context is left behind with its time, and no more than maxStuck of
// them are out. That many say nothing of the store.
func TestCallsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, out := make(chan struct{}), atomic.Int64{}
		s := guarded(t, Config{Store: &hookedStore{has: func(context.Context) error {
			out.Add(1)
			<-hangs
			return nil
		}}, Timeout: time.Second, BreakerFailures: -1})
		for range maxStuck {
			_, err := s.Has(t.Context(), keys)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		_, err := s.Has(t.Context(), keys)
		require.ErrorIs(t, err, errStuck)
		assert.EqualValues(t, maxStuck, out.Load())
		assert.EqualValues(t, maxStuck, s.Stats().Calls)
		close(hangs)
		synctest.Wait()
		_, err = s.Has(t.Context(), keys)
		require.NoError(t, err)
	})
}

// An object that is not what was asked for is not there from then on, until another one is put in
// its place.
func TestWrongObjects(t *testing.T) {
	memory := &stores.Memory{}
	s := guarded(t, Config{Store: memory, Timeout: time.Second, WriteOnly: true})
	space, done := s.Space(messages.Namespace{})
	defer done()
	block := stores.Block{Parent: space.Root(), Tokens: []messages.Token{1}}
	key := space.Next(space.Root(), block.Tokens, nil).Key(0)
	page := []byte("contents")
	good := space.Encode(nil, block, page)
	bad := append([]byte{}, good...)
	bad[len(bad)-1]++
	ctx := t.Context()
	require.NoError(t, memory.Put(ctx, []stores.Object{{Key: key, Body: bad}}))
	found, err := s.Has(ctx, []stores.Key{key})
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, found)
	bodies, err := s.Get(ctx, []stores.Key{key})
	require.NoError(t, err)
	assert.Nil(t, s.Open(space, key, block, bodies[0]))
	assert.EqualValues(t, 1, s.Stats().Rejected)
	found, err = s.Has(ctx, []stores.Key{key})
	require.NoError(t, err)
	assert.Equal(t, []bool{false}, found)
	assert.False(t, s.Usable(key))

	require.NoError(t, s.Put(ctx, []stores.Object{{Key: key, Body: good}}))
	assert.EqualValues(t, 1, s.Stats().Replaced)
	assert.True(t, s.Usable(key), "it was written by this engine")
	found, err = s.Has(ctx, []stores.Key{key})
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, found)
	bodies, err = s.Get(ctx, []stores.Key{key})
	require.NoError(t, err)
	assert.Equal(t, page, s.Open(space, key, block, bodies[0]))
	// The store has forgotten it, whatever it says.
	assert.Nil(t, s.Open(space, key, block, nil))
	assert.False(t, s.Usable(key))
	assert.EqualValues(t, 1, s.Stats().Rejected)
}

// Claims are all or none, and who finds one is told of its end.
func TestClaims(t *testing.T) {
	s := guarded(t, Config{Store: &stores.Memory{}})
	done, wait := s.Claim(keys[:1])
	require.Nil(t, wait)
	none, wait := s.Claim(keys)
	assert.Nil(t, none)
	other, free := s.Claim(keys[1:])
	require.Nil(t, free, "the second claim has marked nothing")
	other()
	select {
	case <-wait:
		t.Error("the claim has not ended")
	default:
	}
	done()
	<-wait
	done, wait = s.Claim(keys)
	require.Nil(t, wait)
	done()
}
