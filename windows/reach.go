package windows

// This file answers which blocks a position needs. Every part of the engine that
// asks this question asks here: the match, what a sequence drops when a window
// moves on, how far a sequence can be rewound, the router's mirror. A kind of
// attention is therefore added in one place.

// Reach is what the token at a position attends to. Together with the number of
// tokens in a block it answers which blocks are needed. The zero Reach is full
// attention.
type Reach struct {
	// Window is how many tokens a token attends to, itself included; 0: all.
	Window int
	// Sink is how many leading tokens every token attends to; 0 without a window.
	Sink int
	// Chunk makes a token attend to its own chunk only: the token at position p to
	// [⌊p/Chunk⌋·Chunk, p]; 0: no chunks. It excludes a window.
	Chunk int
	// State marks recurrent layers: to go on at a position they need the state at
	// this very position, which belongs to the block that ends there, and no other.
	State bool
}

// Full reports whether a token attends to everything before it.
func (r Reach) Full() bool { return r.Window == 0 && r.Chunk == 0 && !r.State }

// First is the first position, sinks excepted, that the token at position
// attends to. It does not fall when position rises, so what lies before it is not
// needed later either.
func (r Reach) First(position int) int {
	switch {
	case r.State:
		return max(0, position-1)
	case r.Chunk > 0:
		return position / r.Chunk * r.Chunk
	case r.Window > 0:
		return max(0, position-r.Window+1)
	default:
		return 0
	}
}

// extent is the largest number of tokens, sinks excepted, that a token attends
// to, itself included; 0: no limit.
func (r Reach) extent() int { return max(r.Window, r.Chunk) }

// Reach returns what the tokens of the pool attend to.
func (p Pool) Reach() Reach { return Reach{p.Window, p.Sink, p.Chunk, p.Kind == KindState} }

// Full reports whether the pool has full attention.
func (p Pool) Full() bool { return p.Reach().Full() }

// SinkBlocks is the number of leading blocks that hold sink tokens: they are
// needed at every position. It is 0 with full attention, which needs them anyway.
func (p Pool) SinkBlocks() int {
	if p.Window == 0 {
		return 0
	}
	return blocksOf(p.Sink, p.TokensPerBlock)
}

// FirstNeeded is the index of the first block, sinks excepted, that the token at
// position attends to: 0 with full attention, the block of token max(0,
// position−w+1) with a window, the block in which the chunk begins with chunks.
func (p Pool) FirstNeeded(position int) int {
	return p.Reach().First(position) / p.TokensPerBlock
}

// Needs reports whether the token at position attends to a token before it that
// lies in block. A prompt's match of length L is complete in this pool if every
// block that position L needs is there. A position that is a multiple of the
// chunk begins a new chunk and needs nothing.
func (p Pool) Needs(block, position int) bool {
	// The position is divided, not the block multiplied, because block may be any
	// number.
	if position <= 0 || block < 0 || block > (position-1)/p.TokensPerBlock {
		return false
	}
	if block < p.SinkBlocks() {
		return true
	}
	return p.Reach().First(position) < position && block >= p.FirstNeeded(position)
}

// FirstKept is the index of the first block, sinks excepted, that a sequence
// with so many computed tokens still holds. No later token attends to a token of
// the blocks before it.
//
// A block is held as long as one of its tokens is needed, hence FirstKept is
// FirstNeeded of the next position; the two names stand for two questions. A
// sequence holds no block of a state pool, only its working page.
func (p Pool) FirstKept(computed int) int {
	if p.Kind == KindState {
		return blocksOf(computed, p.TokensPerBlock)
	}
	return p.FirstNeeded(computed)
}

// Need is how many pages the pool takes for a sequence of so many tokens: all
// its blocks, but with a window at most ⌈(w+sink)/tpb⌉+1 and with chunks at most
// ⌈c/tpb⌉+1. The one more is for a window that does not begin at a block
// boundary, and for the block that a sequence begins before it drops the last
// chunk. A state pool takes the working page and, with reuse, a checkpoint.
func (p Pool) Need(tokens int) int {
	if p.Kind == KindState {
		if p.Checkpoints {
			return 2
		}
		return 1
	}
	all := blocksOf(tokens, p.TokensPerBlock)
	if p.Full() {
		return all
	}
	limit := p.Reach().extent() + p.Sink
	if limit < 0 { // the sum overflowed
		return all
	}
	return min(all, blocksOf(limit, p.TokensPerBlock)+1)
}

// PrefillReserve is how many pages a limited pool keeps for a prompt that is
// computed in pieces of so many tokens, a multiple of TokensPerBlock: those that
// the first token of a piece attends to, those of the piece, those of the sink.
// It is 0 for full attention, which takes all pages at once, and for a state
// pool, which needs no more than the working page.
func (p Pool) PrefillReserve(piece int) int {
	if p.Full() || p.Kind == KindState {
		return 0
	}
	return blocksOf(p.Reach().extent()-1, p.TokensPerBlock) + piece/p.TokensPerBlock + p.SinkBlocks()
}

// blocksOf is ⌈tokens/perBlock⌉, computed without a sum that could overflow.
func blocksOf(tokens, perBlock int) int {
	if tokens <= 0 {
		return 0
	}
	return (tokens-1)/perBlock + 1
}
