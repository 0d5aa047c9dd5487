// Package weights reads the tensors of a model: safetensors and GGUF files. A
// tensor keeps the file's bytes and gives float32 numbers when it is asked,
// whatever they are stored as; shapes are [out, in] as Hugging Face writes them.
//
// Both readers are our own. The formats are a header and offsets, and the
// libraries at hand either read GGUF headers alone, with 37 modules of
// dependencies, or are an inference engine's own: see docs/adr/0007.
package weights
