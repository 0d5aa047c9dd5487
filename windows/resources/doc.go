// Package resources plans the memory of a model whose layers declare what they
// keep, as the layers of an inference framework do: paged keys and values, states
// of selective state space models and of convolutions, other states, rows for
// each token. A layer can read the keys and values of another one.
//
//	c, err := resources.Declare(layers...) // of the host: each has a method Keeps
//	plan, err := c.Plan(resources.Options{Cache: windows.DefaultConfig(), MaxSeqLen: 8192, MaxSequences: 64})
//	fmt.Print(plan)
//	engine, err := kvactor.OpenPlan(plan, device)
//
// Collection.Add declares resources one by one:
//
//	c.Add("kv_cache", 0, resources.PagedKV{NumKVHeads: 8, HeadDim: 128, DType: windows.BFloat16})
//	c.Add("ssm_state", 1, resources.SSM{NumHeads: 128, HeadDim: 64, DState: 128, DType: windows.Float32})
//	c.Add("conv_state", 1, resources.CausalConv{ConvDim: 8448, DConv: 4, DType: windows.BFloat16})
//
// OfModel declares what is known of the layers of a windows.Model.
//
// A resource is *managed* if it lies in the pages of an engine's pools: then its
// contents are cached, reused, offloaded and moved like all others. Otherwise it
// is *local*: memory on the device with one slot for each running sequence. The
// plan says for each resource what it is and why.
//
// # Rules
//
// TensorRT-LLM's AutoDeploy has one manager of one shape and makes local what does
// not fit it. Options.Strict follows its rules to the letter:
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
// Without it, what is local there only for the manager's sake is managed here:
//
//   - A PagedKV of another shape is another pool.
//   - An SSM or CausalConv of another shape is part of another layer's state; the
//     relation of the two shapes does not matter, since a state is so many bytes.
//   - A State that is marked as a checkpointable one is managed like these: it
//     depends on the tokens before it only and may be copied.
//
// # Reuse
//
// A reused prefix must bring all that the layers know of it. States do, by
// checkpoints. A local resource does not: a plan with one turns reuse off and says
// which resource is the reason.
//
// # Resize
//
// AutoDeploy measures a forward pass, then makes a new manager, which loses all
// contents. Plan.Resize makes an engine's pools grow or shrink in place: contents
// stay and running sequences go on.
package resources
