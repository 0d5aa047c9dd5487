package model

import (
	"fmt"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/weights"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Model is a language model: weights and what each layer does with them. It is
// read only once it is loaded; an Executor runs it.
type Model struct {
	Kind   string // model_type of the configuration
	Vocab  int
	Hidden int
	MaxLen int // tokens of the longest sequence that the model is made for

	Parameters int // numbers of all its tensors

	embed      *weights.Tensor
	embedScale float32   // 0: none
	positions  []float32 // learned, [position][hidden]; nil: none
	offset     int       // of positions
	embedNorm  *norm     // nil: none
	blocks     []block
	finalNorm  *norm // nil: none
	head       *linear
	logitCap   float32
	encoder    *encoder // nil: decoder only

	caches []cacheShape // of the layers that have a cache, in order
	cross  cacheShape   // of cross attention; heads 0: none
}

// cacheShape is what one layer has in the cache.
type cacheShape struct {
	heads, dim, window int
	factor             int // rows of a token for each head: 1 in latent attention, else 2
	layer              int // index of its block
}

// block is one layer.
type block struct {
	in        *norm // before the mixer
	mixer     mixer
	mixerNorm *norm // of the mixer's output; nil: none
	crossNorm *norm
	cross     *crossAttention // nil: none
	mlpNorm   *norm           // before the MLP; nil: the MLP reads what the mixer read
	mlp       mlp
	outNorm   *norm // of the MLP's output; nil: none
	shape     residual
}

// residual says how a block adds up.
type residual uint8

const (
	preNorm  residual = iota // x += mixer(norm(x)); x += mlp(norm(x))
	parallel                 // x += mixer(norm(x)) + mlp(norm(x))
	postNorm                 // x = norm(x + mixer(x)); x = norm(x + mlp(x))
)

// mixer is the part of a block that looks at other tokens. y may not be x.
type mixer interface {
	run(e *Executor, y, x []float32, rows int) error
}

// Recurrent tells whether the model has layers whose state blocks of tokens
// cannot restore: the engine has state pools for them.
func (m *Model) Recurrent() bool { return m.stateLen() > 0 }

// stateLen is how many numbers the states of all layers have.
func (m *Model) stateLen() int {
	n := 0
	for i := range m.blocks {
		if r, ok := m.blocks[i].mixer.(recurrent); ok {
			n += r.stateSize()
		}
	}
	return n
}

// Encodes tells whether the model has an encoder.
func (m *Model) Encodes() bool { return m.encoder != nil }

// Geometry is what the engine must know: the shape of the model's caches, the size
// of its states, and the attention window of each of its layers. Layers are blocks.
func (m *Model) Geometry(maxLen int, dtype windows.DType) (windows.Model, []int) {
	n := len(m.blocks)
	g := windows.Model{Layers: n, MaxSeqLen: maxLen, KVHeads: make([]int, n),
		Shapes: make([]windows.Shape, n)}
	limits := make([]int, n)
	for i := range limits {
		limits[i] = maxLen
	}
	for _, c := range m.caches {
		g.KVHeads[c.layer] = c.heads
		g.Shapes[c.layer] = windows.Shape{HeadDim: c.dim, KVFactor: c.factor, DType: dtype}
		if c.window > 0 {
			limits[c.layer] = c.window
		}
	}
	// States are float32 whatever the type of the cache: what is rounded once a
	// token would drift.
	for i := range m.blocks {
		if r, ok := m.blocks[i].mixer.(recurrent); ok {
			g.States = append(g.States, windows.State{Layers: []int{i}, Bytes: 4 * int64(r.stateSize())})
		}
	}
	if m.cross.heads > 0 {
		g.CrossLayers, g.CrossKVHeads, g.EncoderMaxLen = n, m.cross.heads, maxLen
	}
	return g, limits
}

// CheckTokens refuses tokens that the vocabulary does not have.
func (m *Model) CheckTokens(tokens []messages.Token) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= m.Vocab {
			return fmt.Errorf("token %d is %d, the vocabulary has %d", i, t, m.Vocab)
		}
	}
	return nil
}

// recurrent is a mixer with a state: numbers of fixed size that say all that it
// knows of the tokens so far. They are all zero before the first token.
type recurrent interface {
	mixer
	stateSize() int
}

// spanRoPE is the rotation of a layer with a table for the model's length.
func spanRoPE(
	style attention.RoPEStyle, inverse []float64, factor float64, maxLen int,
) *attention.RoPE {
	return attention.NewRoPE(style, inverse, factor, min(maxLen, maxRoPETable))
}

// maxRoPETable bounds the table of cosines: a model may be made for a million
// tokens that no one gives it.
const maxRoPETable = 8192

// Greedy is the token with the largest logit, the first of equal ones.
func Greedy(logits []float32) messages.Token {
	top := 0
	for i, x := range logits {
		if x > logits[top] {
			top = i
		}
	}
	return messages.Token(top)
}
