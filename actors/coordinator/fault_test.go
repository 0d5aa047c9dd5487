package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/windows"
)

// What a copy that the device refuses costs: contents that cannot be moved are
// lost, what a host holds is right or it is told.

// An onboard that fails ends the reuse where it failed.
func TestAFailedOnboardShortensTheMatch(t *gotesting.T) {
	for failed := range 3 {
		w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}})
		w.store(run(0, 12))
		w.store(run(100, 16))
		require.Equal(t, 12, w.lookup(messages.Prefix{Tokens: run(0, 13)}).SecondaryTokens)
		w.memory.failing[offloader.Onboard] = failed
		_, sequences := w.admitBatch(request(run(0, 13)))
		require.NotNil(t, sequences[0])
		// Each failure costs one of the three blocks; what lies behind it is stored
		// but cannot be matched.
		assert.LessOrEqual(t, sequences[0].computed, 4*(3-failed))
		if failed == 0 {
			assert.Equal(t, 12, sequences[0].computed)
		}
		w.prefill(sequences[0])
		w.release(sequences[0])
		assert.Equal(t, 12, w.lookup(messages.Prefix{Tokens: run(0, 13)}).MatchedTokens, "stored again")
	}
}

// When every onboard fails the prompt is computed, and nothing hangs.
func TestWhenEveryOnboardFailsThePromptIsComputed(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}})
	w.store(run(0, 12))
	w.store(run(100, 16))
	w.memory.failing[offloader.Onboard] = 1000
	results, sequences := w.admitBatch(request(run(0, 13)), request(append(run(0, 8), 900)))
	require.NoError(t, results[0].Err)
	assert.Zero(t, results[0].ReusedTokens)
	assert.ErrorIs(t, results[1].Err, messages.ErrOutOfPages)
	w.prefill(sequences[0])
	w.release(sequences[0])
}

// Two that share an onboard fail together and are admitted again.
func TestAFailedOnboardConcernsAllThatShareIt(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 6, Secondary: 8}}})
	w.store(run(0, 8))
	w.store(run(100, 24))
	w.memory.failing[offloader.Onboard] = 1
	results, sequences := w.admitBatch(request(run(0, 9)), request(append(run(0, 8), 900)))
	for i := range results {
		require.NoError(t, results[i].Err)
		w.prefill(sequences[i])
	}
	w.release(sequences...)
}

// Only the prompt whose transfer failed is admitted again: the others keep their answers.
func TestAFailedOnboardConcernsNoOthers(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8, Secondary: 8}}})
	w.store(run(0, 8))
	w.store(run(100, 32))
	w.memory.failing[offloader.Onboard] = 1
	results, sequences := w.admitBatch(request(run(500, 5)), request(run(0, 9)), request(run(600, 40)),
		request(run(700, 3)))
	for i, refused := range []bool{false, false, true, false} {
		if refused {
			assert.ErrorIs(t, results[i].Err, messages.ErrOutOfPages)
			continue
		}
		require.NoError(t, results[i].Err)
		assert.Len(t, results[i].Tables[0][0], (sequences[i].length()+3)/4)
		w.prefill(sequences[i])
	}
	assert.Zero(t, w.memory.failing[offloader.Onboard])
	assert.Less(t, results[1].ReusedTokens, 8)
	w.release(sequences[0], sequences[1], sequences[3])
	w.assertCounts(0, 0, w.stats().Pools[0].Primary.Cached, 8-w.stats().Pools[0].Primary.Cached)
	assert.EqualValues(t, 5, w.stats().Requests, "each counts once")
}

func TestAFailedOffloadLosesTheContents(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}})
	w.store(run(0, 16))
	w.memory.failing[offloader.Offload] = 1
	_, l := w.admit(run(100, 8))
	w.prefill(l)
	p := w.stats().Pools[0]
	assert.EqualValues(t, 2, p.Evicted)
	assert.EqualValues(t, 1, p.Offloaded)
	assert.EqualValues(t, 1, p.Dropped)
	w.release(l)
}

// A partial copy that fails costs the partial reuse.
func TestAFailedPartialCopyIsDoneWithout(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}}})
	w.store(run(0, 8))
	w.memory.failing[offloader.Duplicate] = 1
	results, sequences := w.admitBatch(request(append(run(0, 6), 900)))
	require.NoError(t, results[0].Err)
	assert.Equal(t, 4, results[0].ReusedTokens)
	assert.Equal(t, messages.PartialNone, results[0].Reuse[0].PartialReuse)
	w.prefill(sequences[0])
	w.release(sequences[0])
}

// A copy on write that fails takes the step back; the sequence goes on.
func TestAFailedCopyOnWriteTakesTheStepBack(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 6))
	fork := w.fork(s, 1)[0]
	before := w.counts()
	w.memory.failing[offloader.Duplicate] = 1
	r := w.tryAppend(run(70, 1), s)[0]
	assert.ErrorIs(t, r.Err, messages.ErrInternal)
	assert.Empty(t, r.NewPages[0])
	assert.Equal(t, before, w.counts())
	w.append(s, 70)
	w.append(fork, 71)
	w.release(s, fork)
}

// Where taking back would share a page that another has begun to write to, the
// sequence is lost, and says so.
func TestAFailedCopyOnWriteMayLoseASequence(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
	s := w.start(run(0, 6))
	fork := w.fork(s, 1)[0]
	w.memory.failing[offloader.Duplicate] = 1
	results := w.tryAppend(run(70, 1), s, fork)
	assert.ErrorIs(t, results[0].Err, messages.ErrSequenceLost)
	assert.Empty(t, results[0].NewPages[0], "what is lost is given no pages")
	assert.Empty(t, results[0].Placed)
	require.NoError(t, results[1].Err)
	w.release(fork)
	w.assertCounts(0, 0, 2, 6)
}

// A prefetch is all or nothing, also when a copy fails.
func TestAFailedPrefetchKeepsTheRest(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 8}}})
	w.store(run(0, 12))
	w.store(run(100, 16))
	w.memory.failing[offloader.Onboard] = 1
	_, err := w.prefetch(run(0, 12))
	assert.Error(t, err)
	w.assertCounts(0, 0, w.stats().Pools[0].Primary.Cached, 4-w.stats().Pools[0].Primary.Cached)
	_, err = w.prefetch(run(0, 12))
	assert.NoError(t, err)
}

// A move of a rebalance that fails costs the contents, and whoever holds the
// page is told.
func TestAFailedMoveOfARebalance(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
	w.store(run(100, 16))
	w.start(run(200, 8)) // on pages beyond the new end
	w.memory.failing[offloader.Duplicate] = 1
	m := &messages.Rebalance{Fractions: map[string]float64{"w8h1": 0.25, "wfullh1": 0.75}}
	w.Do(m)
	require.Zero(t, w.memory.failing[offloader.Duplicate], "there was a move")
	var lost []messages.StepResult
	for id := range w.running {
		r := &messages.ReadTables{Sequences: []messages.SequenceID{id}}
		w.Do(r)
		lost = append(lost, messages.StepResult{Sequence: id, Err: r.Results[0].Err})
	}
	w.releaseLost(lost...)
	w.check()
}

// A release that is given up leaves its sequence running, with a trailing partial block
// that the tree has stored. Tokens that the sequence writes behind a rewind go to a copy
// of that page, since the page is the block's.
func TestAReleaseThatIsGivenUpLeavesItsPagesShared(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 12}}})
	s := w.start(run(0, 8))
	w.append(s, 50, 51, 52)
	failures := 0
	w.Before = func(to string, message any) bool {
		if _, work := message.(*protocol.PoolWork); !work {
			return true
		}
		failures++
		w.Fail(coordinator.Failure{Actor: to, Cause: errBroken})
		return false
	}
	var aborted error
	w.Aborted = func(_ any, err error) { aborted = err }
	w.Do(&messages.Release{Steps: []messages.ReleaseStep{{Sequence: s.id}}})
	for aborted == nil {
		w.Recover()
	}
	w.Before = nil
	require.ErrorIs(t, aborted, errBroken)
	assert.Equal(t, 1, failures)
	w.check()
	require.Equal(t, 10, w.lookup(messages.Prefix{Tokens: s.tokens}).MatchedTokens,
		"stored with the partial block")

	require.NoError(t, w.rewind(s, 2))
	w.append(s, 60, 61)
	w.release(s)
}

// A page whose copy fails keeps its number and its bytes, and a recovery gives the pools their old
// counts again. If an actor fails over it, the request is aborted with the same outcome.
func TestAPageThatCannotBeMovedStays(t *gotesting.T) {
	for _, fails := range []bool{false, true} {
		aborts := fails
		w := newWorld(t,
			setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 8}, {Primary: 8}}})
		w.store(run(100, 16))
		s := w.start(run(200, 8)) // on pages beyond the new end
		w.memory.failing[offloader.Duplicate] = 1
		w.Before = func(to string, message any) bool {
			if _, apply := message.(*protocol.Apply); apply && fails {
				fails = false
				w.Fail(coordinator.Failure{Actor: "tree", Cause: errBroken})
				return false
			}
			return true
		}
		var aborted error
		w.Aborted = func(_ any, err error) { aborted = err }
		m := &messages.Rebalance{Fractions: map[string]float64{"w8h1": 0.25, "wfullh1": 0.75}}
		w.Do(m)
		w.Before, w.Aborted = nil, nil
		if aborts {
			require.ErrorIs(t, aborted, errBroken)
		} else {
			require.ErrorIs(t, m.Err, messages.ErrInternal)
		}
		require.Empty(t, m.Rebalanced.Moved)
		require.Zero(t, w.memory.failing[offloader.Duplicate], "there was a move")
		for _, p := range w.stats().Pools {
			assert.Equal(t, 8, p.Primary.Total, "pool %s", p.Name)
		}
		w.check()
		w.append(s, 1, 2, 3)
		w.check()
		w.release(s)
	}
}

// A fetch that is given up has displaced contents of host memory and loaded others to their
// pages. The tree is told of what has gone, or it would name pages with other bytes.
func TestAFetchThatIsGivenUpForgetsWhatItDisplaced(t *gotesting.T) {
	w := newWorld(t, setup{pages: []windows.PageCounts{{Primary: 6, Secondary: 3}}})
	w.store(run(0, 12))
	w.store(run(100, 24))
	require.Equal(t, 12, w.lookup(messages.Prefix{Tokens: run(0, 13)}).SecondaryTokens)
	m := &protocol.Fetch{Prefix: messages.Prefix{Tokens: run(200, 8)}}
	w.offerStored(m, 2, true)
	failures := 0
	w.After = func(_ string, message any) {
		if _, load := message.(*protocol.LoadPages); load {
			failures++
			w.Fail(coordinator.Failure{Actor: "tree", Cause: errBroken})
		}
	}
	var aborted error
	w.Aborted = func(_ any, err error) { aborted = err }
	w.Do(m)
	w.After = nil
	require.ErrorIs(t, aborted, errBroken)
	assert.Equal(t, 1, failures)
	w.check()
	assert.Equal(t, 4, w.lookup(messages.Prefix{Tokens: run(0, 13)}).SecondaryTokens,
		"two blocks were displaced")
	assert.EqualValues(t, 2, w.stats().Pools[0].Dropped)
}
