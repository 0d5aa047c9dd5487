package actors_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// The times of pages are those of the engine's clock, and a rebalance ends what was known.
func TestPageTimes(t *testing.T) {
	var mu sync.Mutex
	var now time.Duration
	var times []inspect.PageTime
	at := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = d
	}
	taken := func() map[inspect.PageTimeKind][]time.Duration {
		mu.Lock()
		defer mu.Unlock()
		list := map[inspect.PageTimeKind][]time.Duration{}
		for _, x := range times {
			list[x.Kind] = append(list[x.Kind], x.Duration)
		}
		times = nil
		return list
	}
	clock := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}}, actors.WithClock(clock),
		actors.WithPageObserver(1, func(x inspect.PageTime) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, x)
		}))
	defer r.close()
	at(time.Second)
	r.store(run(0, 9)) // two blocks, and one stored in part
	assert.Empty(t, taken())
	at(3 * time.Second)
	s, err := r.start(run(0, 9))
	require.NoError(t, err)
	assert.Equal(t,
		map[inspect.PageTimeKind][]time.Duration{inspect.PageReuseGap: {2 * time.Second,
			2 * time.Second}}, taken())
	at(4 * time.Second)
	require.NoError(t, r.release(s))
	at(10 * time.Second)
	r.store(run(100, 15)) // evicts all of it
	evicted := taken()
	assert.Empty(t, evicted[inspect.PageReuseGap])
	assert.ElementsMatch(t, []time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second},
		evicted[inspect.PageLifetime])
	assert.ElementsMatch(t, []time.Duration{6 * time.Second, 6 * time.Second, 9 * time.Second},
		evicted[inspect.PageIdle])

	_, err = r.Resize(context.Background(), []int{6})
	require.NoError(t, err)
	at(20 * time.Second)
	r.store(run(200, 23))
	assert.Empty(t, taken(), "what was known before the pages moved is forgotten")

	_, err = actors.Spawn(newSystem().Root, (&setup{}).config(r.device),
		actors.WithPageObserver(0, func(inspect.PageTime) {}))
	require.ErrorIs(t, err, messages.ErrConfigInvalid)
}

// Of many pages some are followed.
func TestPageTimesOfSomePages(t *testing.T) {
	var mu sync.Mutex
	n := 0
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 16}}},
		actors.WithPageObserver(8, func(inspect.PageTime) {
			mu.Lock()
			defer mu.Unlock()
			n++
		}))
	defer r.close()
	r.store(run(0, 64))
	r.store(run(100, 64))
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 2*2, n, "lifetime and idle time of pages 0 and 8")
}
