package encoderdecoder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// found is how many encoder tokens are stored.
func (r *rig) found(encoder []messages.Token) messages.Found {
	r.t.Helper()
	f, err := r.Lookup(context.Background(), messages.Prefix{Encoder: encoder})
	require.NoError(r.t, err)
	return f
}

// Inputs that no one holds are evicted, the least recently used first, each
// from its end.
func TestEvictionOfInputs(t *testing.T) {
	r := newRig(t, setup{pages: pages(40, 5)})
	defer r.end()
	a, b, c := run(100, 8), run(200, 12), run(300, 12)
	r.store(ask(a, run(0, 4)))
	r.store(ask(b, run(0, 4)))
	r.assertCross(0, 5, 0)
	l := r.start(ask(c, run(0, 4))) // three pages: both of a, the last of b
	assert.Zero(t, r.found(a).MatchedTokens)
	assert.Zero(t, r.found(b).MatchedTokens, "the encoder has to run over all of it")
	r.verify()
	r.release(l)

	l = r.start(ask(b, run(0, 4)))
	assert.Zero(t, l.admitted.Cross.ReusedTokens, "its host may write every page")
	r.verify()
	assert.Equal(t, 12, r.found(b).MatchedTokens, "it is whole again")
}

// An input that a sequence holds is no victim.
func TestHeldInputsStay(t *testing.T) {
	r := newRig(t, setup{pages: pages(40, 4)})
	defer r.end()
	held := r.start(ask(run(100, 8), run(0, 4)))
	r.store(ask(run(200, 8), run(0, 4)))
	r.store(ask(run(300, 8), run(0, 4)))
	assert.Zero(t, r.found(run(200, 8)).MatchedTokens)
	assert.Equal(t, 8, r.found(run(100, 8)).MatchedTokens)
	r.release(held)
	r.verify()
}

// The priority of an input decides before its use.
func TestPriorityOfInputs(t *testing.T) {
	var now time.Duration
	r := newRig(t, setup{pages: pages(40, 4), now: &now})
	defer r.end()
	important := ask(run(100, 8), run(0, 4))
	important.EncoderRetention = &messages.Retention{
		Ranges: []messages.RetentionRange{
			{End: messages.EndOfPrompt, Priority: 90, Duration: time.Second},
		},
	}
	r.store(important)
	r.store(ask(run(200, 8), run(0, 4)))
	r.store(ask(run(300, 8), run(0, 4)))
	assert.Zero(t, r.found(run(200, 8)).MatchedTokens)
	assert.Equal(t, 8, r.found(run(100, 8)).MatchedTokens)
	now = 2 * time.Second
	r.store(ask(run(400, 4), run(0, 4)))
	assert.Zero(t, r.found(run(100, 8)).MatchedTokens, "the time has run out")
	r.verify()
}

func TestInputsGoToHostMemoryAndBack(t *testing.T) {
	r := newRig(t, setup{pages: []windows.PageCounts{{Primary: 40}, {Primary: 3, Secondary: 4}}})
	defer r.end()
	a, b := run(100, 10), run(200, 11)
	r.store(ask(a, run(0, 4)))
	r.store(ask(b, run(0, 4)))
	assert.Equal(t, messages.Found{MatchedTokens: 10, SecondaryTokens: 10}, r.found(a))
	assert.Equal(t, messages.Found{MatchedTokens: 11, PrimaryTokens: 11}, r.found(b))
	r.verify()
	l := r.start(ask(a, run(50, 4)))
	assert.Equal(t, 10, l.admitted.Cross.ReusedTokens)
	assert.Equal(t, messages.PoolReuse{Full: 3, PartialReuse: messages.PartialNone, Onboarded: 3},
		l.admitted.Reuse[1])
	assert.NotEmpty(t, l.admitted.Cross.Ready, "the copies must have passed")
	r.verify()
	stats, err := r.Stats(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 3, stats.Pools[1].Onboarded)
}

// A refusal on either side leaves both as they were, also what could have been
// evicted.
func TestOutOfPagesOnEitherSideTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pages []windows.PageCounts
		pool  string
		need  int
	}{
		"cross":       {pages(40, 5), "cross_h2", 4},
		"decoder":     {pages(5, 40), "wfullh1", 4},
		"just enough": {pages(6, 6), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{pages: c.pages})
			defer r.end()
			r.start(ask(run(100, 8), run(0, 8)))
			r.store(ask(run(200, 8), run(0, 8)))
			before := r.picture()
			_, err := r.admit(ask(run(300, 16), run(0, 16)))
			if c.pool == "" {
				require.NoError(t, err)
				return
			}
			var refusal *messages.Refusal
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, messages.ErrOutOfPages, refusal.Code)
			assert.Equal(t, c.pool, refusal.Pool)
			assert.Equal(t, c.need, refusal.Need)
			assert.Equal(t, 3, refusal.Available)
			assert.Equal(t, before, r.picture())
			r.verify()
		})
	}
}

// A batch is decided in order; the refused are as if they had never been asked.
func TestBatches(t *testing.T) {
	r := newRig(t, setup{pages: pages(9, 6)})
	defer r.end()
	r.store(ask(run(100, 8), run(0, 4)))
	requests := []messages.AdmitRequest{
		ask(run(100, 8), run(0, 6)),
		ask(run(200, 20), run(0, 6)), // five cross pages, four are left
		ask(run(300, 8), run(0, 30)), // eight decoder pages, seven are left
		ask(nil, run(0, 6)),
		ask(run(400, 8), run(0, 6)),
		ask(run(100, 8), nil),
		ask(run(100, 8), run(50, 6)),
	}
	results, err := r.AdmitBatch(context.Background(), requests)
	require.NoError(t, err)
	for i, want := range []error{
		nil, messages.ErrOutOfPages, messages.ErrOutOfPages, messages.ErrBadRequest, nil,
		messages.ErrBadRequest, nil,
	} {
		if want != nil {
			require.ErrorIs(t, results[i].Err, want, "item %d", i)
			assert.Equal(t, messages.Admitted{Err: results[i].Err}, results[i])
			continue
		}
		require.NoError(t, results[i].Err, "item %d", i)
		r.begin(requests[i], results[i])
	}
	assert.Equal(t, 8, results[0].Cross.ReusedTokens)
	assert.Zero(t, results[4].Cross.ReusedTokens)
	assert.Equal(t, results[0].Cross.Table, results[6].Cross.Table)
	r.assertCross(4, 0, 2)
	for _, l := range r.running {
		r.compute(l, len(l.request.Tokens))
	}
	r.verify()
}

func TestMemoryIsSplitByTheFraction(t *testing.T) {
	r := newRig(t, setup{change: func(c *windows.Config) {
		c.CrossKVCacheFraction, c.FreeGPUMemoryFraction, c.HostCacheSize, c.OffloadAhead = 0.25, 0.5,
			1<<20, false
	}})
	defer r.end()
	infos := r.Pools()
	require.Len(t, infos, 2)
	memory := int64(1 << 23) // half of the device's
	assert.EqualValues(t, memory/4/infos[1].PageBytes, infos[1].PrimaryPages)
	assert.EqualValues(t, memory*3/4/infos[0].PageBytes, infos[0].PrimaryPages)
	assert.EqualValues(t, 1<<18/infos[1].PageBytes, infos[1].SecondaryPages)
	assert.EqualValues(t, 3<<18/infos[0].PageBytes, infos[0].SecondaryPages)
	used, err := r.device.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory, used.Total-used.Free)
}

// A rebalance leaves the cross pool its fraction.
func TestRebalance(t *testing.T) {
	r := newRig(t,
		setup{windows: []int{full, 8}, pages: []windows.PageCounts{{Primary: 10}, {Primary: 10},
			{Primary: 6}}})
	defer r.end()
	r.start(ask(run(100, 8), run(0, 8)))
	answer, err := r.Rebalance(context.Background(), map[string]float64{"w8h1": 0.25, "wfullh1": 0.75})
	require.NoError(t, err)
	require.Len(t, answer.Pools, 3)
	assert.Equal(t, []int{5, 15, 6}, []int{answer.Pools[0].PrimaryPages, answer.Pools[1].PrimaryPages,
		answer.Pools[2].PrimaryPages})
	assert.Equal(t, answer.Pools, r.Pools())
	assert.Len(t, answer.Moved, 3)
	_, err = r.Rebalance(context.Background(), map[string]float64{"w8h1": 0.25, "wfullh1": 0.25,
		"cross_h2": 0.5})
	assert.ErrorIs(t, err, messages.ErrBadRequest)
	r.verify()
}

// Two hosts whose encoders both run write no page of each other: an input of which a page is
// missing is not shared at all.
func TestAnInputIsSharedWholeOrNotAtAll(t *testing.T) {
	r := newRig(t, setup{pages: pages(40, 10)})
	defer r.end()
	a := run(100, 12)
	r.store(ask(a, run(0, 4)))
	r.release(r.start(ask(run(200, 30), run(0, 4)))) // evicts the last page of a
	first := r.start(ask(a, run(10, 4)))
	assert.Zero(t, first.admitted.Cross.ReusedTokens)
	second := r.start(ask(a, run(20, 4)))
	assert.Equal(t, 12, second.admitted.Cross.ReusedTokens)
	r.release(first)
	r.release(second)
	r.verify()
}
