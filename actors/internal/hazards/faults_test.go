package hazards

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// small is one pool of six device pages and as many in host memory.
func small(change func(*windows.Config)) setup {
	return setup{pages: windows.PageCounts{Primary: 6, Secondary: 6}, change: change}
}

// withoutAhead offloads only when a page is needed, so that a fault hits that.
func withoutAhead(c *windows.Config) { c.OffloadAhead = false }

// leave stores a text and releases it.
func (w *world) leave(tokens []messages.Token) {
	w.t.Helper()
	q, _, err := w.start(tokens)
	require.NoError(w.t, err)
	require.NoError(w.t, w.release(q))
}

// ends holds sequences to their bytes, then releases them.
func (w *world) ends(list ...*sequence) {
	w.t.Helper()
	w.right(list...)
	for _, q := range list {
		require.NoError(w.t, w.release(q))
	}
}

// stored is six blocks of a text, of which each case evicts what it needs.
var stored = text(1, 24)

// fault is one copy that the device refuses, and what the engine makes of it.
type fault struct {
	name string
	run  func(w *world)
}

// failedOffloads are copies to host memory.
var failedOffloads = []fault{
	{"offload: the contents are dropped and the page is usable", func(w *world) {
		w.leave(stored)
		w.sim.Fail(gpu.Offload, 1)
		q, _, err := w.start(text(2, 12))
		require.NoError(w.t, err)
		n := w.stats()
		assert.EqualValues(w.t, 3, n.Evicted)
		assert.EqualValues(w.t, 2, n.Offloaded)
		assert.EqualValues(w.t, 1, n.Dropped)
		w.ends(q)
	}},
	{"every offload", func(w *world) {
		w.leave(stored)
		w.sim.Fail(gpu.Offload, 3)
		w.leave(text(2, 12))
		assert.EqualValues(w.t, 3, w.stats().Dropped)
	}},
}

// failedOnboards are copies from host memory, whole pages.
var failedOnboards = []fault{
	{"onboard: the prompt is reused up to what failed", func(w *world) {
		w.leave(stored[:16])
		w.leave(text(2, 24))
		w.sim.Fail(gpu.Onboard, 1)
		q, a, err := w.start(stored[:17])
		require.NoError(w.t, err)
		assert.Zero(w.t, a.ReusedTokens, "the first block failed")
		w.ends(q)
	}},
	{"onboard in the middle of a batch: the others are served", func(w *world) {
		w.leave(stored[:8])
		w.leave(text(3, 8))
		w.leave(text(2, 24))
		w.sim.Fail(gpu.Onboard, 1)
		requests := []messages.AdmitRequest{{Tokens: stored[:9]}, {Tokens: text(3, 9)}}
		results, err := w.AdmitBatch(context.Background(), requests)
		require.NoError(w.t, err)
		var list []*sequence
		for i, reused := range []int{0, 8} {
			require.NoError(w.t, results[i].Err)
			assert.Equal(w.t, reused, results[i].ReusedTokens)
			list = append(list, admitted(requests[i], &results[i]))
			require.NoError(w.t, w.compute(list[i], 9))
		}
		w.ends(list...)
	}},
	{"prefetch: refused, and what is left can be reused", func(w *world) {
		w.leave(stored[:16])
		w.leave(text(2, 24))
		w.sim.Fail(gpu.Onboard, 1)
		_, err := w.Prefetch(context.Background(), messages.Prefix{Tokens: stored[:16]})
		assert.ErrorIs(w.t, err, messages.ErrInternal)
		q, _, err := w.start(stored[:17])
		require.NoError(w.t, err)
		w.ends(q)
	}},
}

// failedCopies are copies of a part of a page, and copies on write.
var failedCopies = []fault{
	{"partial copy from the device: without it", func(w *world) {
		w.leave(stored[:8])
		w.sim.Fail(gpu.Local, 1)
		q, a, err := w.start(append(append([]messages.Token(nil), stored[:6]...), 99))
		require.NoError(w.t, err)
		assert.Equal(w.t, 4, a.ReusedTokens)
		w.ends(q)
	}},
	{"partial copy from host memory: without it", func(w *world) {
		w.leave(stored[:8])
		w.leave(text(2, 24))
		prompt := append(append([]messages.Token(nil), stored[:6]...), 99)
		found, err := w.Lookup(context.Background(), messages.Prefix{Tokens: prompt})
		require.NoError(w.t, err)
		require.Equal(w.t, 6, found.SecondaryTokens)
		w.sim.Fail(gpu.Onboard, 2) // the whole block, and what is tried then
		q, a, err := w.start(prompt)
		require.NoError(w.t, err)
		assert.Less(w.t, a.ReusedTokens, 6)
		w.ends(q)
	}},
	{"copy on write: the sequence is as it was and goes on", func(w *world) {
		q, _, err := w.start(stored[:6])
		require.NoError(w.t, err)
		child, err := w.fork(q)
		require.NoError(w.t, err)
		before, err := w.TablesOf(context.Background(), child.id)
		require.NoError(w.t, err)
		w.sim.Fail(gpu.Local, 1)
		require.ErrorIs(w.t, w.append(child, 50), messages.ErrInternal)
		after, err := w.TablesOf(context.Background(), child.id)
		require.NoError(w.t, err)
		assert.Equal(w.t, before, after)
		w.right(q, child)
		require.NoError(w.t, w.append(child, 50))
		require.NoError(w.t, w.append(child, 51))
		require.NoError(w.t, w.compute(child, 7))
		w.ends(q, child)
	}},
}

// The copies of a step that did succeed read the pages that its sequence goes
// back to when another of them fails: the refusal says what to wait for.
func TestARefusedStepSaysWhatToWaitFor(t *testing.T) {
	w := newWorld(t, setup{windows: []int{maxLen, 8}, pages: windows.PageCounts{Primary: 6},
		change: withoutAhead})
	q, _, err := w.start(text(1, 3))
	require.NoError(t, err)
	require.NoError(t, w.append(q, 50))
	child, err := w.fork(q)
	require.NoError(t, err)
	require.NoError(t, w.release(child)) // three tokens are stored on a page that q holds
	require.NoError(t, w.launch(q, 4))
	require.NoError(t, w.sim.Stall(1, time.Second))
	w.sim.Fail(gpu.Local, 1) // in one of the two pools
	step := messages.AppendStep{Sequence: q.id, Tokens: []messages.Token{51}, Computed: 4,
		After: q.last}
	results, err := w.Append(context.Background(), []messages.AppendStep{step})
	require.NoError(t, err)
	require.ErrorIs(t, results[0].Err, messages.ErrInternal)
	require.NotEmpty(t, results[0].Ready)
	q.ready = results[0].Ready
	require.NoError(t, w.launch(q, 4)) // the same once more
	step.After = q.last
	results, err = w.Append(context.Background(), []messages.AppendStep{step})
	require.NoError(t, outcome(results, err))
	q.computed, q.ready = 4, results[0].Ready
	q.chains = append(q.chains, q.chains[3].Next(51, messages.Cover{}))
	w.ends(q)
	w.close()
}

// Every copy that the device refuses has its answer; afterwards all bytes are
// right, all invariants hold, and every page can be used.
func TestFailedCopies(t *testing.T) {
	for _, c := range slices.Concat(failedOffloads, failedOnboards, failedCopies) {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, small(withoutAhead))
			c.run(w)
			w.sim.Drain()
			w.leave(text(3, 8)) // the host goes on
			w.right()
			stats, err := w.Stats(context.Background())
			require.NoError(t, err)
			for _, p := range stats.Pools {
				assert.Equal(t, p.Primary.Total, p.Primary.Used+p.Primary.Cached+p.Primary.Free)
			}
			w.close()
		})
	}
}

// Streams that stall hold up nothing but their tickets: the engine answers at
// once, and the tickets pass when the streams go on.
func TestStalledStreams(t *testing.T) {
	const (
		late  = time.Second
		lanes = 4 // the engine's streams, which it made first
	)
	w := newWorld(t, small(nil))
	w.leave(stored)
	w.sim.Drain()
	for lane := range gpu.Stream(lanes) {
		require.NoError(t, w.sim.Stall(lane+1, late))
	}
	began, stuck := w.sim.Now(), 0
	for i := range 6 { // out to host memory, and back again
		q, a, err := w.start(text(2+i%2, 24))
		require.NoError(t, err)
		for _, ticket := range a.Ready {
			w.sim.Advance(time.Millisecond)
			if ticket.Stream <= lanes {
				stuck++
				assert.False(t, w.device.Done(ticket), "round %d", i)
			}
		}
		require.NoError(t, w.release(q))
	}
	require.NotZero(t, w.stats().Onboarded)
	require.NotZero(t, stuck)
	assert.Less(t, w.sim.Now()-began, late/2, "a call waited")
	w.right()
	assert.Greater(t, w.sim.Now()-began, late)
	w.close()
}

// A device that is lost takes contents and kernels with it. The call that finds it is
// answered, with what its copies were for given up; every later one says that the engine
// has failed and why, and the engine ends when it is told to.
func TestLostDevice(t *testing.T) {
	w := newWorld(t, small(withoutAhead))
	w.leave(stored)
	running, _, err := w.start(stored[:6])
	require.NoError(t, err)
	w.sim.Lose()
	w.lost = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	q, _, err := w.admit(text(2, 16)) // evicts: nothing can be copied
	require.NoError(t, err)
	assert.ErrorIs(t, w.launch(q, 16), gpu.ErrDeviceLost)
	failed := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, messages.ErrFailed)
		require.ErrorContains(t, err, "device lost")
	}
	failed(w.release(q))
	_, err = w.fork(running)
	failed(err)
	failed(w.Check(ctx))
	_, err = w.Lookup(ctx, messages.Prefix{Tokens: stored})
	failed(err)
	require.NoError(t, ctx.Err(), "something hung")
	w.close()
}

// A copy on write that finds the device lost refuses its step.
func TestDeviceLostOverACopyOnWrite(t *testing.T) {
	w := newWorld(t, small(withoutAhead))
	q, _, err := w.start(stored[:6])
	require.NoError(t, err)
	child, err := w.fork(q)
	require.NoError(t, err)
	w.sim.Lose()
	w.lost = true
	require.ErrorIs(t, w.append(child, 1), messages.ErrInternal)
	require.ErrorIs(t, w.append(child, 1), messages.ErrFailed)
	w.close()
}

// An engine that finds no memory leaves none taken.
func TestMemoryRunsOut(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 4096})
	require.NoError(t, err)
	system := newSystem()
	defer system.Shutdown()
	// 128 bytes each: the second pool finds 1024
	s := setup{windows: []int{maxLen, 8}, pages: windows.PageCounts{Primary: 24}}
	_, err = actors.Spawn(system.Root, s.config(device))
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	memory, err := device.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory.Total, memory.Free)
	require.NoError(t, device.Close())
}

// A rebalance that finds the device lost is refused, and fails the engine.
func TestRebalanceOnALostDevice(t *testing.T) {
	w := newWorld(t, setup{windows: []int{maxLen, 8}, pages: windows.PageCounts{Primary: 12}})
	w.leave(stored)
	w.sim.Lose()
	w.lost = true
	ctx := context.Background()
	before := w.Pools()
	_, err := w.Rebalance(ctx, map[string]float64{before[0].Name: 0.75, before[1].Name: 0.25})
	require.ErrorIs(t, err, messages.ErrInternal)
	_, err = w.Stats(ctx)
	require.ErrorIs(t, err, messages.ErrFailed)
	w.close()
}

// A rebalance that one rank refuses gives no pool pages that are not there on all.
func TestRebalanceThatOneRankRefuses(t *testing.T) {
	for rank := range 3 {
		w := newWorld(t, setup{windows: []int{maxLen, 8}, pages: windows.PageCounts{Primary: 12},
			ranks: 3})
		w.leave(stored)
		w.rest()
		// Another user of the device takes what the pools leave.
		memory, err := w.group.Sim(rank).Memory()
		require.NoError(t, err)
		_, err = w.group.Sim(rank).CreatePool(gpu.PoolSpec{Name: "other", PageBytes: memory.Free,
			DevicePages: 1})
		require.NoError(t, err)
		ctx := context.Background()
		before := w.Pools()
		_, err = w.Resize(ctx, []int{before[0].PrimaryPages + 1, before[1].PrimaryPages})
		require.ErrorIs(t, err, messages.ErrInternal, "rank %d", rank)
		require.ErrorContains(t, err, fmt.Sprintf("rank %d of 3", rank))
		require.ErrorContains(t, err, gpu.ErrOutOfMemory.Error())
		stats, err := w.Stats(ctx)
		require.NoError(t, err)
		for i, p := range stats.Pools {
			assert.Equal(t, before[i].PrimaryPages, p.Primary.Total, p.Name)
		}
		require.NoError(t, w.Check(ctx))
		w.leave(text(2, 12))
		w.right()
		w.lost = true // the other user keeps its memory
		w.rest()
		w.close()
	}
}

// A copy ahead of demand that fails is none: the page is copied when it is needed.
func TestFailedCopyAhead(t *testing.T) {
	w := newWorld(t, small(nil))
	w.sim.Fail(gpu.Offload, 6)
	w.leave(stored)
	assert.Zero(t, w.stats().Dropped)
	w.leave(text(2, 12))
	n := w.stats()
	assert.EqualValues(t, 3, n.Evicted)
	assert.EqualValues(t, 3, n.Offloaded+n.Dropped)
	w.right()
	w.close()
}
