package tree

import (
	"slices"
	"unsafe"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// run is the content of a node: n consecutive blocks. Its arrays have room on both
// sides, so that the shorter of two runs can always be copied to the longer one,
// whichever of them is the first:
//
//	ids        │ room │ b0 b1 … bn−1 │ room │
//	locations  │ the same for pool 0 │ for pool 1 │ …
//	tokens     │ the same, tokensPerBlock for each block │ or in a shared array
//
// A block stored in part is a run of its own: n is 1, part its number of tokens.
type run struct {
	arrays
	// off + n is at most room. A run with part > 0 has n 1 and off 0.
	n    int32
	part int32 // tokens of a block stored in part; 0: whole blocks
	// shared is the shared array that the tokens are in, or noArray; always noArray
	// for a block stored in part.
	shared int32
}

// tokens returns the tokens of node x, whose blocks are whole. A run stored in part
// must not be asked: the rest of its block is whatever was in the arrays before.
// tokensAt and tokensFrom serve both kinds.
func (t *arena) tokens(x int32) []messages.Token {
	first := t.firstToken(x)
	return unsafe.Slice(t.nodes[x].run.tokens, first+int(t.nodes[x].n)*t.tpb)[first:]
}

// firstToken returns where the tokens of a run begin in their array: in an array of
// the run at its first block, in a shared one, which has the whole prefix, at its depth.
func (t *arena) firstToken(x int32) int {
	nd := &t.nodes[x]
	if nd.shared != noArray {
		return int(nd.depth) * t.tpb
	}
	return int(nd.off) * t.tpb
}

// tokensAt returns the tokens of block i of node x.
func (t *arena) tokensAt(x, i int32) []messages.Token {
	r := &t.nodes[x].run
	if r.part > 0 {
		return unsafe.Slice(r.tokens, r.part)
	}
	at := t.firstToken(x) + int(i)*t.tpb
	return unsafe.Slice(r.tokens, at+t.tpb)[at:]
}

// tokensFrom returns the tokens of node x from block i on.
func (t *arena) tokensFrom(x, i int32) []messages.Token {
	if t.nodes[x].part > 0 {
		return t.tokensAt(x, 0)
	}
	return t.tokens(x)[int(i)*t.tpb:]
}

// ids returns the ids of the blocks of node x. The slice is valid until the run is
// reallocated, split or merged.
func (t *arena) ids(x int32) []protocol.BlockID {
	r := &t.nodes[x].run
	return r.ids()[r.off : r.off+r.n]
}

// tail returns the last block of a node, or NoBlock for a root.
func (t *arena) tail(x int32) protocol.BlockID {
	ids := t.ids(x)
	if len(ids) == 0 {
		return protocol.NoBlock
	}
	return ids[len(ids)-1]
}

// locations returns where pool p keeps the blocks of node x.
func (t *arena) locations(x int32, p int) []protocol.Location {
	r := &t.nodes[x].run
	return r.locations(p)[r.off : r.off+r.n]
}

// margins is room for blocks before and behind a run.
type margins struct{ front, back int32 }

// reallocate copies the run of node x to arrays with the given room on both sides.
func (t *arena) reallocate(x int32, m margins) { t.rebuild(x, m, t.nodes[x].shared) }

// rebuild copies the run of node x to arrays with the given room on both sides, with
// tokens in a shared array or, if that is noArray, of its own.
func (t *arena) rebuild(x int32, m margins, array int32) {
	r := &t.nodes[x].run
	t.moved += int(r.n)
	next := run{n: r.n, shared: array}
	room := int(m.front + r.n + m.back)
	if array == noArray {
		next.arrays = t.newArrays(room)
		copy(t.tokensIn(&next.arrays)[int(m.front)*t.tpb:], t.tokens(x))
	} else {
		next.arrays = t.newNumbers(room)
		next.tokens = t.shared.start(array)
	}
	next.off = m.front
	copy(next.ids()[m.front:], t.ids(x))
	for p := range t.pools {
		copy(next.locations(p)[m.front:], t.locations(x, p))
	}
	if r.shared != array {
		t.shared.count(array, int(r.n)*t.tpb)
		t.shared.count(r.shared, -int(r.n)*t.tpb)
	}
	// The old arrays are recycled last: taking them for next would overwrite what is
	// copied.
	t.recycle(r)
	*r = next
}

// refer makes the tokens of node x, which has whole blocks, those of a shared array,
// or with noArray its own.
func (t *arena) refer(x, array int32) {
	r := &t.nodes[x].run
	switch {
	case r.shared == array:
	case r.shared == noArray || array == noArray:
		t.rebuild(x, margins{front: r.off, back: r.room - r.off - r.n}, array)
	default:
		t.shared.count(array, int(r.n)*t.tpb)
		t.shared.count(r.shared, -int(r.n)*t.tpb)
		r.shared, r.tokens = array, t.shared.start(array)
	}
}

// extraRoom returns the room that a run which grows gets beyond what it needs: a
// quarter more, a short run as much again. A run that grows block by block is then
// copied a logarithmic number of times.
func extraRoom(n int32) int32 { return max(n/4, min(n, 16)) }

// reserve makes room on both sides of the run of node x. Only the side that is asked
// for gets extra room: a run grows at its end, and at its front only when a merge
// puts a shorter run before it.
func (t *arena) reserve(x int32, m margins) {
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
func (t *arena) shrink(x int32) {
	r := &t.nodes[x].run
	if r.part == 0 && r.room > 4*r.n+8 {
		t.reallocate(x, margins{})
	}
}

// copyBlocks copies the blocks of a segment into the room that the arrays of node x
// have at index at: ids, locations and, unless both runs refer to one shared array,
// tokens. The caller sets n, off and depth of both nodes and moves the counts by
// relabel.
func (t *arena) copyBlocks(x int32, s segment, at int32) {
	to := &t.nodes[x].run
	n := s.hi - s.lo
	t.moved += int(n)
	if to.shared == noArray {
		copy(t.tokensIn(&to.arrays)[int(at)*t.tpb:int(at+n)*t.tpb], t.tokens(s.node)[int(s.lo)*t.tpb:])
	}
	copy(to.ids()[at:at+n], t.ids(s.node)[s.lo:])
	for p := range t.pools {
		copy(to.locations(p)[at:at+n], t.locations(s.node, p)[s.lo:])
	}
}

// relabel notes where the blocks of a segment are that has been copied from another
// node, and moves what pools hold of them from the counts of that node to those of
// theirs. It costs the blocks of the segment times the pools. So the callers pass the
// shorter part, and the longer one keeps its node.
func (t *arena) relabel(s segment, from int32) {
	for _, b := range t.ids(s.node)[s.lo:s.hi] {
		t.index.node[b] = s.node
	}
	for p := range t.pools {
		for _, l := range t.locations(s.node, p)[s.lo:s.hi] {
			if _, tier, ok := l.Page(); ok {
				*t.count(s.node, p, tier)++
				*t.count(from, p, tier)--
			}
		}
	}
}

// addBlocks adds the blocks of a prompt that follow the run of node x to the run. No
// pool holds them. array is a shared array that begins with the prompt, in which the
// run, which is a part of the same prompt, is to be from now on; or noArray.
func (t *arena) addBlocks(x int32, prompt []messages.Token, array int32) {
	tokens := prompt[int(t.end(x))*t.tpb:]
	n := int32(len(tokens) / t.tpb)
	r := &t.nodes[x].run
	switch {
	case r.room > 0:
		t.refer(x, array)
		t.reserve(x, margins{back: n})
	case array != noArray:
		r.arrays, r.shared = t.newNumbers(int(n)), array
		r.tokens = t.shared.start(array)
	default:
		// A new node takes arrays that begin with the tokens. All others copy them
		// behind the run.
		r.arrays = t.newArraysOf(tokens)
	}
	at := r.off + r.n
	if array != noArray {
		t.shared.count(array, len(tokens))
	} else if at > 0 {
		copy(t.tokensIn(&r.arrays)[int(at)*t.tpb:], tokens)
	}
	for p := range t.pools {
		fillNowhere(r.locations(p)[at : at+n])
	}
	// ids and locations are written behind the run first; n makes them part of it.
	// nameBlocks makes no node, so r stays valid.
	t.nameBlocks(r.ids()[at:at+n], x, t.nodes[x].depth+r.n)
	r.n += n
}

// setPart makes the run of node x one block that is stored in part. It is not a case
// of addBlocks, since a block stored in part never grows: when the sequence goes on,
// the longer block becomes a sibling, and this one stays as it was computed. The
// arrays have room for one whole block, of which the first part tokens count.
func (t *arena) setPart(x int32, tokens []messages.Token) {
	nd := &t.nodes[x]
	nd.run = run{arrays: t.newArrays(1), n: 1, part: int32(len(tokens))}
	copy(t.tokensIn(&nd.arrays), tokens)
	t.nameBlocks(t.ids(x), x, nd.depth)
	for p := range t.pools {
		fillNowhere(t.locations(x, p))
	}
}

// removeBlocks removes the blocks from index n on from the run of node x, which no
// pool holds. The memory stays; shrink gives it back.
func (t *arena) removeBlocks(x, n int32) {
	nd := &t.nodes[x]
	t.freeBlocks(t.ids(x)[n:])
	t.shared.count(nd.shared, -int(nd.n-n)*t.tpb)
	nd.n = n
}

// moveFront makes the first i blocks of node x those of y, an empty node.
func (t *arena) moveFront(y, x, i int32) {
	t.inherit(y, x)
	t.reserve(y, margins{back: i})
	t.copyBlocks(y, segment{x, 0, i}, t.nodes[y].off)
	from, to := &t.nodes[x], &t.nodes[y]
	to.n, to.depth = i, from.depth
	from.off, from.n, from.depth = from.off+i, from.n-i, from.depth+i
	t.relabel(segment{y, 0, i}, x)
	t.shrink(x)
}

// moveRear makes the blocks of node x from i on those of y, an empty node.
func (t *arena) moveRear(y, x, i int32) {
	t.inherit(y, x)
	n := t.nodes[x].n - i
	t.reserve(y, margins{back: n})
	t.copyBlocks(y, segment{x, i, i + n}, t.nodes[y].off)
	from, to := &t.nodes[x], &t.nodes[y]
	to.n, to.depth = n, from.depth+i
	from.n = i
	t.relabel(segment{y, 0, n}, x)
	t.shrink(x)
}

// inherit gives node y, which takes blocks of x, what all nodes have in common that
// were one.
func (t *arena) inherit(y, x int32) {
	from, to := &t.nodes[x], &t.nodes[y]
	to.generations, to.fresh, to.cross, to.shared = from.generations, from.fresh, from.cross, from.shared
}

// joinable tells whether the run of node y may be joined to that of x, which it follows,
// to make one run. A shared array of y has the tokens of x too. Not joined are
//
//	a block stored in part, which is a run of its own;
//	a run with tokens of its own to one in a shared array: all tokens of x would have
//	to be copied. So there are fewer such nodes x than runs with tokens of their own.
func (t *arena) joinable(x, y int32) bool {
	return t.nodes[y].part == 0 && (t.nodes[x].shared == noArray || t.nodes[y].shared != noArray)
}

// joinBehind puts the blocks of y, which follow those of x, behind them, and leaves y
// without blocks.
func (t *arena) joinBehind(x, y int32) {
	t.joinGenerations(x, y)
	t.refer(x, t.nodes[y].shared)
	n, m := t.nodes[x].n, t.nodes[y].n
	t.reserve(x, margins{back: m})
	t.copyBlocks(x, segment{y, 0, m}, t.nodes[x].off+n)
	t.nodes[x].n += m
	t.relabel(segment{x, n, n + m}, y)
}

// joinBefore puts the blocks of x, which y follows, before those of y, and leaves x
// without blocks. The room before the run of y is for this case: its own blocks do not
// move.
func (t *arena) joinBefore(y, x int32) {
	t.joinGenerations(x, y)
	n, m := t.nodes[x].n, t.nodes[y].n
	t.reserve(y, margins{front: n})
	t.copyBlocks(y, segment{x, 0, n}, t.nodes[y].off-n)
	t.shared.count(t.nodes[y].shared, int(n)*t.tpb)
	t.shared.count(t.nodes[x].shared, -int(n)*t.tpb)
	nd := &t.nodes[y]
	nd.off, nd.n, nd.depth = nd.off-n, n+m, nd.depth-n
	t.relabel(segment{y, 0, n}, x)
}

// fillNowhere makes locations those of blocks that a pool does not hold. Arrays come
// from the pool with the locations of an earlier run, so a run that skipped this
// would hold pages of others.
//
// It copies from an array: a copy writes 32 bytes in an instruction, a loop of Go 4.
func fillNowhere(l []protocol.Location) {
	for len(l) > 0 {
		l = l[copy(l, nowhere[:]):]
	}
}

// nowhere is what fillNowhere copies, 1 KiB.
var nowhere = func() (all [256]protocol.Location) {
	for i := range all {
		all[i] = protocol.Nowhere
	}
	return all
}()

// fillDevice makes locations those of device pages, whose values are the page numbers, in one
// copy.
func fillDevice(l []protocol.Location, pages []messages.PageID) {
	copy(l, unsafe.Slice((*protocol.Location)(unsafe.Pointer(unsafe.SliceData(pages))), len(pages)))
}

// resize returns a slice of n elements in the array of s, if that is large enough.
// The elements are whatever was there. It is for slices of answers and scratch, which
// are overwritten in full.
func resize[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// lengthen adds n zero elements to an array by block. An array that is moved gets an
// eighth more: append would give a quarter, which is much where there are millions.
// The arrays are never cut, so what lies behind their length is still zero.
func lengthen[E any](s []E, n int) []E {
	if len(s)+n > cap(s) {
		longer := make([]E, len(s), len(s)+max(n, len(s)/8, 64))
		copy(longer, s)
		s = longer
	}
	return s[:len(s)+n]
}
