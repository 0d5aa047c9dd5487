// Package resources plans the memory of a model whose layers declare what they keep, as the layers
// of an inference framework do: paged keys and values, states of selective state space models and
// of convolutions, other states, rows for each token. A layer can read another layer's keys and
// values.
//
//	c, err := resources.Declare(layers...) // of the host: each has a method Keeps
//	plan, err := c.Plan(resources.Options{Cache: windows.DefaultConfig(), MaxSeqLen: 8192, MaxSequences: 64})
//	fmt.Print(plan)
//	engine, err := resources.Open(plan, device)
//
// Collection.Add declares resources one by one:
//
//	c.Add("kv_cache", 0, resources.PagedKV{NumKVHeads: 8, HeadDim: 128, DType: windows.BFloat16})
//	c.Add("ssm_state", 1, resources.SSM{NumHeads: 128, HeadDim: 64, DState: 128, DType: windows.Float32})
//	c.Add("conv_state", 1, resources.CausalConv{ConvDim: 8448, DConv: 4, DType: windows.BFloat16})
//
// OfModel declares what is known about the layers of a windows.Model.
//
// A resource is *managed* if it lies in the pages of an engine's pools: its contents are then
// cached, reused, offloaded and moved like all others. Otherwise it is *local*: memory on the
// device with one slot for each running sequence. The plan says which of the two each resource is,
// and why.
//
// # Rules
//
// TensorRT-LLM's AutoDeploy has one manager for one shape, and makes everything else local.
// Options.Strict follows its rules to the letter:
//
//   - The first PagedKV is the reference of the others. Those that agree with it in
//     head_dim, dtype, kv_factor and kv_layout are managed, also with other numbers
//     of heads; the rest are local.
//   - The first SSM is the reference of the others, which must agree in shape and
//     dtype.
//   - The first CausalConv is the reference of the others, which must agree in shape
//     and dtype; and conv_dim = head_dim·num_heads + 2·n_groups·d_state of the SSM
//     must hold for an integer n_groups ≥ 0, or all of them are local.
//   - State and Unpaged are local.
//
// Without Options.Strict these are managed, too:
//
//   - A PagedKV of another shape gets another pool.
//   - An SSM or CausalConv of another shape is part of another layer's state. How the two shapes
//     relate doesn't matter, since a state is only a number of bytes.
//   - A State marked as checkpointable is managed like these: it depends only on the tokens before
//     it, and may be copied.
//
// # Reuse
//
// A reused prefix must restore everything the layers keep of it. States are restored from
// checkpoints. A local resource can't be: a plan with one turns reuse off and names the resource.
//
// # Resize
//
// AutoDeploy measures a forward pass, then makes a new manager and loses all contents. Plan.Resize
// grows or shrinks an engine's pools in place: contents stay and running sequences go on.
package resources
