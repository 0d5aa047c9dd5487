// Package model runs language models whose keys and values lie in the engine's
// pages and nowhere else, in plain Go on the processor.
//
//	weights   safetensors and GGUF files
//	   │
//	Load ── settings, builders by architecture ──▶ Model    weights in memory, what
//	   │                                             │       each layer computes
//	   │                                             ▼
//	Geometry ──▶ windows.Model, windows        Executor     one forward pass of a
//	             (how the engine is opened)                 batch over given pages
//
// # What a model is
//
// A Model is an embedding, blocks, a norm and a head. A block has a mixer, which
// alone looks at other tokens, perhaps cross attention, and an MLP. Builders make
// blocks of a configuration with Hugging Face's names; a GGUF file is given those
// names first. What a builder does not know it refuses by key.
//
// # One result, bit for bit
//
// Every number of a row is a function of that row, of the rows that attention
// sees, and of the state of recurrent layers, as package attention has it. So
// what a model answers does not depend on what was cached, nor on the batch, the
// chunk, the workers and the build. There are two kinds of matrix products:
//
//   - of float32 weights: an output adds its products along the inputs, in their
//     order, each rounded to float32;
//   - of quantized weights (Q4_0, Q4_1, Q4_K, Q8_0), which stay quantized in memory:
//     the inputs become integers, 32 with one scale, the largest of them with all
//     bits that it has as a float32. The sum of the products of 32 inputs is exact.
//     It is rounded once, and added along the inputs.
//
// Q6_K has a scale for 16 numbers and becomes float32 when it is loaded, as have
// matrices that are made of tensors of several types.
//
// # Speed without vector instructions
//
// An exact sum may be computed in any order, which is what makes plain Go fast: it
// looks sums of eight inputs up, by the bits of eight weights, in place of
// multiplying. See planes.go. The build with GOEXPERIMENT=simd multiplies 16 pairs
// of 16-bit integers at a time, see panels_amd64.go.
//
// # Recurrent layers
//
// Mamba-2 and the gated delta rule keep a state for each sequence, which blocks
// of tokens cannot restore. It lies in the sequence's working page, float32 in
// every type of the cache; the engine copies it to checkpoints, and a reused
// prompt begins with a copy of one. States step one token at a time, in prefill
// too, so chunks do not change bits. A step of drafts writes the state after each
// of them to a page of its own.
package model
