package actors_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// Statistics tell what waits: admissions for pages, and calls over the bound.
func TestStatisticsTellWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}}, actors.WithWaitingRoom(2),
			actors.WithMaxInFlight(3))
		s, err := r.start(run(0, 3*tpb))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for i, requests := range []int{2, 1} {
			go func() {
				batch := make([]messages.AdmitRequest, requests)
				for k := range batch {
					batch[k].Tokens = run(1000*(2*i+k+1), 3*tpb)
				}
				_, err := r.AdmitBatch(ctx, batch)
				assert.ErrorIs(t, err, context.Canceled)
			}()
			synctest.Wait()
		}
		stats, err := r.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, stats.Waiting)
		assert.Equal(t, inspect.CallStats{InFlight: 2}, stats.Calls)
		assert.Equal(t, 1, stats.Sequences)
		cancel()
		synctest.Wait()
		require.NoError(t, r.release(s))
		stats, err = r.Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, stats.Waiting)
		assert.Zero(t, stats.Calls)
		r.close()
	})
}

// Statistics count prompts by their lengths and by why they missed, also those whose tokens
// the engine has kept.
func TestStatisticsOfPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		defer r.close()
		s, err := r.start(run(0, 2*tpb))
		require.NoError(t, err)
		results, err := r.AdmitBatch(t.Context(), []messages.AdmitRequest{{Tokens: run(0, 2*tpb+1)}})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		stats, err := r.Stats(t.Context())
		require.NoError(t, err)
		want := inspect.PromptStats{}
		want.Note(2*tpb, 0, 0, messages.ReasonCold)
		want.Note(2*tpb+1, 2*tpb, 0, messages.ReasonHit)
		assert.Equal(t, want, stats.Prompts)
		assert.EqualValues(t, 2*tpb, want.Missed[1], "cold")
		assert.EqualValues(t, 1, want.Missed[0], "hit")
		for i, n := range want.Lengths {
			expected := int64(0)
			for _, length := range []int{2 * tpb, 2*tpb + 1} {
				if length <= want.Lengths.Bound(i) && length > want.Lengths.Bound(i-1) {
					expected++
				}
			}
			assert.Equal(t, expected, n, "prompts of at most %d tokens", want.Lengths.Bound(i))
		}
		for _, id := range []messages.SequenceID{s.id, results[0].Sequence} {
			require.NoError(t, r.release(&sequence{id: id}))
		}
	})
}

// Statistics count the tokens that were generated, without those taken back, and those that
// came with a fork once; pages that appends took; steps that were refused.
func TestStatisticsOfSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4}}})
		defer r.close()
		generated := func() int64 {
			stats, err := r.Stats(t.Context())
			require.NoError(t, err)
			return stats.AppendedTokens
		}
		s, err := r.start(run(0, tpb))
		require.NoError(t, err)
		assert.Zero(t, generated())
		appended := func(id messages.SequenceID, n int) error {
			results, err := r.Append(t.Context(), []messages.AppendStep{{Sequence: id, Tokens: run(500, n)}})
			require.NoError(t, err)
			return results[0].Err
		}
		require.NoError(t, appended(s.id, tpb))
		assert.EqualValues(t, tpb, generated())
		_, err = r.Rewind(t.Context(), []messages.RewindStep{{Sequence: s.id, Tokens: 3}})
		require.NoError(t, err)
		assert.EqualValues(t, tpb-3, generated())
		forks, err := r.Fork(t.Context(), []messages.ForkStep{{Sequence: s.id, Count: 1}})
		require.NoError(t, err)
		require.NoError(t, forks[0].Err)
		fork := forks[0].Forks[0]
		assert.EqualValues(t, tpb-3, generated())
		require.NoError(t, appended(fork, 1))
		assert.EqualValues(t, tpb-2, generated())
		require.ErrorIs(t, appended(fork, 5*tpb), messages.ErrOutOfPages)
		require.ErrorIs(t, appended(99, 1), messages.ErrUnknownSequence)
		for _, id := range []messages.SequenceID{s.id, fork} {
			require.NoError(t, r.release(&sequence{id: id}))
		}
		stats, err := r.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, tpb-2, stats.AppendedTokens)
		assert.Equal(t, inspect.StepRefusals{OutOfPages: 1, Other: 1}, stats.RefusedSteps)
		assert.EqualValues(t, 2, stats.AppendedPages, "one for the first append, one for a copy on write")
	})
}

// Copies that the device refuses are counted, and the log has the first.
func TestRefusedCopiesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 4, Secondary: 4}},
			change: func(c *windows.Config) {
				c.HostCacheSize, c.OffloadAhead = 1<<20, false
			}}, actors.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		defer r.close()
		r.store(run(0, 4*tpb))
		assert.NotContains(t, log.String(), "refused")
		r.sim.Fail(gpu.Offload, 1)
		r.store(run(1000, 4*tpb))
		stats, err := r.Stats(t.Context())
		require.NoError(t, err)
		assert.Positive(t, stats.Calls.RefusedCopies)
		assert.Contains(t, log.String(), "the device has refused copies")
	})
}

// A request that is admitted again after a preemption counts once, whatever it reuses of itself.
func TestStatisticsOfReadmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 8}}})
		defer r.close()
		s, err := r.start(run(0, 2*tpb+1))
		require.NoError(t, err)
		require.NoError(t, r.release(s))
		before, err := r.Stats(t.Context())
		require.NoError(t, err)
		again, err := r.Admit(t.Context(), messages.AdmitRequest{Tokens: run(0, 2*tpb+1),
			Readmitted: true})
		require.NoError(t, err)
		assert.Equal(t, 2*tpb, again.ReusedTokens)
		require.NoError(t, r.release(&sequence{id: again.Sequence}))
		after, err := r.Stats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 1, after.Readmissions)
		assert.EqualValues(t, 1, after.Requests)
		assert.EqualValues(t, 2*tpb+1, after.PromptTokens)
		assert.Zero(t, after.ReusedTokens)
		assert.Equal(t, before.Prompts, after.Prompts)
		assert.Equal(t, before.Pools[0].Missed, after.Pools[0].Missed)
		assert.Zero(t, after.Pools[0].ReusedFull)
	})
}
