package resources_test

import (
	"fmt"

	"github.com/kvactor/kvactor/windows"
	"github.com/kvactor/kvactor/windows/resources"
)

// Two layers of a hybrid model declare what they keep.
func ExampleCollection() {
	var c resources.Collection
	for _, err := range []error{
		c.Add("kv_cache", 0, resources.PagedKV{NumKVHeads: 8, HeadDim: 128, DType: windows.BFloat16}),
		c.Add("ssm_state", 1, resources.SSM{
			NumHeads: 4, HeadDim: 64, DState: 16, DType: windows.Float32,
		}),
		c.Add("conv_state", 1, resources.CausalConv{ConvDim: 288, DConv: 4, DType: windows.BFloat16}),
	} {
		if err != nil {
			fmt.Println(err)
		}
	}
	plan, err := c.Plan(resources.Options{
		Cache: windows.DefaultConfig(), MaxSeqLen: 8192, MaxSequences: 64,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan)
	view, _ := plan.View("conv_state_1")
	fmt.Println("conv_state_1 begins at byte", view.Offset, "of a page of", view.PageBytes)
	// Output:
	// kv_cache_0: 8 KV heads x 128 bfloat16, kv_factor 2, HND: managed in wfullh8 (the first keys and values, the reference of the others)
	// ssm_state_1: SSM state 4 x 64 x 16 float32: managed in state (the first of its kind, the reference of the others)
	// conv_state_1: convolution state 288 x 3 bfloat16: managed in state (the first of its kind, the reference of the others)
	// pool wfullh8 bfloat16x128 layers 0 page 131072 B
	// pool state 18112 B layers 1 page 18112 B
	// reuse is on
	// conv_state_1 begins at byte 16384 of a page of 18112
}
