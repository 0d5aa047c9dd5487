package hazards

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/windows"
)

// observation is what a host can see of a run, except when bytes moved.
type observation struct {
	answers  []string
	stats    inspect.Stats
	events   []kvevents.Event
	contents []protocol.Content
	waiting  inspect.PoolCounters // counters that copies ahead may change, over all pools
}

// observe runs one guest with offload_ahead set so.
func observe(t *testing.T, s setup, seed uint64, ahead bool) (o observation) {
	s.change = func(c *windows.Config) { c.OffloadAhead = ahead }
	w := newWorld(t, s)
	g := newGuest(w, seed)
	ctx := context.Background()
	g.runSteps(lifetime)
	require.Empty(t, w.wrong(g.running...))
	g.leaveAll()
	var err error
	o.answers = g.answers
	o.stats, err = w.Stats(ctx)
	require.NoError(t, err)
	batch, err := w.Events(ctx)
	require.NoError(t, err)
	o.events = batch.Events
	o.contents, err = w.Contents(ctx)
	require.NoError(t, err)
	for i := range o.contents {
		for p, at := range o.contents[i].Pages {
			if _, tier, ok := at.Page(); ok && tier == messages.Secondary {
				o.contents[i].Pages[p] = protocol.OnHost(0) // the number of the host page is not compared
			}
		}
	}
	o.stats.Memory.AheadBytes = 0
	for i := range o.stats.Pools {
		p := &o.stats.Pools[i].PoolCounters
		o.waiting.BytesOffloaded += p.BytesOffloaded
		o.waiting.WaitingTakes += p.WaitingTakes
		o.waiting.AheadPages += p.AheadPages
		p.BytesOffloaded, p.WaitingTakes, p.AheadPages = 0, 0, 0
	}
	w.close()
	return o
}

// Offloading ahead of demand decides nothing: whoever is served gets the same
// pages, finds the same contents, and reads the same of it in events and
// counters. Only fewer pages wait.
func TestAheadDecidesNothing(t *testing.T) {
	seeds := uint64(6)
	if testing.Short() {
		seeds = 3
	}
	for name, pages := range map[string]windows.PageCounts{
		"short": {Primary: 40, Secondary: 24}, "room in host memory": {Primary: 40, Secondary: 200},
		"narrow": {Primary: 30, Secondary: 6},
	} {
		t.Run(name, func(t *testing.T) {
			saved := int64(0)
			for seed := range seeds {
				s := crowded(seed)
				s.pages = pages
				with, without := observe(t, s, seed, true), observe(t, s, seed, false)
				require.Equal(t, without.answers, with.answers, "seed %d", seed)
				require.Equal(t, without.stats, with.stats, "seed %d", seed)
				require.Equal(t, without.events, with.events, "seed %d", seed)
				require.Equal(t, without.contents, with.contents, "seed %d", seed)
				assert.Zero(t, without.waiting.AheadPages)
				assert.LessOrEqual(t, with.waiting.WaitingTakes, without.waiting.WaitingTakes, "seed %d", seed)
				saved += without.waiting.WaitingTakes - with.waiting.WaitingTakes
			}
			assert.NotZero(t, saved)
		})
	}
}

// A page may cache the beginning of a block while a sequence still writes the
// rest: no copy ahead of demand reads it then.
func TestNothingIsCopiedAheadThatMayBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{pages: windows.PageCounts{Primary: 6, Secondary: 16}, streams: 2})
		q, _, err := w.start(text(1, 7))
		require.NoError(t, err)
		require.NoError(t, w.append(q, 50))
		child, err := w.fork(q)
		require.NoError(t, err)
		// three tokens of its last block are stored on a page that q holds
		require.NoError(t, w.release(child))
		w.rest()
		w.leave(text(2, 4)) // a look ahead comes, with little else to look at
		synctest.Wait()     // the engine copies ahead when it is idle
		require.NotZero(t, w.stats().AheadPages)
		q.stream = 1 // the other has waited for copies
		require.NoError(t, w.launch(q, 8))
		w.ends(q)
		w.close()
	})
}
