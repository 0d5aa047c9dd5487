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
	n    int32
	part int32 // tokens of a block stored in part; 0: whole blocks
}

// tokens returns the tokens of node x, whose blocks are whole.
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

// ids returns the ids of the blocks of node x.
func (t *Tree) ids(x int32) []protocol.BlockID {
	r := &t.nodes[x].run
	return r.ids()[r.off : r.off+r.n]
}

// locations returns where pool p keeps the blocks of node x.
func (t *Tree) locations(x int32, p int) []messages.Location {
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

// reserve makes room on both sides of the run of node x.
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

// shrink copies the run of node x to smaller arrays when most of its arrays is
// room.
func (t *Tree) shrink(x int32) {
	r := &t.nodes[x].run
	if r.part == 0 && r.room > 4*r.n+8 {
		t.reallocate(x, margins{})
	}
}

// copyBlocks copies the blocks of a segment into the room that the arrays of node x
// have at index at.
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
	t.newBlocks(r.ids()[at:at+n], x, t.nodes[x].depth+r.n)
	r.n += n
	t.recordEntered(x, r.n-n)
	t.symbols.retain(tokens)
}

// fillNowhere makes locations those of blocks that a pool does not hold.
func fillNowhere(l []messages.Location) {
	for i := range l {
		l[i] = messages.Nowhere
	}
}

// resize returns a slice of n elements in the array of s, if that is large enough.
// The elements are whatever was there.
func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }
