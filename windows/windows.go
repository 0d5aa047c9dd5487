package windows

import (
	"strconv"

	"github.com/kvactor/kvactor/messages"
)

// Pool is a set of layers whose keys and values live in the same pages: they
// share attention window, KV heads, head size and element type. What one layer
// of a pool needs, all of them need.
type Pool struct {
	ID     messages.PoolID
	Name   string // w<window>h<heads>, then .2, .3 for pools that would bear the same name
	Window int    // tokens that a token attends to, itself included; 0: full attention
	Sink   int    // leading tokens that never leave the window; 0 with full attention

	KVHeads, HeadDim int
	DType            DType
	Layers           []int // ascending
	TokensPerBlock   int
}

// PageBytes is the memory of one block in all layers of the pool: keys and
// values, [layer][K,V][head][token][dim].
func (p Pool) PageBytes() int64 {
	return 2 * int64(len(p.Layers)) * int64(p.KVHeads) * int64(p.TokensPerBlock) * int64(p.HeadDim) * int64(p.DType.Bytes())
}

// Full tells whether the pool attends to everything.
func (p Pool) Full() bool { return p.Window == 0 }

// SinkBlocks is the number of leading blocks that hold sink tokens: they are
// needed at every position. It is 0 with full attention, which needs them anyway.
func (p Pool) SinkBlocks() int {
	if p.Full() {
		return 0
	}
	return blocksOf(p.Sink, p.TokensPerBlock)
}

// FirstNeeded is the index of the first block, sinks apart, that the token at
// position attends to: 0 with full attention, else the block of token
// max(0, position−w+1).
func (p Pool) FirstNeeded(position int) int {
	if p.Full() {
		return 0
	}
	return max(0, position-p.Window+1) / p.TokensPerBlock
}

// Needs tells whether the token at position attends to a token before it that
// lies in block. A prompt's match of length L is whole in this pool if every
// block that position L needs is there.
func (p Pool) Needs(block, position int) bool {
	// Divided, not multiplied: block may be any number.
	if position <= 0 || block < 0 || block > (position-1)/p.TokensPerBlock {
		return false
	}
	return block >= p.FirstNeeded(position) || block < p.SinkBlocks()
}

// FirstKept is the index of the first block, sinks apart, that a sequence with
// so many computed tokens still holds. The last token of every block before it
// lies before position computed−w+1, so no later token attends to it.
//
// A block is needed as long as one of its tokens is, hence FirstKept is
// FirstNeeded of the next position: the two names ask for a reason each.
func (p Pool) FirstKept(computed int) int { return p.FirstNeeded(computed) }

// Describe gives what a host is told of the pool, with its page counts.
func (p Pool) Describe(c Counts) messages.PoolInfo {
	return messages.PoolInfo{
		ID: p.ID, Name: p.Name, Window: p.Window, KVHeads: p.KVHeads, Layers: p.Layers,
		DType: string(p.DType), HeadDim: p.HeadDim,
		PageBytes: p.PageBytes(), PrimaryPages: c.Primary, SecondaryPages: c.Secondary,
	}
}

// String draws the pool on one line.
func (p Pool) String() string {
	s := p.Name + " " + string(p.DType) + "x" + strconv.Itoa(p.HeadDim) + " layers"
	for _, l := range p.Layers {
		s += " " + strconv.Itoa(l)
	}
	if p.Sink > 0 {
		s += " sink " + strconv.Itoa(p.Sink)
	}
	return s + " page " + strconv.FormatInt(p.PageBytes(), 10) + " B"
}

// blocksOf is ⌈tokens/perBlock⌉ without the sum that could overflow.
func blocksOf(tokens, perBlock int) int {
	if tokens <= 0 {
		return 0
	}
	return (tokens-1)/perBlock + 1
}
