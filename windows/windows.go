package windows

import (
	"slices"
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

// Kind is what the pages of a pool hold.
type Kind uint8

// The kinds of pools.
const (
	KindAttention Kind = iota // keys and values of a block of tokens
	KindState                 // recurrent states after the last token of a block
	KindCross                 // keys and values of a block of encoder tokens
)

// String is the kind in one word.
func (k Kind) String() string {
	switch k {
	case KindAttention:
		return "attention"
	case KindState:
		return "state"
	case KindCross:
		return "cross"
	default:
		return "kind " + strconv.Itoa(int(k))
	}
}

// Pool is a set of layers whose contents lie in the same pages. The layers of an
// attention pool share window or chunk, KV heads and shape; those of a state pool
// share the size of the state. What one layer of a pool needs, all of them need.
type Pool struct {
	ID   messages.PoolID
	Name string // w<window>h<heads>, c<chunk>h<heads>, state or cross_h<heads>; equal names get .2, .3
	Kind Kind

	Window int // tokens that a token attends to, itself included; 0: no window
	Sink   int // leading tokens that never leave the window; 0 without one
	Chunk  int // tokens of a chunk of attention; 0: no chunks

	// KVHeads and the shape of keys and values; 0 and "" in a state pool.
	KVHeads   int
	HeadDim   int
	ValueDim  int // 0: HeadDim, or none with a KVFactor of 1
	KVFactor  int // 0: 2
	DType     DType
	Layout    Layout // "": HND
	SideBytes int

	// StateBytes is the state of one layer: a page has those of all Layers one behind
	// the other. Checkpoints tells whether blocks have checkpoints beside the working
	// pages of sequences. Both are set in a state pool only.
	StateBytes  int64
	Checkpoints bool

	Layers         []int // ascending
	TokensPerBlock int
}

// Describe returns what a host is told of the pool, with its page counts.
func (p Pool) Describe(c PageCounts) messages.PoolInfo {
	return messages.PoolInfo{
		ID: p.ID, Name: p.Name, Kind: p.Kind.String(), Window: p.Window, Sink: p.Sink, Chunk: p.Chunk,
		KVHeads: p.KVHeads, Layers: slices.Clone(p.Layers), DType: string(p.DType), HeadDim: p.HeadDim,
		ValueDim: p.ValueDim,
		KVFactor: p.KVFactor, Layout: string(p.Layout), SideBytes: p.SideBytes,
		TokensPerBlock: p.TokensPerBlock,
		PageBytes:      p.PageBytes(), PrimaryPages: c.Primary, SecondaryPages: c.Secondary,
	}
}

// String draws the pool on one line.
func (p Pool) String() string {
	s := p.Name + " " + p.element() + " layers"
	for _, l := range p.Layers {
		s += " " + strconv.Itoa(l)
	}
	if p.Sink > 0 {
		s += " sink " + strconv.Itoa(p.Sink)
	}
	return s + " page " + strconv.FormatInt(p.PageBytes(), 10) + " B"
}

// element draws what a page holds for one layer: the type of the elements with
// the head size, or the size of the state.
func (p Pool) element() string {
	if p.Kind == KindState {
		return strconv.FormatInt(p.StateBytes, 10) + " B"
	}
	s := string(p.DType) + "x" + strconv.Itoa(p.HeadDim)
	switch {
	case p.KVFactor == 1:
		s += " latent"
	case p.values() != p.HeadDim:
		s += "," + strconv.Itoa(p.values())
	}
	if p.Layout == NHD {
		s += " NHD"
	}
	if p.SideBytes > 0 {
		s += "+" + strconv.Itoa(p.SideBytes) + " B"
	}
	return s
}
