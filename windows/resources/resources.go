package resources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvactor/kvactor/windows"
)

// Resource is what a layer keeps for the tokens of a sequence. The types below
// implement it; no others can, because a plan must know what each of them is to decide
// where it can lie. They are plain values without memory of their own: two layers may
// add the same one.
type Resource interface {
	fmt.Stringer
	// problem is a sentence about the first wrong value; "": there is none.
	problem() string
}

// array is a resource of elements that lie one behind the other: states, and rows of a
// sequence of so many tokens.
type array interface {
	array(tokens int) (shape []int, dtype windows.DType)
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
func (r SSM) String() string { return "SSM state " + measures(r) }

// String is the resource in the words of the plan.
func (r CausalConv) String() string { return "convolution state " + measures(r) }

// String is the resource in the words of the plan.
func (r State) String() string {
	if r.Checkpointable {
		return "state " + measures(r) + ", checkpointable"
	}
	return "state " + measures(r)
}

// String is the resource in the words of the plan.
func (r Unpaged) String() string {
	return "a row of " + dims(r.TokenShape) + " " + string(r.DType) + " a token"
}

// measures are the shape and the type of a state.
func measures(a array) string {
	shape, dtype := a.array(0)
	return dims(shape) + " " + string(dtype)
}

// dims draws a shape.
func dims(shape []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", " x ")
}

func (r SSM) array(int) ([]int, windows.DType) {
	return []int{r.NumHeads, r.HeadDim, r.DState}, r.DType
}

func (r CausalConv) array(int) ([]int, windows.DType) {
	return []int{r.ConvDim, r.DConv - 1}, r.DType
}

func (r State) array(int) ([]int, windows.DType) { return slices.Clone(r.Shape), r.DType }

func (r Unpaged) array(tokens int) ([]int, windows.DType) {
	return append([]int{tokens}, r.TokenShape...), r.DType
}

// bytes is the size of a state. Sizes cannot overflow: Add has checked the dimensions.
func bytes(r Resource) int64 {
	shape, dtype := r.(array).array(0)
	elements := 1
	for _, n := range shape {
		elements *= n
	}
	return dtype.RowBytes(elements)
}

// atLeast is the problem of a named number, "" if it is in its range. The names are those of
// the document's handlers.
func atLeast(least int, name string, n int) string {
	// One sentence for both ends: an author sees the range at once.
	if n < least || n > maxDim {
		return fmt.Sprintf("%s %d is not between %d and %d", name, n, least, maxDim)
	}
	return ""
}

// maxDim bounds each dimension, so that products do not overflow unnoticed.
const maxDim = 1 << 20

// typeProblem is the problem of an element type.
func typeProblem(d windows.DType, scaled bool) string {
	// Only keys and values have the scales that NVFP4 needs.
	if !d.Known() || d == windows.NVFP4 && !scaled {
		return fmt.Sprintf("dtype %q is not known", d)
	}
	return ""
}

// shapeProblem is the problem of the dimensions of a shape together: their product must not
// exceed what a page may have.
func shapeProblem(name string, shape ...int) string {
	if len(shape) == 0 {
		return name + " is empty"
	}
	product := 1
	for _, n := range shape {
		if s := atLeast(1, name, n); s != "" {
			return s
		}
		if product *= n; product > maxElements {
			return fmt.Sprintf("%s has more than %d elements", name, maxElements)
		}
	}
	return ""
}

// maxElements bounds a state or a row.
const maxElements = 1 << 34

func (r PagedKV) problem() string {
	if s := cmp.Or(atLeast(1, "num_kv_heads", r.NumKVHeads), atLeast(1, "head_dim", r.HeadDim),
		typeProblem(r.DType, true)); s != "" {
		return s
	}
	switch l := r.layout(); {
	case r.KVFactor < 0 || r.KVFactor > 2:
		return fmt.Sprintf("kv_factor %d is not 1 or 2", r.KVFactor)
	case l != windows.HND && l != windows.NHD:
		return fmt.Sprintf("kv_layout %q is not one of HND, NHD", l)
	case r.ValueDim != 0 && atLeast(1, "value_dim", r.ValueDim) != "":
		return atLeast(1, "value_dim", r.ValueDim)
	case r.SideBytes != 0 && atLeast(1, "side_bytes", r.SideBytes) != "":
		return atLeast(1, "side_bytes", r.SideBytes)
	// A window of 1 is the token itself: nothing would be kept.
	case r.Window < 0 || r.Window == 1:
		return fmt.Sprintf("window %d is neither 0 nor 2 or more", r.Window)
	case r.Chunk < 0 || r.Chunk == 1:
		return fmt.Sprintf("chunk %d is neither 0 nor 2 or more", r.Chunk)
	}
	return ""
}

// problem has none: Add knows the layers.
func (r SharedKV) problem() string { return "" }

func (r SSM) problem() string {
	return cmp.Or(atLeast(1, "num_heads", r.NumHeads), atLeast(1, "head_dim", r.HeadDim),
		atLeast(1, "d_state", r.DState), typeProblem(r.DType, false),
		shapeProblem("state_shape", r.NumHeads, r.HeadDim, r.DState))
}

func (r CausalConv) problem() string {
	// A convolution over one input keeps none.
	return cmp.Or(atLeast(1, "conv_dim", r.ConvDim), atLeast(2, "d_conv", r.DConv),
		typeProblem(r.DType, false))
}

func (r State) problem() string {
	return cmp.Or(shapeProblem("shape", r.Shape...), typeProblem(r.DType, false))
}

func (r Unpaged) problem() string {
	return cmp.Or(shapeProblem("token_shape", r.TokenShape...), typeProblem(r.DType, false))
}
