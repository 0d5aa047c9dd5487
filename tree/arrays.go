package tree

import (
	"math"
	"unsafe"

	"github.com/kvactor/kvactor/internal/arraypool"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// arrays are the memory of a run. They are two pointers and one size instead of
// slices: a node is two thirds of what it would be, and there is a node for each
// prompt.
type arrays struct {
	tokens  *messages.Token // tokensPerBlock for each block of the room; the start of a shared array; nil in the pool of numbers
	numbers *int32          // an id for each block, then its location in each pool
	room    int32           // in blocks; 0: there are no arrays
	// A sequence's run often has room behind it, seldom before it; see reserve. off +
	// n ≤ room for the n of the run.
	off int32 // where the run begins
}

// ids returns those of all the room.
func (a *arrays) ids() []protocol.BlockID {
	return unsafe.Slice((*protocol.BlockID)(unsafe.Pointer(a.numbers)), a.room)
}

// tokensIn returns the tokens of all the room.
func (t *arena) tokensIn(a *arrays) []messages.Token {
	return unsafe.Slice(a.tokens, int(a.room)*t.tpb)
}

// locations returns those in pool p of all the room. Ids and the locations of all
// pools lie in one array, so the distance to pool p is a multiplication and a pool
// more costs no pointer in the node:
//
//	numbers   │ ids │ pool 0 │ pool 1 │ …      each is room elements of 4 bytes
func (a *arrays) locations(p int) []protocol.Location {
	first := unsafe.Add(unsafe.Pointer(a.numbers), 4*int(a.room)*(1+p))
	return unsafe.Slice((*protocol.Location)(first), a.room)
}

// arrayPool keeps the arrays of runs that have left the tree or have moved, for new
// runs. So a tree that stores as much as it loses allocates nothing, and the
// garbage collector has nothing to do. Arrays that are taken are at most about half as
// large again as asked.
//
// Invariant: no array in the pool is in use, and their off is 0.
type arrayPool struct{ arraypool.Pool[arrays] }

const (
	// spareBlocks is how many blocks there may be room for in the pool beside one
	// spareShare of those that are in the tree: enough for the growing runs of a small engine.
	spareBlocks = 4096
	spareShare  = 8
)

// take returns arrays with at least so much room, if there are any of about that
// size.
func (p *arrayPool) take(room int) (arrays, bool) { return p.Take(room, math.MaxInt) }

// put adds arrays. While there is more room than limit, it drops some of those that are
// asked for least.
func (p *arrayPool) put(a arrays, limit int) {
	a.off = 0
	p.Put(a, int(a.room), limit)
}

// recycle puts the arrays of a run that are not in use any more into the pool of
// their kind.
func (t *arena) recycle(r *run) {
	if r.room == 0 {
		return
	}
	pool := &t.pool
	if r.shared != noArray {
		r.tokens, pool = nil, &t.numbers
	}
	// The limit falls with the tree, so a tree that has lost most blocks does not
	// keep the arrays of all of them: each recycle drops what is over the limit
	// by then.
	pool.put(r.arrays, t.index.used()/spareShare+spareBlocks)
}

// newNumbers returns arrays without tokens, with room for so many blocks or for more.
func (t *arena) newNumbers(room int) arrays {
	if a, ok := t.numbers.take(room); ok {
		return a
	}
	return arrays{numbers: unsafe.SliceData(make([]int32, room*(1+len(t.pools)))), room: int32(room)}
}

// newArrays returns arrays with room for so many blocks, or for more.
func (t *arena) newArrays(room int) arrays {
	if a, ok := t.pool.take(room); ok {
		return a
	}
	// One allocation holds tokens and numbers; the interior pointer keeps all of it
	// reachable.
	memory := make([]int32, room*(t.tpb+1+len(t.pools)))
	tokens := (*messages.Token)(unsafe.Pointer(unsafe.SliceData(memory))) // all that a run consists of has 32 bits
	return arrays{tokens: tokens, numbers: unsafe.SliceData(memory[room*t.tpb:]), room: int32(room)}
}

// newArraysOf returns arrays that begin with these tokens, of whole blocks. New
// ones have no more room than that, so that they are copied to without being
// cleared first.
func (t *arena) newArraysOf(tokens []messages.Token) arrays {
	room := len(tokens) / t.tpb
	if a, ok := t.pool.take(room); ok {
		copy(t.tokensIn(&a), tokens)
		return a
	}
	// Two allocations here: append to a nil slice does not clear the memory first.
	numbers := make([]int32, room*(1+len(t.pools)))
	tokens = append([]messages.Token(nil), tokens...)
	return arrays{tokens: unsafe.SliceData(tokens), numbers: unsafe.SliceData(numbers), room: int32(room)}
}
