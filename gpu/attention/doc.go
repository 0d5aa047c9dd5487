// Package attention is a reference attention kernel in plain Go over the pages of the cache. It
// belongs to the host's side: the engine never imports it. The demo's models compute with it. Tests
// use it to show that what the engine says is cached gives the same numbers as computing it again.
//
// # A step
//
// A step computes the new tokens of several sequences at once. Metadata says how many tokens are
// new and how many are cached. A Plan is made from it once for all layers, and Kernel.Forward runs
// one layer:
//
//	Plan.Prepare(metadata)              once a step
//	  for each layer:
//	    Kernel.Forward                  bias, RoPE, K and V into the cache,
//	                                    then attention of all query rows
//
// A context of n new tokens after c cached ones has the queries c … c+n−1; a generation is the same
// with n = 1. One formula serves both.
//
// # What is computed
//
// Query head h of H reads KV head ⌊h·G/H⌋ of G.
//
//	s(j)   = norm · Σ q[d]·k[j][d]            norm = 1 / (q_scaling · √D)
//	s(j)   = cap · tanh(s(j) / cap)           with a cap
//	s(j)  += bias(h, p, j)                    ALiBi, relative or explicit bias
//	out    = Σ e^s(j)·v[j] / (Σ e^s(j) + e^sink(h))
//
// over the keys j that the query at position p sees: all up to p; with a window
// of w those above p−w and the first sink tokens; with a full mask every key.
//
// # One result, bit for bit
//
// The result for a row of a step depends only on that row and on the rows it sees. It doesn't
// depend on the batch, the chunk, the page that a token lies in, the number of workers, or what was
// reused. Therefore
//
//   - a dot product has one order of additions (see Dot), and work is divided
//     by rows and heads, never along a sum;
//   - keys are added in the order of positions, from the first one seen;
//   - softmax has no rescaling by blocks: all scores of a row are there before
//     the first value is added;
//   - K and V of the step's own tokens are read back from the cache, so that a
//     cache of 8 or 16 bits rounds them in the step that wrote them, too;
//   - products are converted to float32 before they are added, so that no
//     compiler fuses the two.
//
// # Caches
//
// Paged is the engine's cache: a page holds [layer][K, V][head][token][dim] of the layers of one
// pool, or one row a token for latent attention. Contiguous, Cyclic and Indirect are the other
// caches that TensorRT-LLM describes; tests compare them with Paged.
package attention
