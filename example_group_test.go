package kvactor_test

import (
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/gpu/sim"
)

// One engine over a group of four devices: each holds two of the eight KV heads.
func ExampleOpen_group() {
	var ranks []gpu.Device
	for range 4 {
		device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
		must(err)
		ranks = append(ranks, device)
	}
	model := kvactor.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 16, DType: kvactor.Float16, MaxSeqLen: 4096,
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	device, err := group.New(ranks...)
	must(err)
	share, err := model.OfRank(len(ranks))
	must(err)
	engine, err := kvactor.Open(kvactor.Config{Model: share, Cache: cache, Device: device})
	must(err)
	compute, err := device.NewStream("compute")
	must(err)

	for _, prompt := range [][]kvactor.Token{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 70, 80}} {
		s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
		must(err)
		fmt.Println(s.Reused(), "of", len(prompt), "tokens reused, pages", s.Tables()[0][0])
		// Every rank computes its heads into its own pages of these numbers.
		ran, err := device.Launch(compute, gpu.Kernel{
			Label: "step", Waits: s.Ready(),
			RunRank: func(rank int, page gpu.PageBytes) {},
		})
		must(err)
		must(s.Commit(ctx, len(prompt), ran))
		must(s.Release(ctx, ran))
	}
	leaked, err := engine.Close(ctx)
	fmt.Println(leaked, "pages leaked on", device.Info().Ranks, "devices", err)
	// Output:
	// 0 of 9 tokens reused, pages [0 1 2]
	// 6 of 8 tokens reused, pages [0 3]
	// 0 pages leaked on 4 devices <nil>
}
