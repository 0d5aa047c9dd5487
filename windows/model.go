package windows

import (
	"math"
	"slices"
)

// The bounds of a model. They keep absurd numbers from costing memory or
// overflowing before they are refused: no model comes near.
const (
	MaxLayers     = 4096
	MaxSeqLenEver = math.MaxInt32
)

// Model is what the cache must know of a model: shapes only. Package hfconfig
// reads a Model from the files of a published model.
type Model struct {
	// Layers is the number of layers, those without keys and values included.
	Layers int
	// KVHeads is one number for all layers, or one for each. 0 stands for a layer
	// without keys and values of its own: it has a state (States), reads another
	// layer's keys and values (SharedKV), or keeps nothing (NoCache).
	KVHeads []int
	// MaxSeqLen is the length of the longest sequence in tokens, prompt and
	// answer.
	MaxSeqLen int

	// The shape of the keys and values of every layer; see Shape for the fields.
	HeadDim   int
	ValueDim  int
	KVFactor  int
	DType     DType
	Layout    Layout
	SideBytes int
	// Shapes, if not empty, has a shape for each layer and replaces the fields
	// above. The shape of a layer without keys and values is not used.
	Shapes []Shape

	// AttentionChunk is one number for all layers, or one for each; nil: none. In
	// a layer with chunked attention, a token attends to its own chunk only: with
	// chunk c, the token at position p to [⌊p/c⌋·c, p]. 0 stands for a layer
	// without chunks. The limited windows of a configuration and chunks exclude
	// each other in one layer. A chunk of MaxSeqLen or more is full attention.
	AttentionChunk []int
	// SharedKV, if not empty, has an entry for each layer: the layer whose keys
	// and values it reads, which is the layer itself if it has its own.
	SharedKV []int
	// NoCache lists the layers that keep nothing, such as those that consist of a
	// feed-forward network only.
	NoCache []int
	// States are the recurrent layers.
	States []State

	// The decoder of an encoder–decoder model also attends to the encoder's
	// output: in its first CrossLayers layers, with CrossKVHeads heads, to at
	// most EncoderMaxLen tokens. All are 0 for other models.
	CrossLayers   int
	CrossKVHeads  int
	EncoderMaxLen int
}

// Shape is the shape of the keys and values of one layer, heads excepted.
type Shape struct {
	// HeadDim is the number of elements of a key of one head, and of a value
	// unless ValueDim says otherwise. With a KVFactor of 1 it is the length of
	// the latent vector.
	HeadDim int
	// ValueDim is the number of elements of a value of one head; 0: HeadDim.
	ValueDim int
	// KVFactor is 2 if a token has keys and values, and 1 if it has one vector
	// for both, as in multi-head latent attention; 0 stands for 2.
	KVFactor int
	// DType is the element type.
	DType DType
	// Layout is the order of dimensions; "": HND.
	Layout Layout
	// SideBytes are further bytes for each token, such as the keys of a sparse
	// attention's indexer. They are stored and moved with the page.
	SideBytes int
}

// State is a group of recurrent layers with states of one size. A layer's state
// is everything that it keeps of a sequence, whatever its length: the states of a
// selective state space model, of a causal convolution, of linear attention.
type State struct {
	Layers []int // in any order; a layer is in one group at most
	Bytes  int64 // of the state of one layer for one sequence
}

// StatesOf groups layers by the size of their states, of which 0 stands for none, in the order
// of the first layer of each size: each size is a pool.
func StatesOf(bytes []int64) []State {
	var states []State
	for l, n := range bytes {
		if n == 0 {
			continue
		}
		at := slices.IndexFunc(states, func(s State) bool { return s.Bytes == n })
		if at < 0 {
			at = len(states)
			states = append(states, State{Bytes: n})
		}
		states[at].Layers = append(states[at].Layers, l)
	}
	return states
}

// shape returns the shape of layer i of a valid model, with the stand-ins for
// defaults replaced.
func (m Model) shape(i int) Shape {
	s := Shape{m.HeadDim, m.ValueDim, m.KVFactor, m.DType, m.Layout, m.SideBytes}
	if len(m.Shapes) > 0 {
		s = m.Shapes[i]
	}
	if s.KVFactor == 0 {
		s.KVFactor = 2
	}
	if s.KVFactor == 1 {
		s.ValueDim = 0
	} else if s.ValueDim == 0 {
		s.ValueDim = s.HeadDim
	}
	if s.Layout == "" {
		s.Layout = HND
	}
	return s
}

// heads is the number of KV heads of layer i of a valid model, 0 for a layer
// that has no keys and values of its own.
func (m Model) heads(i int) int {
	if len(m.SharedKV) > 0 && m.SharedKV[i] != i {
		return 0
	}
	if len(m.KVHeads) > 1 {
		return m.KVHeads[i]
	}
	return m.KVHeads[0]
}

// chunk is the attention chunk of layer i of a valid model, 0 for none. A chunk
// that no sequence can outgrow is none.
func (m Model) chunk(i int) int {
	n := 0
	switch len(m.AttentionChunk) {
	case 0:
	case 1:
		n = m.AttentionChunk[0]
	default:
		n = m.AttentionChunk[i]
	}
	if n >= m.MaxSeqLen {
		return 0
	}
	return n
}

// Recurrent reports whether the model has recurrent layers.
func (m Model) Recurrent() bool { return len(m.States) > 0 }

// OnlyStates reports whether no layer has keys and values: the pools of such a model are
// all of states.
func (m Model) OnlyStates() bool {
	for i := range m.Layers {
		if m.heads(i) > 0 {
			return false
		}
	}
	return true
}

// KVLayer returns the layer whose keys and values layer i of a valid model
// reads: i itself, or the layer with which it shares them. It is false for a
// layer without keys and values.
func (m Model) KVLayer(i int) (int, bool) {
	if len(m.SharedKV) > 0 {
		i = m.SharedKV[i]
	}
	return i, m.heads(i) > 0
}
