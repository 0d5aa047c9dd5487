package hazards

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// A guest runs in an engine over a group as over one device: on every rank all bytes are
// the rank's own, and every access is in order. Ranks have links of different speeds.
func TestAllWaitsOnEveryRank(t *testing.T) {
	for seed, ranks := range []int{2, 4, 8} {
		s := crowded(uint64(seed))
		s.ranks = ranks
		w := newWorld(t, s)
		g := newGuest(w, uint64(seed))
		g.runSteps(lifetime / 2)
		w.right(g.running...)
		g.leaveAll()
		w.right()
		n := w.stats()
		assert.NotZero(t, n.Offloaded)
		assert.NotZero(t, n.Onboarded)
		assert.NotZero(t, n.ReusedPartial)
		w.close()
	}
}

// What an engine decides does not depend on how many devices carry it out.
func TestRanksDecideNothing(t *testing.T) {
	var want inspect.PoolCounters
	for _, ranks := range []int{0, 1, 2, 4, 8} {
		w := newWorld(t,
			setup{windows: []int{maxLen, 12}, pages: windows.PageCounts{Primary: 24, Secondary: 16},
				ranks: ranks, change: withoutAhead})
		for i := range 12 {
			w.leave(text(i%5, 16+i))
		}
		if n := w.stats(); ranks == 0 {
			want = n
			assert.NotZero(t, n.Onboarded)
		} else {
			assert.Equal(t, want, n, "%d ranks", ranks)
		}
		w.right()
		w.close()
	}
}

// A copy that one rank refuses counts as refused on all, whichever rank it is: everything
// goes on, and all bytes are right on all of them.
func TestFailedCopiesOnOneRank(t *testing.T) {
	for _, faults := range [][]fault{failedOffloads, failedOnboards, failedCopies} {
		for _, c := range faults {
			for rank := range 3 {
				t.Run(fmt.Sprintf("%s, rank %d", c.name, rank), func(t *testing.T) {
					s := small(withoutAhead)
					s.ranks = 3
					w := newWorld(t, s)
					for range rank {
						w.sim.Fail(gpu.Local, 0) // the next rank's turn
					}
					c.run(w)
					w.sim.Drain()
					w.leave(text(3, 8)) // the host goes on
					w.right()
					w.close()
				})
			}
		}
	}
}

// A rank that is lost fails the engine, which says which rank it was. Nothing hangs, the
// other ranks end what they had begun, and their memory is given back.
func TestLostRank(t *testing.T) {
	for rank := range 3 {
		s := small(withoutAhead)
		s.ranks = 3
		w := newWorld(t, s)
		w.leave(stored)
		_, _, err := w.start(stored[:6])
		require.NoError(t, err)
		w.group.Sim(rank).Lose()
		w.lost = true
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _, err = w.admit(text(2, 16)) // evicts: rank by rank, until one is lost
		require.NoError(t, err, "the contents of the victims are dropped")
		_, _, err = w.admit(text(2, 17))
		require.ErrorIs(t, err, messages.ErrFailed)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d of 3", rank))
		require.ErrorIs(t, w.Check(ctx), messages.ErrFailed)

		_, err = w.Engine.Close(ctx)
		require.ErrorIs(t, err, gpu.ErrDeviceLost)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d of 3", rank))
		require.NoError(t, ctx.Err(), "something hung")
		for r := range 3 {
			if r == rank {
				continue
			}
			assert.Zero(t, w.group.Sim(r).Pending(), "rank %d", r)
			memory, err := w.group.Sim(r).Memory()
			require.NoError(t, err)
			assert.Equal(t, memory.Total, memory.Free, "rank %d", r)
		}
		require.NoError(t, w.device.Close())
		w.system.Shutdown()
	}
}

// A rank with a stalled link holds up what waits for its pages and nothing else.
func TestStalledRank(t *testing.T) {
	const late = time.Second
	s := small(nil)
	s.ranks = 4
	w := newWorld(t, s)
	w.leave(stored)
	w.right() // all its copies are queued
	w.sim.Drain()
	for lane := range gpu.Stream(4) {
		on, err := w.group.Group().StreamOf(2, lane+1)
		require.NoError(t, err)
		require.NoError(t, w.group.Sim(2).Stall(on, late))
	}
	stuck := 0
	for i := range 6 { // out to host memory, and back again
		q, a, err := w.start(text(2+i%2, 24))
		require.NoError(t, err)
		for _, ticket := range a.Ready {
			w.sim.Advance(time.Millisecond)
			if ticket.Stream <= 4 {
				stuck++
				assert.False(t, w.device.Done(ticket))
			}
		}
		require.NoError(t, w.release(q))
	}
	require.NotZero(t, stuck)
	require.NotZero(t, w.stats().Onboarded)
	assert.Less(t, w.group.Sim(0).Now(), late/2, "another rank waited")
	w.right()
	w.close()
}
