package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// BenchmarkStates is what recurrent layers cost: three attention pools and a state pool
// against the three without, both with actors.
func BenchmarkStates(b *testing.B) {
	const blocks = 256
	hybrid := func(pages int) (with, without shape) {
		without = hybrid(pages)
		with = without
		with.states = 2048
		return with, without
	}
	// A stored prompt is admitted and released: a match that ends at a checkpoint, and its
	// copy to the working page.
	b.Run("visit", func(b *testing.B) {
		with, without := hybrid(4 * blocks)
		engine, floor := with.actors(b), without.actors(b)
		tokens := random(dice(2), blocks*tokensPerBlock+1)
		above, below := newCalls(tokens), newCalls(tokens)
		above.store(engine)
		below.store(floor)
		versus(b, timed(func() { above.visit(engine) }), timed(func() { below.visit(floor) }))
		require.Equal(b, blocks*tokensPerBlock, above.reused())
	})
	// A new prompt is admitted, computed and released: its working page is filled with
	// zeros, one commit more makes a checkpoint, the release gives the page to the tree. Both
	// sides have kernels, as hosts have: where nothing was ever ordered on the device an
	// engine without states asks nothing about its pages, and takes a third of the time.
	b.Run("store", func(b *testing.B) {
		with, without := hybrid(64 * blocks)
		engine, floor := with.actors(b), without.actors(b)
		r := dice(3)
		once := func(do do) side {
			return func() time.Duration {
				calls := newCalls(random(r, blocks*tokensPerBlock+1))
				calls.after = messages.Ticket{Stream: 9, Seq: 1}
				start := time.Now()
				calls.store(do)
				return time.Since(start)
			}
		}
		versus(b, once(engine), once(floor))
	})
	b.Run("append", func(b *testing.B) {
		with, without := hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock)
		above, below := newBatch(with.actors(b), 6), newBatch(without.actors(b), 6)
		for range scaled(settling) {
			above.next()
			below.next()
		}
		versus(b, above.next, below.next).tail(b)
	})
}

// BenchmarkCheckpointMemory measures the heap that a checkpoint costs beside its page:
// prompts of which each leaves two, against the same prompts without recurrent layers.
func BenchmarkCheckpointMemory(b *testing.B) {
	prompts := scaled(100_000)
	used := func(states int) float64 {
		system := newSystem()
		defer system.Shutdown()
		before := heapBytes()
		s := full(2 * prompts)
		s.states = states
		e := s.spawnIn(system)
		r := dice(4)
		for range prompts {
			newCalls(random(r, 2*tokensPerBlock-1)).store(serve(e))
		}
		bytes := float64(heapBytes() - before)
		if states > 0 {
			stats := &inspect.ReadStats{}
			serve(e)(stats)
			require.Equal(b, states, stats.Stats.Pools[1].Primary.Cached)
		}
		must(e.Close(context.Background()))
		return bytes
	}
	var with, without float64
	for b.Loop() {
		with, without = used(2*prompts), used(0)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((with-without)/float64(2*prompts), "bytes/checkpoint")
}
