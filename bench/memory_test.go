package bench

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

// heapBytes is what the heap holds after a collection.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools had kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill stores new prompts of n tokens until all blocks are resident. The kernels
// that compute them are done at a ticket, which may be zero: no stream orders
// anything then.
func fill(do do, blocks, n int, after messages.Ticket) {
	r := dice(10)
	for range blocks * tokensPerBlock / n {
		calls := newCalls(random(r, n))
		calls.after = after
		calls.store(do)
	}
}

// BenchmarkMemory measures the heap that a resident block costs in a whole
// engine of one pool, tokens included. The actor system is the host's, it takes
// 2.8 MB whatever runs in it and is not counted. Ordered, every page was written by a kernel
// on a stream, as in a real host. The floor is the tokens alone, 64 bytes.
func BenchmarkMemory(b *testing.B) {
	for _, tokens := range []int{512, shortText, longText} {
		b.Run(fmt.Sprintf("tokens=%d", tokens),
			func(b *testing.B) { benchMemory(b, "", tokens, messages.Ticket{}) })
	}
	b.Run("forecast/tokens=512",
		func(b *testing.B) { benchMemory(b, windows.Forecast, 512, messages.Ticket{}) })
	b.Run(fmt.Sprintf("ordered/tokens=%d", shortText), func(b *testing.B) {
		benchMemory(b, "", shortText, messages.Ticket{Stream: 9, Seq: 1})
	})
}

func benchMemory(b *testing.B, policy string, tokens int, after messages.Ticket) {
	prompts := max(1, scaled(1_000_000)*tokensPerBlock/tokens)
	blocks := prompts * tokens / tokensPerBlock
	var used float64
	for b.Loop() {
		system := newSystem()
		before := heapBytes()
		shape := full(blocks)
		shape.policy = policy
		e := shape.spawnIn(system)
		fill(serve(e), blocks, tokens, after)
		used = float64(heapBytes() - before)
		stats := &inspect.ReadStats{}
		serve(e)(stats)
		require.Equal(b, blocks, stats.Stats.Pools[0].Primary.Cached)
		must(e.Close(context.Background()))
		system.Shutdown()
	}
	const floor = 4 * tokensPerBlock
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(used/float64(blocks), "bytes/block")
	b.ReportMetric(used/float64(blocks)/floor, "x/floor")
}
