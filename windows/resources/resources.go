package resources

import (
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// Resource is what a layer keeps for the tokens of a sequence. The types below
// implement it; no others can, because a plan must know what each of them is to decide
// where it can lie. They are plain values without memory of their own: two layers may
// add the same one.
type Resource interface {
	fmt.Stringer
	// problems are sentences about wrong values.
	problems() []string
	// slot is what a local one takes for a sequence of so many tokens, in bytes.
	slot(maxSeqLen int) int64
}

// PagedKV is the keys and values of a layer, in pages. It is the only resource that
// grows with the sequence and whose parts can be shared between sequences.
type PagedKV struct {
	// Shape of a token: NumKVHeads × HeadDim elements for each of KVFactor.
	NumKVHeads int
	HeadDim    int
	ValueDim   int // elements of a value; 0: HeadDim
	DType      windows.DType
	KVFactor   int            // 2: keys and values; 1: one latent vector; 0: 2
	Layout     windows.Layout // HND or NHD; "": HND
	SideBytes  int            // further bytes a token, such as the keys of an indexer
	// A window or chunk only decides the pool: a page holds the same either way.
	Window int // tokens that a token attends to; 0: all
	Chunk  int // length of the chunks within which tokens attend; 0: none
}

// SharedKV says that a layer reads the keys and values of a layer before it, and keeps none.
type SharedKV struct{ Layer int }

// SSM is the state of a selective state space model: [heads][dim][state]. Its size
// does not depend on the length of the sequence, so it serves exactly the tokens that
// were computed when it was copied.
type SSM struct {
	NumHeads int
	HeadDim  int
	DState   int
	DType    windows.DType
}

// CausalConv is the state of a causal convolution: its last DConv−1 inputs,
// [channel][input].
type CausalConv struct {
	ConvDim int
	DConv   int
	DType   windows.DType
}

// State is any other state of a sequence, of which the plan knows the size only. It
// cannot know whether a copy of the bytes is enough to go on from them (they could name
// memory elsewhere), so the layer has to say it.
type State struct {
	Shape []int
	DType windows.DType
	// Checkpointable says that the state depends on the tokens before it only, and
	// that a copy of its bytes serves a sequence that begins with the same tokens.
	Checkpointable bool
}

// Unpaged is a row of a shape for each token of a sequence, in one piece as long as the
// longest sequence. It is for kernels that cannot follow page tables.
type Unpaged struct {
	TokenShape []int
	DType      windows.DType
}

// factor is KVFactor with its default.
func (r PagedKV) factor() int {
	// Zero is the default, so that a literal without the field is an ordinary layer.
	if r.KVFactor == 0 {
		return 2
	}
	return r.KVFactor
}

// pool has the keys and values of one layer for so many tokens in a page.
func (r PagedKV) pool(tokens int) windows.Pool {
	return windows.Pool{
		Kind: windows.KindAttention, Layers: []int{0}, KVHeads: r.NumKVHeads,
		HeadDim: r.HeadDim, ValueDim: r.ValueDim, KVFactor: r.factor(),
		DType: r.DType, Layout: r.layout(), SideBytes: r.SideBytes, TokensPerBlock: tokens,
	}
}

// split tells whether values have another size than keys.
func (r PagedKV) split() bool { return r.ValueDim > 0 && r.ValueDim != r.HeadDim }

// layout is Layout with its default.
func (r PagedKV) layout() windows.Layout {
	if r.Layout == "" {
		return windows.HND
	}
	return r.Layout
}

// String is the resource in the words of the plan.
func (r PagedKV) String() string {
	s := fmt.Sprintf("%d KV heads x %d %s, kv_factor %d, %s", r.NumKVHeads, r.HeadDim, r.DType,
		r.factor(), r.layout())
	if r.split() {
		s += fmt.Sprintf(", values of %d", r.ValueDim)
	}
	if r.SideBytes > 0 {
		s += fmt.Sprintf(", %d side bytes", r.SideBytes)
	}
	if r.Window > 0 {
		s += fmt.Sprintf(", window %d", r.Window)
	}
	if r.Chunk > 0 {
		s += fmt.Sprintf(", chunks of %d", r.Chunk)
	}
	return s
}

// String is the resource in the words of the plan.
func (r SharedKV) String() string { return fmt.Sprintf("the keys and values of layer %d", r.Layer) }

// String is the resource in the words of the plan.
func (r SSM) String() string {
	return fmt.Sprintf("SSM state %d x %d x %d %s", r.NumHeads, r.HeadDim, r.DState, r.DType)
}

// String is the resource in the words of the plan.
func (r CausalConv) String() string {
	return fmt.Sprintf("convolution state %d x %d %s", r.ConvDim, r.DConv-1, r.DType)
}

// String is the resource in the words of the plan.
func (r State) String() string {
	s := "state " + dims(r.Shape) + " " + string(r.DType)
	if r.Checkpointable {
		s += ", checkpointable"
	}
	return s
}

// String is the resource in the words of the plan.
func (r Unpaged) String() string {
	return "a row of " + dims(r.TokenShape) + " " + string(r.DType) + " a token"
}

// dims draws a shape.
func dims(shape []int) string {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, " x ")
}

// elements is the number of elements of a shape.
func elements(shape ...int) int {
	// The empty product is 1: a state of one element has no dimensions, which shape refuses before.
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// bytes is the size of a state, 0 for a resource that is none. Sizes cannot overflow:
// Add has checked the dimensions.
func bytes(r Resource) int64 {
	switch r := r.(type) {
	case SSM:
		return r.DType.RowBytes(elements(r.NumHeads, r.HeadDim, r.DState))
	case CausalConv:
		return r.DType.RowBytes(elements(r.ConvDim, r.DConv-1))
	case State:
		return r.DType.RowBytes(elements(r.Shape...))
	default:
		return 0
	}
}

// slot is the size of local keys and values: rows for the longest sequence, in one
// piece. A local one is not paged, because nothing would move its pages with those of
// the engine.
func (r PagedKV) slot(n int) int64 {
	return r.pool(n).PageBytes()
}
func (r SharedKV) slot(int) int64   { return 0 }
func (r SSM) slot(int) int64        { return bytes(r) }
func (r CausalConv) slot(int) int64 { return bytes(r) }
func (r State) slot(int) int64      { return bytes(r) }
func (r Unpaged) slot(n int) int64 {
	return int64(n) * r.DType.RowBytes(elements(r.TokenShape...))
}

// check collects problems of named numbers and an element type. The names are those of
// the document's handlers.
type check []string

func (c *check) atLeast(least int, name string, n int) {
	// One sentence for both ends: an author sees the range at once.
	if n < least || n > maxDim {
		*c = append(*c, fmt.Sprintf("%s %d is not between %d and %d", name, n, least, maxDim))
	}
}

// maxDim bounds each dimension, so that products do not overflow unnoticed.
const maxDim = 1 << 20

func (c *check) dtype(d windows.DType, scaled bool) {
	// Only keys and values have the scales that NVFP4 needs.
	if !d.Known() || d == windows.NVFP4 && !scaled {
		*c = append(*c, fmt.Sprintf("dtype %q is not known", d))
	}
}

// shape checks the dimensions of a shape together: their product must not exceed
// what a page may have.
func (c *check) shape(name string, shape []int) {
	if len(shape) == 0 {
		*c = append(*c, name+" is empty")
	}
	product := 1
	for _, n := range shape {
		c.atLeast(1, name, n)
		// Clamped, so that a wrong dimension cannot overflow the product before it is reported.
		if product *= max(1, min(n, maxDim)); product > maxElements {
			*c = append(*c, fmt.Sprintf("%s has more than %d elements", name, maxElements))
			return
		}
	}
}

// maxElements bounds a state or a row.
const maxElements = 1 << 34

func (r PagedKV) problems() []string {
	var c check
	c.atLeast(1, "num_kv_heads", r.NumKVHeads)
	c.atLeast(1, "head_dim", r.HeadDim)
	c.dtype(r.DType, true)
	if r.KVFactor < 0 || r.KVFactor > 2 {
		c = append(c, fmt.Sprintf("kv_factor %d is not 1 or 2", r.KVFactor))
	}
	if l := r.layout(); l != windows.HND && l != windows.NHD {
		c = append(c, fmt.Sprintf("kv_layout %q is not one of HND, NHD", l))
	}
	if r.ValueDim != 0 {
		c.atLeast(1, "value_dim", r.ValueDim)
	}
	if r.SideBytes != 0 {
		c.atLeast(1, "side_bytes", r.SideBytes)
	}
	// A window of 1 is the token itself: nothing would be kept.
	if r.Window < 0 || r.Window == 1 {
		c = append(c, fmt.Sprintf("window %d is neither 0 nor 2 or more", r.Window))
	}
	if r.Chunk < 0 || r.Chunk == 1 {
		c = append(c, fmt.Sprintf("chunk %d is neither 0 nor 2 or more", r.Chunk))
	}
	return c
}

// problems has none: Add knows the layers.
func (r SharedKV) problems() []string { return nil }

func (r SSM) problems() []string {
	var c check
	c.atLeast(1, "num_heads", r.NumHeads)
	c.atLeast(1, "head_dim", r.HeadDim)
	c.atLeast(1, "d_state", r.DState)
	c.dtype(r.DType, false)
	// Of dimensions that are wrong by themselves the product says nothing.
	if len(c) == 0 {
		c.shape("state_shape", []int{r.NumHeads, r.HeadDim, r.DState})
	}
	return c
}

func (r CausalConv) problems() []string {
	var c check
	c.atLeast(1, "conv_dim", r.ConvDim)
	// A convolution over one input keeps none.
	c.atLeast(2, "d_conv", r.DConv)
	c.dtype(r.DType, false)
	return c
}

func (r State) problems() []string {
	var c check
	c.shape("shape", r.Shape)
	c.dtype(r.DType, false)
	return c
}

func (r Unpaged) problems() []string {
	var c check
	c.shape("token_shape", r.TokenShape)
	c.dtype(r.DType, false)
	return c
}
