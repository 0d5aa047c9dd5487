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
// chunk and the workers. An output of a matrix product adds its products along the
// inputs, in their order, each rounded to float32; Gonum does so with vector
// instructions on amd64. Quantized weights become float32 when they are loaded.
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
