package tree

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// sharedArrays are the token arrays of sequences that runs refer to instead of holding
// a copy. A sequence lends its array from the first token of its prompt on, and does
// not write again to what it has lent, so tokens are written once, by the admission:
//
//	array   │ t0 … t63 │ t64 … t127 │ t128 … t191 │ sampled later │
//	          x: depth 0              y: depth 2                    cap
//	          └── both refer to the array; a run begins at depth × tokens per block
//
// So a split, and a merge with a run that follows, move no tokens: every array begins
// with the whole prefix. An array goes back with the answer of the message in which
// its last run has left.
//
// An array is as large as a prompt, and its runs may become few. The tree therefore
// takes an array only if at least takeShare of it is stored by reference, or half of it,
// as long as the unused rest of all arrays is at most 1/idleShare of what is used. It
// copies the runs out of arrays that are used by less than half once their unused rest,
// in all, is more than one sparseShare of what is used, and sparseTokens more. Thus the
// arrays are at most 2+1/sparseShare times what is used, and sparseTokens more. A
// limit for each array would copy half of each prompt that is evicted block by block.
//
// Invariant: used is the sum of the tokens of the runs that refer to the array, above
// 0 for each entry in use but the first, which stands for no array; list[i].array.Index
// is i; size is the sum of the sizes of the arrays in the table.
type sharedArrays struct {
	list    []sharedArray
	free    []int32
	used    int // sum of used
	size    int // sum of size
	sparse  int // sum of unused
	allowed int // sparseTokens; tests have less
	// returned are arrays that no run refers to any more, since the last message.
	returned []*protocol.TokenArray
}

// sharedArray is one array and how much of it is used.
type sharedArray struct {
	array *protocol.TokenArray // nil: the entry is free
	size  int                  // tokens of the array: a copy, as counts then read no memory of the array
	used  int                  // tokens of runs that refer to it
}

const (
	// takeShare is how much of an array must be stored by reference, in quarters.
	takeShare = 3
	// idleShare bounds the memory of arrays of which between half and takeShare is stored.
	// In a trace of conversations, which share beginnings, they are 62 % of the tokens that
	// would be copied otherwise, for 2 % more memory.
	idleShare = 8
	// sparseShare and sparseTokens bound what arrays that are used by less than half
	// keep in memory beside what is used. In a cache that is evicted from one prompt to
	// the next hardly any run is copied with them: few prompts are stored in part.
	sparseShare  = 8
	sparseTokens = 1 << 16
)

// noArray is the index of no array: the tokens of a run are its own.
const noArray int32 = 0

// newSharedArrays returns an empty table.
func newSharedArrays() sharedArrays {
	return sharedArrays{list: make([]sharedArray, 1), allowed: sparseTokens}
}

// unused is what the array keeps in memory beside what is used, if that is more.
func (a *sharedArray) unused() int {
	if n := a.size - a.used; n > a.used {
		return n
	}
	return 0
}

// start returns the first token of an array.
func (s *sharedArrays) start(array int32) *messages.Token { return &s.list[array].array.Tokens[0] }

// find returns the index of an array, or noArray. The array notes where it was entered,
// perhaps in a tree that has failed since.
func (s *sharedArrays) find(array *protocol.TokenArray) int32 {
	if i := array.Index; int(i) < len(s.list) && s.list[i].array == array {
		return i
	}
	return noArray
}

// worth tells whether n more tokens of an array make it one to refer to.
func (s *sharedArrays) worth(array *protocol.TokenArray, n int) bool {
	a, size := s.find(array), len(array.Tokens)
	used := s.list[a].used + n
	if 4*used >= takeShare*size {
		return true
	}
	idle := s.size - s.used - n // of all arrays, with this one
	if a == noArray {
		idle += size
	}
	return 2*used >= size && idle <= (s.used+n)/idleShare
}

// add returns the index of an array, which it enters into the table if it is not there.
// The caller counts its use.
func (s *sharedArrays) add(array *protocol.TokenArray) int32 {
	if a := s.find(array); a != noArray {
		return a
	}
	a := int32(len(s.list))
	if n := len(s.free); n > 0 {
		a, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.list = append(s.list, sharedArray{})
	}
	s.list[a] = sharedArray{array: array, size: len(array.Tokens)}
	array.Index = a
	s.size += len(array.Tokens)
	s.sparse += s.list[a].unused()
	return a
}

// count adds n tokens, which may be negative, to what is used of an array. An array
// that is not used any more leaves the table.
func (s *sharedArrays) count(array int32, n int) {
	if array == noArray {
		return
	}
	a := &s.list[array]
	s.sparse -= a.unused()
	a.used += n
	s.used += n
	if a.used > 0 {
		s.sparse += a.unused()
		return
	}
	s.returned = append(s.returned, a.array)
	s.size -= a.size
	*a = sharedArray{}
	s.free = append(s.free, array)
}

// takeReturned returns the arrays that are not used any more, in the memory of list, and
// forgets them. An array may have left the table and been entered again in one message:
// it is in use, and its memory must not be given to another sequence.
func (s *sharedArrays) takeReturned(list []*protocol.TokenArray) []*protocol.TokenArray {
	list = list[:0]
	for _, array := range s.returned {
		if s.find(array) == noArray && !slices.Contains(list, array) {
			list = append(list, array)
		}
	}
	clear(s.returned)
	s.returned = s.returned[:0]
	return list
}

// tooSparse tells whether arrays that are used by less than half keep too much in memory.
func (s *sharedArrays) tooSparse() bool { return s.sparse > s.used/sparseShare+s.allowed }
