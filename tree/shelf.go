package tree

import (
	"math/bits"
	"unsafe"

	"github.com/kvactor/kvactor/messages"
)

// arrays are what a run lies in: room for as many blocks as there are ids.
type arrays struct {
	tokens []messages.Token
	ids    []messages.BlockID
	places []messages.Location // by pool
}

// shelf keeps the arrays of runs that are gone or have moved, for runs to come.
// So a tree that stores as much as it loses allocates nothing, and the garbage
// collector has nothing to do with it. Stacks are by size, four for each
// doubling, so that what is taken is at most half as large again as was asked.
type shelf struct {
	stacks [sizes][]arrays
	rooms  [sizes]int // blocks that the arrays of a stack have room for
	room   int        // blocks that all of them have room for
}

const (
	sizes = 124 // classes of rooms up to 2³¹
	// shelved is how many blocks there may be room for on the shelf beside an
	// eighth of those that are held: the growing runs of a small engine.
	shelved      = 4096
	shelvedShare = 8
	// looks is how many arrays of the very class are tried for one that is large
	// enough: of random sizes every other one is.
	looks = 4
)

// sizeOf is the class of a room.
func sizeOf(room int) int {
	if room < 4 {
		return room
	}
	e := bits.Len(uint(room)) - 1
	return 4*(e-1) + room>>(e-2)&3
}

// take gives arrays with at least so much room, if there are any of about that size.
func (s *shelf) take(room int) (a arrays, ok bool) {
	for size := sizeOf(room); size < min(sizeOf(room)+2, sizes); size++ {
		stack := s.stacks[size]
		top := len(stack) - 1
		for i := top; i >= 0 && i > top-looks; i-- {
			if len(stack[i].ids) >= room {
				a, stack[i], stack[top] = stack[i], stack[top], arrays{}
				s.stacks[size] = stack[:top]
				s.count(size, -len(a.ids))
				return a, true
			}
		}
	}
	return arrays{}, false
}

// put adds arrays that nobody uses any more. If there is more room than the
// limit, arrays of the size that has most of it go to the garbage collector: so
// no size hoards, and few arrays go.
func (s *shelf) put(a arrays, limit int) {
	size := sizeOf(len(a.ids))
	s.stacks[size] = append(s.stacks[size], a)
	s.count(size, len(a.ids))
	for s.room > limit {
		most := 0
		for i, room := range s.rooms {
			if room > s.rooms[most] {
				most = i
			}
		}
		top := len(s.stacks[most]) - 1
		s.count(most, -len(s.stacks[most][top].ids))
		s.stacks[most][top] = arrays{}
		s.stacks[most] = s.stacks[most][:top]
	}
}

// count adds room that has come to a stack.
func (s *shelf) count(size, room int) {
	s.rooms[size] += room
	s.room += room
}

// shelve puts arrays on the shelf.
func (t *Tree) shelve(a arrays) {
	if len(a.ids) > 0 {
		t.shelf.put(a, t.held/shelvedShare+shelved)
	}
}

// arrays gives arrays with room for so many blocks, or for more.
func (t *Tree) arrays(room int) arrays {
	if a, ok := t.shelf.take(room); ok {
		return a
	}
	memory := make([]int32, room*(t.tpb+1+len(t.pools)))
	a := t.divide(memory[room*t.tpb:], room)
	a.tokens = retype[messages.Token](memory[:room*t.tpb])
	return a
}

// divide makes ids and places for a run of one array.
func (t *Tree) divide(memory []int32, room int) arrays {
	return arrays{ids: retype[messages.BlockID](memory[:room]), places: retype[messages.Location](memory[room:])}
}

// retype gives an array of numbers another name for them: all that a run
// consists of has 32 bits, so one allocation does.
func retype[E ~int32](s []int32) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// arraysOf gives arrays that begin with these tokens, of whole blocks. New ones
// have no more room than that: they are copied to without being cleared first.
func (t *Tree) arraysOf(tokens []messages.Token) arrays {
	room := len(tokens) / t.tpb
	if a, ok := t.shelf.take(room); ok {
		copy(a.tokens, tokens)
		return a
	}
	a := t.divide(make([]int32, room*(1+len(t.pools))), room)
	a.tokens = append([]messages.Token(nil), tokens...)
	return a
}
