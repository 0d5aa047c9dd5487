package kvactor_test

import (
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/host"
)

// A kernel in Go on the machine's memory. It writes the keys of three tokens, and a later one
// reads them.
func ExampleEngine_View() {
	device, err := host.New(host.Config{MemoryBytes: 1 << 24})
	must(err)
	defer device.Close()
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 2
	model := kvactor.Model{
		Layers: 1, KVHeads: []int{1}, HeadDim: 4, DType: kvactor.Int8, MaxSeqLen: 64,
	}
	engine, err := kvactor.Open(kvactor.Config{
		Model: model, Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 8}},
	})
	must(err)
	compute, err := device.NewStream("compute")
	must(err)
	s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{7, 8, 9}})
	must(err)

	prefill, err := device.Launch(compute,
		gpu.Kernel{Waits: s.Ready(), Run: func(pages gpu.PageBytes) {
			for position, token := range s.Tokens(0) {
				copy(row(engine, s, pages, 0, kvactor.Keys, 0, position), fmt.Sprintf("key%d", token))
			}
		}})
	must(err)
	show, err := device.Launch(compute, gpu.Kernel{Run: func(pages gpu.PageBytes) {
		for position := range s.Len() {
			fmt.Printf("%s in page %d\n", row(engine, s, pages, 0, kvactor.Keys, 0, position),
				s.Tables()[0][0][position/2])
		}
	}})
	must(err)
	must(device.Sync(ctx, show)) // the kernels use the sequence: no call about it before they end
	must(s.Commit(ctx, 3, prefill))
	must(s.Release(ctx, show))
	_, err = engine.Close(ctx)
	must(err)
	// Output:
	// key7 in page 0
	// key8 in page 0
	// key9 in page 1
}

// row returns the bytes of one token in one head of a layer. pages is what the device gives
// to a kernel. Views, pools and handles stay the same while the engine runs: a kernel with many
// rows looks them up once.
func row(
	engine *kvactor.Engine, s *kvactor.Sequence, pages gpu.PageBytes,
	layer int, part kvactor.Part, head, position int,
) []byte {
	pool, view, ok := engine.View(layer, part)
	if !ok {
		panic("the layer has no such part")
	}
	tokens := engine.Pools()[pool].TokensPerBlock
	page := s.Tables()[pool][0][position/tokens]
	bytes := pages(gpu.Slot{Pool: engine.DevicePools()[pool], Tier: kvactor.Primary, Page: page})
	at := view.Offset + int64(head)*view.HeadStride + int64(position%tokens)*view.TokenStride
	return bytes[at : at+view.RowBytes]
}
