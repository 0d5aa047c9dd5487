package kvactor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
)

// An automatic rebalance looks at the Append that it goes before, while other callers give theirs
// up and use the records again. The race detector sees it if it looks too early.
func TestTheAutomaticRebalanceReadsNoRecordOfItsCaller(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, []int{8, 4096}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 4, DType: kvactor.Float16,
			MaxSeqLen: 4096},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 64}, {Primary: 4096}}, Device: device,
	}, actors.WithAutoRebalance(1, nil))
	require.NoError(t, err)
	var all []*kvactor.Sequence
	for i := range 4 { // before memory moves away from the pool that needs little
		s, err := e.Admit(context.Background(),
			kvactor.AdmitRequest{Tokens: []kvactor.Token{kvactor.Token(i), 2, 3}})
		require.NoError(t, err)
		require.NoError(t, s.Commit(context.Background(), 3, kvactor.Ticket{}))
		all = append(all, s)
	}
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() {
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%40)*time.Microsecond)
				_ = s.Append(ctx, 1) // most are given up
				cancel()
			}
			assert.NoError(t, s.Release(context.Background(), kvactor.Ticket{}))
		})
	}
	wait.Wait()
	shut(t, e)
}
