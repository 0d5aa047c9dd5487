package actors_test

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A translator: two requests for the same source text. The second one need not
// run the encoder and finds the beginning of the answer, too; a third one with
// another source text finds nothing.
func Example_encoderDecoder() {
	ctx := context.Background()
	system := newSystem()
	defer system.Shutdown()
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 4
	cache.CrossKVCacheFraction = 0.25
	model := windows.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 64, DType: windows.BFloat16, MaxSeqLen: 448,
		CrossLayers: 2, CrossKVHeads: 8, EncoderMaxLen: 1500,
	}
	engine, err := actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Device: device})
	must(err)
	for _, p := range engine.Pools() {
		fmt.Println(p.Name, "has", p.PrimaryPages, "pages of", p.PageBytes, "bytes")
	}

	prompt := []messages.Token{1, 2, 3, 4, 5}
	for _, source := range [][]messages.Token{{70, 71, 72, 73, 74, 75}, {70, 71, 72, 73, 74, 75},
		{70, 71, 72, 73, 74, 76}} {
		a, err := engine.Admit(ctx, messages.AdmitRequest{Encoder: source, Tokens: prompt})
		must(err)
		fmt.Println("encoder", a.Cross.ReusedTokens, "of", len(source), "tokens, pages", a.Cross.Table,
			"decoder", a.ReusedTokens, "of", len(prompt))
		// The host runs the encoder if it must, writes the cross KV, and runs
		// the decoder. Its first commit stands for both.
		_, err = engine.Commit(ctx, []messages.CommitStep{{Sequence: a.Sequence, Computed: len(prompt)}})
		must(err)
		_, err = engine.Release(ctx, []messages.ReleaseStep{{Sequence: a.Sequence}})
		must(err)
	}
	_, err = engine.Close(ctx)
	must(err)
	// Output:
	// wfullh8 has 2765 pages of 16384 bytes
	// cross_h8 has 921 pages of 16384 bytes
	// encoder 0 of 6 tokens, pages [0 1] decoder 0 of 5
	// encoder 6 of 6 tokens, pages [0 1] decoder 4 of 5
	// encoder 0 of 6 tokens, pages [2 3] decoder 0 of 5
}

// Keys and values in 8 bits have a scale for each layer, which the engine keeps
// for all who read its pages.
func ExampleEngine_SetScales() {
	ctx := context.Background()
	system := newSystem()
	defer system.Shutdown()
	device, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	must(err)
	model := windows.Model{
		Layers: 2, KVHeads: []int{8}, HeadDim: 64, DType: windows.FP8, MaxSeqLen: 4096,
	}
	engine, err := actors.Spawn(system.Root, actors.Config{
		Model: model, Cache: windows.DefaultConfig(), Device: device,
	})
	must(err)
	must(engine.SetScales(ctx, []messages.LayerScale{{Layer: 1, K: 0.5, V: 0.25}}))
	fmt.Println(engine.SetScales(ctx, []messages.LayerScale{{Layer: 2, K: 1, V: 1}}))
	scales, err := engine.Scales(ctx)
	must(err)
	for _, s := range scales {
		fmt.Println("layer", s.Layer, "K", s.K, "V", s.V)
	}
	_, err = engine.Close(ctx)
	must(err)
	// Output:
	// layer 2 has no elements of 8 bits, so it has no scales
	// layer 0 K 1 V 1
	// layer 1 K 0.5 V 0.25
}
