// Package host plays the application around the engine as far as bytes go: it
// says what the keys and values of a token are, writes them through the
// device's compute stream, and checks afterwards that every page holds them.
//
// No model is needed for that. The bytes of a token are a pseudo-random
// function of everything that would determine them in a real model, and of
// nothing else:
//
//	                chain: one 64-bit value a token
//	root ──▶ c₀ ──▶ c₁ ──▶ c₂ ──▶ …          cᵢ = next(cᵢ₋₁, tokenᵢ, coverᵢ)
//	 ▲        │      │      │
//	salt,     ▼      ▼      ▼
//	LoRA    bytes(c, layer, K or V, head)     one row of head_dim elements each
//
// So two pages agree if and only if namespace, multimodal content and all
// tokens up to theirs agree (but for collisions of 64-bit values, one in 2⁶⁴
// per pair). A page that holds a wrong prefix, the pages of two layers mixed
// up, a copy that stopped early, started late or ran before its source was
// written: each shows as a wrong row, named by layer, K or V, head and token.
//
// A page is laid out as the engine's partial copies assume (package windows
// has its size):
//
//	[layer of the pool][K, V][head][token of the block][head_dim] elements
//
// A Writer launches one kernel a step on a compute stream. It declares exactly
// what it touches: reads of the context, as attention would do, writes of the
// rows that the step computes. The rows that it reads are checked in the
// kernel, at the moment at which the stream comes to it: a page that arrives
// too late is seen even if its bytes are right in the end. A Verifier checks, between steps,
// what sequences and the tree claim to hold, in both tiers.
//
// One core writes or checks some 2.5 GB/s.
package host
