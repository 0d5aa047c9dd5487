package pool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// conversations is a made-up trace of sessions that begin with 16 blocks, a fifth of them with a system prompt that
// all share, and grow by as many with each request on average.
func conversations(requests int) (trace []traceRequest) {
	r := rand.New(rand.NewPCG(3, 4))
	sessions, next := make([][]uint64, 400), uint64(1000)
	for i := range requests {
		s := &sessions[r.IntN(len(sessions))]
		if len(*s) == 0 || r.IntN(3) == 0 {
			if *s = nil; r.IntN(5) == 0 {
				*s = document(0, 6)
			}
		}
		for range 1 + int(r.ExpFloat64()*16) {
			*s = append(*s, next)
			next++
		}
		trace = append(trace, traceRequest{Timestamp: 300 * float64(i), IDs: slices.Clone(*s), Answer: 200, Block: 512})
	}
	return trace
}

// bytesAfter replays a trace, and is the memory of the pieces for each cached page. There must be few bytes for each of the
// pieces that there were at a time.
func bytesAfter(t *testing.T, pages int, trace []traceRequest) float64 {
	p := NewForecast("bytes", pages, Forecast{Seed: 1, Span: protocol.SpanOf(max(1, trace[0].Block))})
	replayed(t, p, trace, realTime)
	require.Equal(t, pages, p.Counts().Cached)
	s := p.cache.pieces
	n := len(s.all) - 1
	// Record, detail and member, the sets of a level at their largest, an eighth to grow, and the scratch space of one request.
	assert.LessOrEqual(t, s.bytes(), 72*n+8192)
	page := float64(s.bytes()) / float64(pages)
	t.Logf("%d pages, %d pieces: %.1f bytes a page", pages, n, page)
	return page
}

// TestPiecesTakeFewBytes: a piece takes no more than its record, its detail and its members, with an eighth to grow. How
// many pieces there are for each page depends on the traffic; docs/policies.md has figures.
func TestPiecesTakeFewBytes(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for _, pages := range []int{1000, 5000, 20_000} {
		assert.LessOrEqual(t, bytesAfter(t, pages, conversations(6000)), 7.5)
	}
	// Prompts of 1 to 20 blocks. Beside the pieces there is the scratch space of one request.
	for name, m := range madeTraces() {
		t.Run(name, func(t *testing.T) {
			assert.LessOrEqual(t, bytesAfter(t, m.pages, m.requests), 20.0)
		})
	}
}

// TestPiecesOfTracesTakeFewBytes: real traces need at most 8 bytes for each page, and 4 KiB for each pool: its candidates and the scratch
// space of one request.
func TestPiecesOfTracesTakeFewBytes(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for name, pages := range map[string][]int{
		"mooncake_conversation_h1": {1000, 5000, 30_000},
		"mooncake_synthetic":       {500, 2000, 10_000},
		"claude_code_agentic_dev":  {4096, 32_768},
		"agent_runs_lmcache":       {500, 1500, 5000},
	} {
		trace := readTrace(t, name)
		for _, n := range pages {
			assert.LessOrEqual(t, bytesAfter(t, n, trace), 8+4096/float64(n), name)
		}
	}
}

// TestLongTimes: last uses have 32 bits. Their order and the values of pieces stay when the epoch moves, and a clock may begin
// anywhere and go on by any step.
func TestLongTimes(t *testing.T) {
	for _, start := range []time.Duration{0, 50 * 365 * 24 * time.Hour} {
		p := NewForecast("times", 60, Forecast{Seed: 1, Span: 1})
		c := &atomicCache{pool: p, answers: true, clock: func(ms float64) time.Duration { return start + realTime(ms) }}
		s, now := p.cache.pieces, 0.0
		for i := range 30 {
			now += 1000
			c.request(&traceRequest{Timestamp: now, IDs: document(uint64(i), 2), Answer: 10})
		}
		require.InDelta(t, (start + realTime(now)).Milliseconds(), s.policy.Now(), 1)
		times := func() (all []int64) {
			for _, m := range p.cache.whole.level(messages.DefaultPriority).leaves {
				all = append(all, s.lastOf(m.last))
			}
			return all
		}
		before, epoch := times(), s.epoch
		// The pieces are 13 days old, which is beyond what the new epoch reaches, then years.
		for _, later := range []float64{11.9, 14, 14, 4000} {
			now += later * 24 * 3600 * 1000
			c.request(&traceRequest{Timestamp: now, IDs: document(1000, 2), Answer: 10})
			c.request(&traceRequest{Timestamp: now, IDs: document(29, 2), Answer: 10})
			require.NoError(t, p.Check())
			for _, last := range times() {
				require.LessOrEqual(t, last, s.policy.Now())
				require.LessOrEqual(t, s.policy.Now()-last, int64(math.MaxUint32))
			}
		}
		require.NotEqual(t, epoch, s.epoch)
		require.NotEqual(t, before, times())
	}
}
