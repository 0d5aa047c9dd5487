package kvactor_test

import (
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
)

// A prompt and a decode step on the host's own stream: nothing waits for bytes but the
// stream.
func ExampleSequence_Ready() {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	must(err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	model := kvactor.Model{
		Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
	}
	engine, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device})
	must(err)
	prompt := []kvactor.Token{1, 2, 3, 4, 5, 6}

	compute, err := device.NewStream("compute")
	must(err)
	s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
	must(err)
	// Nothing may touch the pages before Ready. The stream waits, the program does not.
	prefill, err := device.Launch(compute, gpu.Kernel{
		Label: "prefill", Waits: s.Ready(), Writes: accesses(engine, s),
	})
	must(err)
	// The tokens count as computed now; whoever reads them waits for the kernel on its stream.
	must(s.Commit(ctx, len(prompt), prefill))

	// A decode step: a page for the sampled token, a kernel, then what it computes.
	must(s.Append(ctx, 7))
	decode, err := device.Launch(compute, gpu.Kernel{
		Label: "decode", Waits: s.Ready(), Writes: accesses(engine, s),
	})
	must(err)
	must(s.Commit(ctx, 7, decode))

	// The kernels may still run: the release says until when they use the pages.
	must(s.Release(ctx, decode))
	leaked, err := engine.Close(ctx)
	fmt.Println("pages leaked:", leaked, err)
	// Output:
	// pages leaked: 0 <nil>
}

// accesses lists the memory of a sequence's pages.
func accesses(engine *kvactor.Engine, s *kvactor.Sequence) []gpu.Access {
	var list []gpu.Access
	for pool, beams := range s.Tables() {
		for _, page := range beams[0] {
			if page != kvactor.NoPage {
				list = append(list, gpu.Access{
					Slot: gpu.Slot{Pool: engine.DevicePools()[pool], Tier: kvactor.Primary, Page: page},
				})
			}
		}
	}
	return list
}
