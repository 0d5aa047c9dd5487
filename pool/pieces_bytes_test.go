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

// bytesAfter replays a trace, and is the memory of the pieces. There must be few bytes for each of the pieces that there were at a time.
func bytesAfter(t *testing.T, pages int, trace []traceRequest) int {
	p := NewForecast("bytes", pages, Forecast{Seed: 1, Span: protocol.SpanOf(max(1, trace[0].Block))})
	replayed(t, p, trace, realTime)
	require.Equal(t, pages, p.Counts().Cached)
	s := p.cache.pieces
	n := len(s.all) - 1
	// Record, last use and detail, the sets of a level at their largest, an eighth to grow, and the candidates.
	assert.LessOrEqual(t, s.bytes(), 64*n+1024)
	t.Logf("%d pages, %d pieces: %.1f bytes a page", pages, n, float64(s.bytes())/float64(pages))
	return s.bytes()
}

// TestPiecesTakeFewBytes: a piece takes no more than its record, its last use, its detail and its places in sets, with an eighth to grow. How
// many pieces there are for each page depends on the traffic; docs/policies.md has figures.
func TestPiecesTakeFewBytes(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for _, pages := range []int{1000, 5000, 20_000} {
		assert.LessOrEqual(t, bytesAfter(t, pages, conversations(6000)), 47*pages/10)
	}
	// Each page is a piece.
	var single []traceRequest
	for i := range 12_000 {
		single = append(single, traceRequest{Timestamp: 100 * float64(i), IDs: document(uint64(i), 1), Answer: 10})
	}
	bytes := bytesAfter(t, 5000, single)
	assert.LessOrEqual(t, bytes, 62*5000)
	assert.GreaterOrEqual(t, bytes, 58*5000, "not all of it is counted")
	// Prompts of 1 to 20 blocks.
	for name, m := range madeTraces() {
		t.Run(name, func(t *testing.T) {
			assert.LessOrEqual(t, bytesAfter(t, m.pages, m.requests), 16*m.pages)
		})
	}
}

// TestPiecesOfTracesTakeFewBytes: real traces need at most 8 bytes for each page and some hundred for the front, in pools of 300 pages and
// more.
func TestPiecesOfTracesTakeFewBytes(t *testing.T) {
	if invariants.Enabled || testing.Short() {
		t.Skip("thousands of requests")
	}
	for name, pages := range map[string][]int{
		"mooncake_conversation_h1": {300, 1000, 5000, 30_000},
		"mooncake_synthetic":       {300, 500, 2000, 10_000},
		"claude_code_agentic_dev":  {4096, 32_768},
		"agent_runs_lmcache":       {300, 500, 600, 700, 1500, 5000},
	} {
		trace := readTrace(t, name)
		for _, n := range pages {
			assert.LessOrEqual(t, bytesAfter(t, n, trace), 8*n+600, "%s, %d pages", name, n)
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
			for _, n := range p.cache.whole.level(messages.DefaultPriority).leaves {
				all = append(all, s.lastOf(s.uses[n].time))
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

// TestRequestsAllocateNothing: a full pool allocates nothing for a request, of which it tells the policy.
func TestRequestsAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks allocate")
	}
	p := NewForecast("allocations", 400, Forecast{Seed: 1, Span: 1})
	take, leave := protocol.PoolWork{Ops: make([]protocol.PoolOp, 1)}, protocol.PoolWork{Ops: make([]protocol.PoolOp, 2)}
	pages, blocks, facts := make([]messages.PageID, 20), make([]protocol.BlockID, 20), protocol.RequestFacts{Blocks: 20, Prompt: 20, Signatures: make([]uint64, 20)}
	next, use := uint64(0), protocol.Use(0)
	request := func() {
		take.Now += time.Second
		take.Ops[0] = protocol.PoolOp{Kind: protocol.Take, N: 20, Pages: pages[:0]}
		p.Do(&take)
		for i, page := range take.Ops[0].Pages {
			next++
			blocks[i], facts.Signatures[i] = protocol.BlockID(page), signature(next, 0)
		}
		use += 2
		leave.Now, facts.Arrived = take.Now, take.Now
		leave.Ops[0] = protocol.PoolOp{Kind: protocol.AttachPages, Pages: take.Ops[0].Pages, Blocks: blocks, Priority: messages.DefaultPriority}
		leave.Ops[1] = protocol.PoolOp{Kind: protocol.Drop, Pages: take.Ops[0].Pages, Use: use, Request: &facts}
		p.Do(&leave)
	}
	for range 200 {
		request()
	}
	require.Equal(t, 400, p.Counts().Cached)
	require.Zero(t, testing.AllocsPerRun(200, request))
}
