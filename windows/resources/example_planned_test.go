package resources_test

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows/resources"
)

// attentionLayer, mambaLayer and cursorLayer are layers of a host's model.
type (
	attentionLayer struct{ heads, dim int }
	mambaLayer     struct{ heads, dim, state int }
	cursorLayer    struct{ numbers int }
)

func (l attentionLayer) Keeps() []resources.Kept {
	return []resources.Kept{
		{Kind: "kv",
			Resource: resources.PagedKV{NumKVHeads: l.heads, HeadDim: l.dim, DType: kvactor.Float16}},
	}
}

func (l mambaLayer) Keeps() []resources.Kept {
	return []resources.Kept{
		{Kind: "ssm",
			Resource: resources.SSM{NumHeads: l.heads, HeadDim: l.dim, DState: l.state,
				DType: kvactor.Float32}},
		{Kind: "conv",
			Resource: resources.CausalConv{ConvDim: l.heads * l.dim, DConv: 4, DType: kvactor.Float16}},
	}
}

// Keeps declares a cursor, which is of no use to another sequence: it is not in pages, and nothing
// is reused.
func (l cursorLayer) Keeps() []resources.Kept {
	return []resources.Kept{
		{Kind: "cursor", Resource: resources.State{Shape: []int{l.numbers}, DType: kvactor.Float32}},
	}
}

// A hybrid model declares what its layers keep. The engine has pages for keys, values and states,
// and each sequence a slot for the cursor.
func ExampleOpen() {
	ctx := context.Background()
	declared, err := resources.Declare(attentionLayer{2, 16}, mambaLayer{2, 8, 4}, cursorLayer{64})
	must(err)
	plan, err := declared.Plan(resources.Options{
		Cache: kvactor.DefaultCache(), MaxSeqLen: 256, MaxSequences: 2,
	})
	must(err)
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
	must(err)
	engine, err := resources.Open(plan, device)
	must(err)
	s, err := engine.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3}})
	must(err)
	for _, name := range []string{"kv_0", "conv_1", "cursor_2"} {
		v, _ := engine.View(name)
		fmt.Printf("%s: shape %v, strides %v, %d bytes into ", name, v.Shape, v.Strides, v.Offset)
		if v.Managed {
			fmt.Println("a page of", v.Pool)
		} else {
			fmt.Println("slot", s.Slot())
		}
	}
	fmt.Println("reuse is off:", plan.ReuseRefused)
	must(s.Release(ctx, kvactor.Ticket{}))
	_, err = engine.Close(ctx)
	must(err)
	memory, err := device.Memory()
	must(err)
	fmt.Println("all memory is given back:", memory.Free == memory.Total)
	// Output:
	// kv_0: shape [2 2 32 16], strides [2048 1024 32 2], 0 bytes into a page of wfullh2
	// conv_1: shape [16 3], strides [6 2], 256 bytes into a page of state
	// cursor_2: shape [64], strides [4], 0 bytes into slot 0
	// reuse is off: cursor_2 is local: its contents cannot be reused
	// all memory is given back: true
}

// must ends an example that fails.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
