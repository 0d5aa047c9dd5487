package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The coordinator fails where it sends nothing: over its senders, and over the news of a
// rebalance.

// brokenOnce panics at the first call.
func brokenOnce() func() {
	broken := false
	return func() {
		if !broken {
			broken = true
			panic(errBroken)
		}
	}
}

// serveBroken serves a request over which the coordinator fails.
func (w *world) serveBroken(request any) {
	w.t.Helper()
	n := injection{world: w}
	require.True(w.t, n.breaks(func() { w.Do(request) }))
	require.False(w.t, n.breaks(w.Recover))
}

// A request is aborted when the coordinator fails as it takes it out of the queue.
func TestACoordinatorThatFailsOverTheBeginOfARequest(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	fail := brokenOnce()
	w.Sender = func(question string) {
		if question == "begin" {
			fail()
		}
	}
	m := &messages.Lookup{Prefix: messages.Prefix{Tokens: run(0, 8)}}
	assert.Equal(t, 1, w.aborts(m))
	w.check()
}

// aborts serves a request over which the coordinator fails, and counts its answers, which are
// all errors.
func (w *world) aborts(m any) (aborted int) {
	w.t.Helper()
	w.Answered = func(request any) { assert.NotEqual(w.t, m, request) }
	w.Aborted = func(request any, err error) {
		assert.Equal(w.t, m, request)
		assert.ErrorIs(w.t, err, errBroken)
		aborted++
	}
	w.serveBroken(m)
	w.Answered, w.Aborted, w.Sender = nil, nil, nil
	return aborted
}

// An answer is given, perhaps twice, when the coordinator fails as it gives it.
func TestACoordinatorThatFailsOverAnAnswer(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	m := &messages.Admit{Requests: []messages.AdmitRequest{request(run(0, 8))}}
	fail, answered := brokenOnce(), 0
	w.Answered = func(request any) {
		if request == m {
			answered++
			fail()
		}
	}
	w.serveBroken(m)
	w.Answered = nil
	assert.Equal(t, 2, answered)
	require.NoError(t, m.Results[0].Err)
	l := w.started(&m.Requests[0], &m.Results[0])
	w.check()
	w.prefill(l)
	w.release(l)
}

// A batch that was about to wait for pages is aborted, and waits when it is sent again.
func TestACoordinatorThatFailsOverABatchThatIsToWait(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4}}, waiting: 2})
	l := w.start(run(0, 13))
	fail := brokenOnce()
	w.Sender = func(question string) {
		if question == "park" {
			fail()
		}
	}
	m := &messages.Admit{Requests: []messages.AdmitRequest{request(run(100, 8))}}
	assert.Equal(t, 1, w.aborts(m))
	w.Do(m)
	assert.Contains(t, w.Engine.String(), "1 batches wait")
	var answered bool
	w.Answered = func(request any) { answered = answered || request == m }
	w.quiet = true
	w.unchecked = true
	w.release(l)
	w.unchecked = false
	require.True(t, answered, "there are pages now")
	w.started(&m.Requests[0], &m.Results[0])
	w.check()
}

// When the coordinator fails as it tells the host of a rebalance, the rebalance ends as if the
// device had refused the memory of the pool that grows, and the host is told of that.
func TestACoordinatorThatFailsOverTheNewsOfARebalance(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 24}, {Primary: 8}},
			every: 1})
	l := w.start(run(0, 8))
	w.store(run(100, 20))
	w.store(run(200, 20))
	fail, told := brokenOnce(), 0
	var last messages.Rebalanced
	w.moved = func(m messages.Rebalanced) {
		last = m
		told++
		fail()
	}
	resized := 0
	w.After = func(to string, message any) {
		if stageOf(w.Engine) == "rebalance: resizing" {
			resized++
		}
	}
	m := &messages.Append{Steps: []messages.AppendStep{{Sequence: l.id, Tokens: run(50, 1)}}}
	w.serveBroken(m)
	w.After, w.moved = nil, nil
	require.NoError(t, m.Results[0].Err)
	w.extend(l, run(50, 1))
	assert.Equal(t, 2, told)
	for i, p := range w.stats().Pools {
		assert.Equal(t, last.Pools[i].PrimaryPages, p.Primary.Total)
	}
	assert.Equal(t, 2, resized, "both pools, once")
	w.check()
	w.release(l)
}
