package kvactor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

// BenchmarkDecodeStep is a decode step of a batch through the handles: one Append and one
// Commit, and Inputs for a kernel. Steps and inputs are used again.
func BenchmarkDecodeStep(b *testing.B) {
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			const longest = 1 << 16
			device, err := sim.New(sim.Config{MemoryBytes: 1 << 40, Poison: sim.PoisonOff})
			require.NoError(b, err)
			cache := kvactor.DefaultCache()
			cache.EnableBlockReuse = false
			e, err := kvactor.Open(kvactor.Config{
				Model: kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16,
					MaxSeqLen: longest},
				Cache: cache, Pages: []kvactor.PageCounts{{Primary: 256 * batch}}, Device: device,
			})
			require.NoError(b, err)
			appends, commits := make([]kvactor.Step, batch), make([]kvactor.Step, batch)
			queries := make([]kvactor.Query, batch)
			start := func(i int) {
				s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1}})
				require.NoError(b, err)
				require.NoError(b, s.Commit(ctx, 1, kvactor.Ticket{}))
				appends[i] = kvactor.Step{Sequence: s, Tokens: []kvactor.Token{2}, Placed: appends[i].Placed}
				commits[i].Sequence, queries[i].Sequence = s, s
			}
			for i := range batch {
				start(i)
			}
			var in kvactor.Inputs
			b.ReportAllocs()
			for b.Loop() {
				if appends[0].Sequence.Len() > 4096 { // so many tokens have pages
					b.StopTimer()
					for i := range commits {
						commits[i].Computed = 0
					}
					require.NoError(b, e.Release(ctx, commits))
					for i := range batch {
						start(i)
					}
					b.StartTimer()
				}
				require.NoError(b, e.Append(ctx, appends))
				in.Fill(e, queries)
				for i := range commits {
					commits[i].Computed = commits[i].Sequence.Len()
				}
				require.NoError(b, e.Commit(ctx, commits))
			}
			b.StopTimer()
			_, err = e.Close(ctx)
			require.NoError(b, err)
		})
	}
}
