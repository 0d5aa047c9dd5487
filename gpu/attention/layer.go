package attention

import (
	"fmt"
	"math"
)

// Mask says which keys a query may see.
type Mask uint8

// The masks.
const (
	Causal Mask = iota // up to the query itself
	Full               // all: encoders and cross attention
)

// Layer is the attention of one layer of a model.
// It says nothing of the step, so one value serves all steps, and several kernels at once.
type Layer struct {
	Heads   int // of queries
	KVHeads int // a divisor of Heads
	// HeadDim is in numbers, as all sizes of this package that are not named in bytes.
	HeadDim int // of queries and keys
	// QScaling divides the scores beside √HeadDim; 0 means 1. Norm, if set, is
	// the factor of the scores itself.
	QScaling, Norm float64
	// Gemma 2 bounds its scores like this.
	Cap    float32 // scores become Cap · tanh(score / Cap); 0: none
	Mask   Mask
	Window int // keys that a query sees, itself included; 0: all
	Sinks  int // leading keys that are always seen, beside the window
	// CachePositions is StreamingLLM: RoPE turns keys and queries by their places
	// among the keys seen. The cache holds keys unturned. A context is dense.
	CachePositions bool
	// GPT-OSS has sink logits. They are no sink tokens: no key belongs to them.
	SinkLogits []float32 // learned, by head; nil: none
	Bias       Bias      // nil: none
	QKVBias    []float32 // of the projection, Q then K then V; nil: none
	RoPE       *RoPE     // nil: none
	// ValueDim above 0 is latent attention: a cached row is key and value at
	// once, its first ValueDim numbers are the value. The step has no V.
	ValueDim int
}

// Validate refuses a layer that cannot be computed.
// A kernel calls it at every step; that costs some comparisons.
func (l *Layer) Validate() error {
	switch {
	case l.Heads < 1 || l.KVHeads < 1 || l.Heads%l.KVHeads != 0:
		return fmt.Errorf("%d query heads on %d KV heads", l.Heads, l.KVHeads)
	case l.HeadDim < 1 || l.ValueDim < 0 || l.ValueDim > l.HeadDim:
		return fmt.Errorf("head size %d, values of %d", l.HeadDim, l.ValueDim)
	case l.Window < 0 || l.Sinks < 0 || l.Sinks > 0 && l.Window == 0:
		return fmt.Errorf("window %d with %d sink tokens", l.Window, l.Sinks)
	// A window counts from the query's position, which a full mask ignores.
	case l.Mask == Full && (l.Window > 0 || l.CachePositions):
		return fmt.Errorf("a full mask with a window")
	case l.CachePositions && l.RoPE == nil:
		return fmt.Errorf("positions in the cache without RoPE")
	case l.SinkLogits != nil && len(l.SinkLogits) != l.Heads:
		return fmt.Errorf("%d sink logits for %d heads", len(l.SinkLogits), l.Heads)
	case l.QKVBias != nil && len(l.QKVBias) != (l.Heads+2*l.KVHeads)*l.HeadDim:
		return fmt.Errorf("a QKV bias of %d numbers", len(l.QKVBias))
	case l.RoPE != nil && 2*len(l.RoPE.Inverse) > l.HeadDim:
		return fmt.Errorf("RoPE on %d of %d dimensions", 2*len(l.RoPE.Inverse), l.HeadDim)
	}
	return nil
}

// norm is the factor of the scores.
func (l *Layer) norm() float32 {
	if l.Norm != 0 {
		return float32(l.Norm)
	}
	// Computed in float64 and rounded once: the factor is part of the bits of every score.
	q := l.QScaling
	if q == 0 {
		q = 1
	}
	return float32(1 / (q * math.Sqrt(float64(l.HeadDim))))
}

// outDim is the size of a head's output.
func (l *Layer) outDim() int {
	if l.ValueDim > 0 {
		return l.ValueDim
	}
	return l.HeadDim
}

// span is what one query sees: keys [0, sinks) and [from, to), sinks ≤ from.
// Keys are numbered by their positions in the text.
type span struct{ sinks, from, to int }

// count is the number of keys seen.
func (s span) count() int { return s.sinks + s.to - s.from }

// sees gives the keys that the query at position sees.
func (l *Layer) sees(st *stream, position int) span {
	if l.Mask == Full {
		return span{to: st.keys}
	}
	s := span{to: position + 1}
	// With CachePositions a context is dense: it turns its keys by their true places.
	if l.Window > 0 && !(l.CachePositions && st.context) {
		s.from = max(0, position-l.Window+1)
		s.sinks = min(l.Sinks, s.from)
	}
	return s
}
