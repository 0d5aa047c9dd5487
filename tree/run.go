package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// run is the content of a node: n consecutive blocks. Its arrays have room on
// both sides, so that the shorter of two runs can always be moved to the
// longer one, whichever comes first:
//
//	ids     │ room │ b0 b1 … bn−1 │ room │
//	tokens  │ the same, tokensPerBlock for each block │
//	places  │ the same for pool 0 │ for pool 1 │ …
//
// A block stored in part is a run of its own: n is 1, part its tokens.
type run struct {
	arrays
	n    int32
	part int32 // tokens of a block stored in part; 0: whole blocks
}

// tokens are the tokens of node x, whose blocks are whole.
func (t *Tree) tokens(x int32) []messages.Token {
	r := &t.nodes[x].run
	return t.tokensIn(&r.arrays)[int(r.off)*t.tpb : int(r.off+r.n)*t.tpb]
}

// tokensAt are the tokens of block i of node x.
func (t *Tree) tokensAt(x, i int32) []messages.Token {
	r := &t.nodes[x].run
	if r.part > 0 {
		return t.tokensIn(&r.arrays)[:r.part]
	}
	at := int(r.off+i) * t.tpb
	return t.tokensIn(&r.arrays)[at : at+t.tpb]
}

// ids are the blocks of node x.
func (t *Tree) ids(x int32) []protocol.BlockID {
	r := &t.nodes[x].run
	return r.ids()[r.off : r.off+r.n]
}

// locations are where pool p keeps the blocks of node x.
func (t *Tree) locations(x int32, p int) []messages.Location {
	r := &t.nodes[x].run
	return r.locations(p)[r.off : r.off+r.n]
}

// margins is room for blocks before and behind a run.
type margins struct{ front, back int32 }

// move gives the run of node x new arrays with the given room.
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

// spare is the room that a run which grows gets beyond what it needs: a quarter
// more, a short one as much again, so that one that grows again and again is
// moved rarely.
func extraRoom(n int32) int32 { return max(n/4, min(n, 16)) }

// reserve makes room.
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

// trim gives memory back when most of the arrays is room.
func (t *Tree) shrink(x int32) {
	r := &t.nodes[x].run
	if r.part == 0 && r.room > 4*r.n+8 {
		t.reallocate(x, margins{})
	}
}

// absorb copies the blocks of a segment into the room that node x's arrays
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

// extend adds new blocks, which no pool holds, with these tokens to the end of
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

func fillNowhere(l []messages.Location) {
	for i := range l {
		l[i] = messages.Nowhere
	}
}

// resize gives a slice of n elements, the old array where it is large enough.
func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }
