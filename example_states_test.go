package kvactor_test

import (
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/host"
)

// A model with an attention layer and a recurrent one. A chunk of a prompt ends at each
// checkpoint, so that a later prompt can continue from there.
func ExampleEngine_Commit_checkpoints() {
	device, err := host.New(host.Config{MemoryBytes: 1 << 24})
	must(err)
	defer device.Close()
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{1, 0}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		States: []kvactor.State{{Layers: []int{1}, Bytes: 256}},
	}
	engine, err := kvactor.Open(kvactor.Config{
		Model: model, Cache: cache, Device: device,
		Pages: []kvactor.PageCounts{{Primary: 16}, {Primary: 8}}, // of keys and values, of states
	})
	must(err)
	pool, view, _ := engine.View(1, kvactor.RecurrentState)
	fmt.Println("the state of layer 1 has", view.RowBytes, "bytes in pool", pool)

	for _, prompt := range [][]kvactor.Token{
		{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 70},
	} {
		s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt, ChunkTokens: 8})
		must(err)
		fmt.Println(s.Reused(), "tokens reused, checkpoints", s.Admitted().Checkpoints)
		for s.Computed() < s.Prompt() {
			end := chunkEnd(s, 8, 4)
			// A kernel computes [Computed, end) and writes the state after it to the page.
			fmt.Println("compute", s.Computed(), "to", end, "in state page", s.Tables()[pool][0][0])
			must(s.Commit(ctx, end, kvactor.Ticket{}))
		}
		must(s.Release(ctx, kvactor.Ticket{}))
	}
	_, err = engine.Close(ctx)
	must(err)
	// Output:
	// the state of layer 1 has 256 bytes in pool 1
	// 0 tokens reused, checkpoints [12]
	// compute 0 to 8 in state page 0
	// compute 8 to 12 in state page 0
	// compute 12 to 14 in state page 0
	// 12 tokens reused, checkpoints []
	// compute 12 to 13 in state page 2
}

// chunkEnd is where the next chunk of a prompt ends: at a checkpoint, at a block boundary, or at
// the prompt's end.
func chunkEnd(s *kvactor.Sequence, chunk, block int) int {
	end := min((s.Computed()+chunk)/block*block, s.Prompt())
	for _, at := range s.Admitted().Checkpoints { // ascending
		if s.Computed() < at && at < end {
			return at
		}
	}
	return end
}
