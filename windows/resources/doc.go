// Package resources plans the memory of a model whose layers declare what they keep. A layer can
// keep paged keys and values, states of selective state space models and of convolutions, other
// states, and rows for each token. It can also read another layer's keys and values.
//
//	c, err := resources.Declare(layers...) // the host's layers, each with a method Keeps
//	plan, err := c.Plan(resources.Options{
//		Cache: windows.DefaultConfig(), MaxSeqLen: 8192, MaxSequences: 64,
//	})
//	fmt.Print(plan)
//	engine, err := resources.Open(plan, device)
//
// Collection.Add declares resources one by one:
//
//	c.Add("kv_cache", 0, resources.PagedKV{NumKVHeads: 8, HeadDim: 128, DType: windows.BFloat16})
//	c.Add("ssm_state", 1, resources.SSM{
//		NumHeads: 128, HeadDim: 64, DState: 128, DType: windows.Float32,
//	})
//	c.Add("conv_state", 1, resources.CausalConv{ConvDim: 8448, DConv: 4, DType: windows.BFloat16})
//
// OfModel declares what the layers of a windows.Model keep.
//
// A resource is *managed* if it lies in the pages of an engine's pools. The engine caches, reuses,
// offloads and moves its contents. Any other resource is *local*: it has memory on the device, one
// slot for each running sequence. The plan says for each resource which of the two it is, and why.
//
// # Rules
//
// TensorRT-LLM's AutoDeploy manages resources of one shape, and makes all others local. With
// Options.Strict a plan follows its rules to the letter:
//
//   - PagedKV: the first one is managed. Others are managed if they have its head_dim, dtype,
//     kv_factor and kv_layout. Their numbers of heads may differ.
//   - SSM: the first one is managed. Others are managed if they have its shape and dtype.
//   - CausalConv: the same rule, with a condition on the first one. If there is an SSM,
//     conv_dim must be head_dim·num_heads + 2·n_groups·d_state of the first SSM for an integer
//     n_groups ≥ 0. Otherwise every CausalConv is local.
//   - State and Unpaged are local.
//
// Without Options.Strict a plan manages more:
//
//   - A PagedKV of another shape gets a pool of its own.
//   - An SSM or CausalConv of any shape is managed. The engine sees a state as a number of bytes,
//     so shapes need not agree.
//   - A State is managed if it is marked as checkpointable: it depends only on the tokens before
//     it, and may be copied.
//
// # Reuse
//
// A sequence that reuses a prefix needs everything that the layers keep of it. States come from
// checkpoints. A local resource has none, so a plan with one turns reuse off and names the
// resource.
//
// # Resize
//
// AutoDeploy measures a forward pass, then makes a new manager and loses all contents. Plan.Resize
// changes the number of pages in an engine's pools. Their contents stay, and running sequences go
// on.
package resources
