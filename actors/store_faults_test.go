package actors_test

import (
	"context"
	"errors"
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

var onePool = setup{pages: []windows.PageCounts{{Primary: 16, Secondary: 16}}}

// hookedStore is a store in memory that tests make slow, full or wrong. What begins with
// before is called before the memory is, and its error ends the call; read changes the bodies
// that were read. Each is nil where a test needs none.
type hookedStore struct {
	*stores.Memory
	beforePut, beforeHas func(context.Context) error
	beforeGet            func([]stores.Key)
	read                 func(bodies [][]byte)
}

func (s *hookedStore) Put(ctx context.Context, objects []stores.Object) error {
	if s.beforePut != nil {
		if err := s.beforePut(ctx); err != nil {
			return err
		}
	}
	return s.Memory.Put(ctx, objects)
}

func (s *hookedStore) Has(ctx context.Context, keys []stores.Key, found []bool) error {
	if s.beforeHas != nil {
		if err := s.beforeHas(ctx); err != nil {
			return err
		}
	}
	return s.Memory.Has(ctx, keys, found)
}

func (s *hookedStore) Get(ctx context.Context, keys []stores.Key, bodies [][]byte) error {
	if s.beforeGet != nil {
		s.beforeGet(keys)
	}
	err := s.Memory.Get(ctx, keys, bodies)
	if s.read != nil {
		s.read(bodies)
	}
	return err
}

// A store that does not even heed contexts costs the caller of a fetch its own time. Others
// are served meanwhile, and the engine closes.
func TestAStuckStore(t *testing.T) {
	entered, released := make(chan struct{}, 64), make(chan struct{})
	s := &hookedStore{Memory: &stores.Memory{}, beforeGet: func([]stores.Key) {
		entered <- struct{}{}
		<-released
	}}
	first := newRig(t, onePool, withStore(s, actors.SaveOnCommit))
	first.store(run(0, 9))
	flushed(t, first)
	first.close()

	r := newRig(t, onePool, withStore(s, actors.SaveOnCommit))
	ctx, giveUp := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := actors.StoreOf(r.Engine).Fetch(ctx, messages.Prefix{Tokens: run(0, 9)})
		assert.NoError(t, err)
		assert.Equal(t, actors.Fetched{}, f)
	}()
	<-entered
	r.store(run(100, 9)) // others are served
	giveUp()
	<-done // the caller as well, as its time is over
	a, err := r.Admit(context.Background(), messages.AdmitRequest{Tokens: run(0, 9),
		Fetch: time.Millisecond})
	require.NoError(t, err)
	assert.Zero(t, a.ReusedTokens)
	_, err = r.Release(context.Background(),
		[]messages.ReleaseStep{{Sequence: a.Sequence, Discard: true}})
	require.NoError(t, err)
	r.close()
	close(released)
}

// A lookup that asks the store says how many tokens more a fetch would make match, and
// brings nothing.
func TestLookupOfWhatIsStored(t *testing.T) {
	var memory stores.Memory
	first := newRig(t, onePool, withStore(&memory, actors.SaveOnCommit))
	first.store(run(0, 21))
	flushed(t, first)
	first.close()

	r := newRig(t, onePool, withStore(&memory, actors.SaveOnReuse))
	lookup := func(n int) messages.Found {
		t.Helper()
		found, err := actors.StoreOf(r.Engine).Lookup(context.Background(),
			messages.Prefix{Tokens: run(0, n)})
		require.NoError(t, err)
		return found
	}
	r.store(run(0, 8))
	assert.Equal(t, messages.Found{MatchedTokens: 8, PrimaryTokens: 8, StoredTokens: 12}, lookup(21))
	assert.Equal(t, messages.Found{MatchedTokens: 8, PrimaryTokens: 8, StoredTokens: 11}, lookup(20),
		"all but the last")
	memory.Fail(1)
	assert.Equal(t, messages.Found{MatchedTokens: 8, PrimaryTokens: 8}, lookup(21),
		"the store does not answer")
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.Zero(t, stats.Store.FetchedObjects)
	assert.EqualValues(t, 3, stats.Store.Calls)
	counted := int64(0)
	for _, n := range stats.Store.Latency {
		counted += n
	}
	assert.EqualValues(t, 3, counted)
	assert.EqualValues(t, 1, stats.Store.Errors)
	r.close()

	none := newRig(t, onePool)
	_, err = actors.StoreOf(none.Engine).Lookup(context.Background(),
		messages.Prefix{Tokens: run(0, 9)})
	assert.ErrorIs(t, err, messages.ErrNotSupported)
	none.close()
}

// A store that is full loses what was to be saved, and nothing else.
func TestAFullStore(t *testing.T) {
	s := &hookedStore{Memory: &stores.Memory{}, beforePut: func(context.Context) error {
		return errors.New("no space left on device")
	}}
	r := newRig(t, onePool, withStore(s, actors.SaveOnCommit))
	r.store(run(0, 9))
	assert.Zero(t, flushed(t, r))
	stats := actors.StoreOf(r.Engine).Stats()
	assert.EqualValues(t, 2, stats.Dropped)
	assert.EqualValues(t, 1, stats.Errors)
	assert.Equal(t, actors.Fetched{LocalTokens: 8}, fetched(t, r, run(0, 9)))
	r.close()
}

// Objects of another format and rubbish are misses, and counted.
func TestObjectsThatCannotBeRead(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"older": func(b []byte) []byte { b[4]--; return b },
		"cut":   func(b []byte) []byte { return b[:len(b)/2] },
		"noise": func(b []byte) []byte { clear(b); return b },
		"empty": func([]byte) []byte { return []byte{} },
		"twice": func(b []byte) []byte { return append(b, b...) },
		"page":  func(b []byte) []byte { b[len(b)-1]++; return b },
	} {
		t.Run(name, func(t *testing.T) {
			s := &hookedStore{Memory: &stores.Memory{}, read: func(bodies [][]byte) {
				for i := range bodies {
					if bodies[i] != nil {
						bodies[i] = change(bodies[i])
					}
				}
			}}
			first := newRig(t, onePool, withStore(s, actors.SaveOnCommit))
			first.store(run(0, 9))
			flushed(t, first)
			first.close()
			r := newRig(t, onePool, withStore(s, actors.SaveOnReuse))
			assert.Equal(t, actors.Fetched{}, fetched(t, r, run(0, 9)))
			assert.EqualValues(t, 2, actors.StoreOf(r.Engine).Stats().Rejected)
			r.close()
		})
	}
}

// Fetches of the same blocks wait for each other: few of them read a block.
func TestFetchesOfOneBlockAreOne(t *testing.T) {
	var mu sync.Mutex
	reads := map[stores.Key]int{}
	s := &hookedStore{Memory: &stores.Memory{}, beforeGet: func(keys []stores.Key) {
		mu.Lock()
		for _, k := range keys {
			reads[k]++
		}
		mu.Unlock()
		time.Sleep(time.Millisecond) // so that the others ask meanwhile
	}}
	first := newRig(t, onePool, withStore(s, actors.SaveOnCommit))
	first.store(run(0, 21))
	flushed(t, first)
	first.close()
	r := newRig(t, onePool, withStore(s, actors.SaveOnReuse))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, err := actors.StoreOf(r.Engine).Fetch(context.Background(),
				messages.Prefix{Tokens: run(0, 9+4*(i%4))})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Len(t, reads, 5)
	for k, n := range reads {
		assert.Less(t, n, 8, k)
	}
	r.verify()
	r.close()
}

// When the store's actor fails, only the pages that it was given then are lost: blocks that were
// in the tree before are saved at their next use, the new ones behind them as well.
func TestTheStoresActorForgets(t *testing.T) {
	var memory stores.Memory
	r := newRig(t, onePool, withStore(&memory, actors.SaveOnReuse))
	for range 2 {
		r.store(run(0, 21))
	}
	require.Equal(t, 5, flushed(t, r))
	require.NoError(t, r.points.Arm("store"))
	for range 2 {
		r.store(run(0, 33)) // its blocks are offered, and lost
	}
	for saved := 0; saved < 3; {
		r.store(run(0, 33))
		n, err := actors.StoreOf(r.Engine).Flush(context.Background(), 0)
		if err == nil {
			saved += n
		}
	}
	r.verify()
	r.close()

	second := newRig(t, onePool, withStore(&memory, actors.SaveOnReuse))
	assert.Equal(t, actors.Fetched{Blocks: 8, LocalTokens: 32}, fetched(t, second, run(0, 33)))
	second.verify()
	second.close()
}
