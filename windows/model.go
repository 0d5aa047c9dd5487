package windows

import (
	"fmt"
	"math"
)

// DType is the type of one element of a key or value.
type DType string

// The element types. The scales of the 8-bit ones are kept per layer, outside
// the pages.
const (
	Float32  DType = "float32"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16"
	FP8      DType = "fp8"
	Int8     DType = "int8"
)

// dtypeNames are the element types in the words of an error.
const dtypeNames = "float32, float16, bfloat16, fp8, int8"

// AutoDType as Config.DType takes the model's own element type.
const AutoDType = "auto"

// Bytes is the size of one element, 0 for an unknown type.
func (d DType) Bytes() int {
	switch d {
	case Float32:
		return 4
	case Float16, BFloat16:
		return 2
	case FP8, Int8:
		return 1
	default:
		return 0
	}
}

// Known tells whether the type is one of those above.
func (d DType) Known() bool { return d.Bytes() > 0 }

// The bounds of a model. They only keep absurd numbers from costing memory or
// overflowing before they are refused: no model comes near.
const (
	MaxLayers     = 4096
	MaxSeqLenEver = math.MaxInt32
)

// Model is what the cache must know of a model: nothing but shapes.
type Model struct {
	Layers    int
	KVHeads   []int   // one for all layers, or one for each
	HeadDim   int     // elements of a key or value of one head
	HeadDims  []int   // optional: one for each layer, in place of HeadDim
	DType     DType   // of keys and values
	DTypes    []DType // optional: one for each layer, in place of DType
	MaxSeqLen int     // tokens of the longest sequence, prompt and answer

	// The decoder of an encoder–decoder model also attends to the encoder's
	// output: in its first CrossLayers layers, with CrossKVHeads heads, to at
	// most EncoderMaxLen tokens. All are 0 for other models.
	CrossLayers   int
	CrossKVHeads  int
	EncoderMaxLen int
}

// layer is the part of a pool's identity that the model gives.
type layer struct {
	heads, dim int
	dtype      DType
}

// layer gives the shape of layer i of a valid model.
func (m Model) layer(i int) layer {
	l := layer{heads: m.KVHeads[0], dim: m.HeadDim, dtype: m.DType}
	if len(m.KVHeads) > 1 {
		l.heads = m.KVHeads[i]
	}
	if len(m.HeadDims) > 0 {
		l.dim = m.HeadDims[i]
	}
	if len(m.DTypes) > 0 {
		l.dtype = m.DTypes[i]
	}
	return l
}

// problems lists what is wrong with the model, one sentence each.
func (m Model) problems() []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	if m.Layers < 1 || m.Layers > MaxLayers {
		say("layers %d is not between 1 and %d", m.Layers, MaxLayers)
	}
	if m.MaxSeqLen < 1 || m.MaxSeqLen > MaxSeqLenEver {
		say("max_seq_len %d is not between 1 and %d", m.MaxSeqLen, MaxSeqLenEver)
	}
	if n := len(m.KVHeads); n == 0 || n != 1 && n != m.Layers {
		say("kv_heads has %d values for %d layers", n, m.Layers)
	}
	for i, h := range m.KVHeads {
		if h < 1 {
			say("kv_heads %s is not 1 or more", at(h, i, len(m.KVHeads)))
		}
	}
	return append(append(ps, m.elementProblems()...), m.encoderProblems()...)
}

// elementProblems lists what is wrong with head sizes and element types.
func (m Model) elementProblems() []string {
	var ps []string
	say := func(format string, args ...any) { ps = append(ps, fmt.Sprintf(format, args...)) }
	if len(m.HeadDims) == 0 && m.HeadDim < 1 {
		say("head_dim %d is not 1 or more", m.HeadDim)
	}
	if n := len(m.HeadDims); n != 0 && n != m.Layers {
		say("head_dim has %d values for %d layers", n, m.Layers)
	}
	for i, d := range m.HeadDims {
		if d < 1 {
			say("head_dim %s is not 1 or more", at(d, i, 0))
		}
	}
	if len(m.DTypes) == 0 && !m.DType.Known() {
		say("dtype %q of the model is not one of %s", m.DType, dtypeNames)
	}
	if n := len(m.DTypes); n != 0 && n != m.Layers {
		say("dtype has %d values for %d layers", n, m.Layers)
	}
	for i, d := range m.DTypes {
		if !d.Known() {
			say("dtype %q of layer %d is not one of %s", d, i, dtypeNames)
		}
	}
	return ps
}

// at names value v of a list, with its layer unless it stands for all.
func at(v, i, n int) string {
	if n == 1 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%d of layer %d", v, i)
}
