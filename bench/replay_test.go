package bench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// Sizes of a replay.
const (
	replayPages  = 1 << 17 // of one pool, 2 to 4 million tokens: a large GPU, or several
	replayBlock  = 32      // tokens, if the trace's blocks are not smaller
	replayTokens = 60_000_000
)

// BenchmarkReplay stores the prompts of recorded requests one after the other,
// admission, commit, release, and counts the engine's time alone. The floor is
// the same cores without actors. Traces longer than 60 million tokens end there
// unless KVACTOR_BENCH=large.
func BenchmarkReplay(b *testing.B) {
	for _, t := range traces {
		name, _, _ := strings.Cut(t.name, ".")
		b.Run(name, func(b *testing.B) { benchReplay(b, t) })
	}
}

func benchReplay(b *testing.B, t trace) {
	limit := scaled(replayTokens)
	if large() {
		limit = math.MaxInt
	}
	requests := t.read(b, limit)
	s := full(replayPages)
	s.tokensPerBlock = min(replayBlock, t.blockTokens)
	var engineTime, floorTime time.Duration
	var stats inspect.ReadStats
	served, blocks := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		e, stop := s.spawn()
		above, below := serve(e), s.direct().Do
		calls, bare := newCalls(nil), newCalls(nil)
		var tokens []messages.Token
		b.StartTimer()
		for i, r := range requests {
			if r.InputLength == 0 {
				continue
			}
			tokens = t.prompt(tokens, r, i)
			calls.admit.Requests[0].Tokens, bare.admit.Requests[0].Tokens = tokens, tokens
			if i%2 == 0 { // who comes second finds the tokens in the processor's caches
				engineTime += timed(func() { calls.store(above) })()
				floorTime += timed(func() { bare.store(below) })()
			} else {
				floorTime += timed(func() { bare.store(below) })()
				engineTime += timed(func() { calls.store(above) })()
			}
			require.Equal(b, bare.reused(), calls.reused())
			served++
			blocks += len(tokens) / s.tokensPerBlock
		}
		b.StopTimer()
		above(&stats)
		stop()
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(engineTime)/float64(served), "ns/request")
	b.ReportMetric(float64(engineTime)/float64(blocks), "ns/block")
	b.ReportMetric(float64(engineTime)/float64(floorTime), "x/floor")
	b.ReportMetric(100*float64(stats.Stats.ReusedTokens)/float64(stats.Stats.PromptTokens), "reused-%")
}
