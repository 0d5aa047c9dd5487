package kvactor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
)

// An automatic rebalance looks at the Append that it goes before, while other callers give theirs
// up and use the records again. The race detector sees it if it looks too early.
func TestTheAutomaticRebalanceReadsNoRecordOfItsCaller(t *testing.T) {
	device, _ := sim.New(sim.Config{MemoryBytes: 1 << 24})
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, []int{8, 4096}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1}, HeadDim: 4, DType: kvactor.Float16, MaxSeqLen: 4096},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 64}, {Primary: 4096}}, Device: device,
	}, kvactor.WithAutoRebalance(1, nil))
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s, err := e.Admit(context.Background(), kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}})
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Commit(context.Background(), 3, kvactor.Ticket{})
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%40)*time.Microsecond)
				_ = s.Append(ctx, 1)
				cancel()
			}
			_ = s.Release(context.Background(), kvactor.Ticket{})
		})
	}
	wait.Wait()
	_, _ = e.Close(context.Background())
}
