package page

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// million is an engine with a million device pages, each of which caches a block: 20,000
// prompts of 50 blocks that begin alike.
func million(b *testing.B) *kvactor.Engine {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 26, Poison: sim.PoisonOff})
	require.NoError(b, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	engine, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 4, DType: kvactor.Float16,
			MaxSeqLen: 256},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 1_000_000}}, Device: device,
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		_, err := engine.Close(context.Background())
		require.NoError(b, err)
	})
	tokens := make([]messages.Token, 201)
	for i := range 20_000 {
		for j := 4; j < len(tokens); j++ {
			tokens[j] = messages.Token(i)
		}
		s, err := engine.Admit(b.Context(), kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(b, err)
		require.NoError(b, s.Commit(b.Context(), 200, kvactor.Ticket{}))
		require.NoError(b, s.Release(b.Context(), kvactor.Ticket{}))
	}
	return engine
}

// What an answer costs at a million pages: live is nine of ten, tree the tenth.
func BenchmarkAnswer(b *testing.B) {
	engine := million(b)
	p := New(Options{Source: engine.Actors(), Pools: engine.Pools(), Recorder: &Recorder{}})
	for name, tree := range map[string]bool{"live": false, "tree": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				p.turn <- struct{}{}
				p.latest.at = time.Time{}
				if p.latest.treeAt = time.Now(); tree {
					p.latest.treeAt = time.Time{}
				}
				err := p.fresh(b.Context())
				size = len(p.latest.live)
				p.unlock()
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "B/answer")
		})
	}
}

// What a call costs a host that records it.
func BenchmarkRecorder(b *testing.B) {
	r, m, began := &Recorder{}, &messages.Append{}, time.Now()
	b.ReportAllocs()
	for b.Loop() {
		r.Observe(b.Context(), m, began, nil)
	}
}
