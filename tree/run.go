package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// run is the content of a node: n consecutive blocks. Its arrays have room on both
// sides, so that the shorter of two runs can always be copied to the longer one,
// whichever of them is the first:
//
//	ids        │ room │ b0 b1 … bn−1 │ room │
//	tokens     │ the same, tokensPerBlock for each block │
//	locations  │ the same for pool 0 │ for pool 1 │ …
//
// A block stored in part is a run of its own: n is 1, part its number of tokens.
type run struct {
	arrays
	// off + n is at most room. A run with part > 0 has n 1 and off 0.
	n    int32
	part int32 // tokens of a block stored in part; 0: whole blocks
}

// tokens returns the tokens of node x, whose blocks are whole. A run stored in part
// must not be asked: the rest of its block is whatever was in the arrays before.
// tokensAt and tokensFrom serve both kinds.
func (t *Tree) tokens(x int32) []messages.Token {
	r := &t.nodes[x].run
	return t.tokensIn(&r.arrays)[int(r.off)*t.tpb : int(r.off+r.n)*t.tpb]
}

// tokensAt returns the tokens of block i of node x.
func (t *Tree) tokensAt(x, i int32) []messages.Token {
	r := &t.nodes[x].run
	if r.part > 0 {
		return t.tokensIn(&r.arrays)[:r.part]
	}
	at := int(r.off+i) * t.tpb
	return t.tokensIn(&r.arrays)[at : at+t.tpb]
}

// ids returns the ids of the blocks of node x. The slice is valid until the run is
// reallocated, split or merged.
func (t *Tree) ids(x int32) []protocol.BlockID {
	r := &t.nodes[x].run
	return r.ids()[r.off : r.off+r.n]
}

// locations returns where pool p keeps the blocks of node x.
func (t *Tree) locations(x int32, p int) []protocol.Location {
	r := &t.nodes[x].run
	return r.locations(p)[r.off : r.off+r.n]
}

// margins is room for blocks before and behind a run.
type margins struct{ front, back int32 }

// reallocate copies the run of node x to arrays with the given room on both sides.
func (t *Tree) reallocate(x int32, m margins) {
	r := &t.nodes[x].run
	t.moved += int(r.n)
	next := run{arrays: t.newArrays(int(m.front + r.n + m.back)), n: r.n}
	next.off = m.front
	// The old arrays are recycled last: taking them for next would overwrite what is
	// copied.
	copy(t.tokensIn(&next.arrays)[int(m.front)*t.tpb:], t.tokens(x))
	copy(next.ids()[m.front:], t.ids(x))
	for p := range t.pools {
		copy(next.locations(p)[m.front:], t.locations(x, p))
	}
	t.recycle(r.arrays)
	*r = next
}

// extraRoom returns the room that a run which grows gets beyond what it needs: a
// quarter more, a short run as much again. A run that grows block by block is then
// copied a logarithmic number of times.
func extraRoom(n int32) int32 { return max(n/4, min(n, 16)) }

// reserve makes room on both sides of the run of node x. Only the side that is asked
// for gets extra room: a run grows at its end, and at its front only when a merge
// puts a shorter run before it.
func (t *Tree) reserve(x int32, m margins) {
	r := &t.nodes[x].run
	have := margins{front: r.off, back: r.room - r.off - r.n}
	if have.front >= m.front && have.back >= m.back {
		return
	}
	if m.front > 0 {
		m.front += extraRoom(r.n)
	} else {
		m.back += extraRoom(r.n)
	}
	t.reallocate(x, m)
}

// shrink copies the run of node x to smaller arrays when most of its arrays is room.
// The limit is above what reserve and the array pool leave to a run, so a run that
// loses and gains a block in turn is not copied each time. Without shrink a long
// prompt that loses all but its first blocks would keep the memory of all.
func (t *Tree) shrink(x int32) {
	r := &t.nodes[x].run
	if r.part == 0 && r.room > 4*r.n+8 {
		t.reallocate(x, margins{})
	}
}

// copyBlocks copies the blocks of a segment into the room that the arrays of node x
// have at index at. It copies tokens, ids and locations only: the caller sets n, off
// and depth of both nodes and moves the counts by relabel.
func (t *Tree) copyBlocks(x int32, s segment, at int32) {
	to, from := &t.nodes[x].run, &t.nodes[s.node].run
	n := s.hi - s.lo
	t.moved += int(n)
	copy(t.tokensIn(&to.arrays)[int(at)*t.tpb:int(at+n)*t.tpb], t.tokensIn(&from.arrays)[int(from.off+s.lo)*t.tpb:])
	copy(to.ids()[at:at+n], t.ids(s.node)[s.lo:])
	for p := range t.pools {
		copy(to.locations(p)[at:at+n], t.locations(s.node, p)[s.lo:])
	}
}

// extend adds new blocks with these tokens, which no pool holds yet, to the end of
// the run of node x.
func (t *Tree) extend(x int32, tokens []messages.Token) {
	n := int32(len(tokens) / t.tpb)
	r := &t.nodes[x].run
	at := r.off + r.n
	// A new node takes arrays that begin with the tokens. All others copy them behind
	// the run.
	if r.room == 0 {
		r.arrays = t.newArraysOf(tokens)
	} else {
		t.reserve(x, margins{back: n})
		at = r.off + r.n
		copy(t.tokensIn(&r.arrays)[int(at)*t.tpb:], tokens)
	}
	for p := range t.pools {
		fillNowhere(r.locations(p)[at : at+n])
	}
	// ids and locations are written behind the run first; n makes them part of it.
	// newBlocks makes no node, so r stays valid.
	t.newBlocks(r.ids()[at:at+n], x, t.nodes[x].depth+r.n)
	r.n += n
	// Now the run has the blocks, which the record is made from.
	t.recordEntered(x, r.n-n)
	t.symbols.retain(tokens)
}

// fillNowhere makes locations those of blocks that a pool does not hold. Arrays come
// from the pool with the locations of an earlier run, so a run that skipped this
// would hold pages of others.
func fillNowhere(l []protocol.Location) {
	for i := range l {
		l[i] = protocol.Nowhere
	}
}

// resize returns a slice of n elements in the array of s, if that is large enough.
// The elements are whatever was there. It is for slices of answers and scratch, which
// are overwritten in full.
func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }
