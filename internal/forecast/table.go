package forecast

import (
	"fmt"
	"unsafe"
)

// table finds the entries of a list by the blocks that they are of. Of a block it keeps a tag, 32 bits of its
// hash; other bits give its chain.
//
//	heads:    [ 5 ][ · ][ 2 ] …      by chain
//	            │         │
//	entries:    5 → 1 → (chain 0)    2 → (chain 2)
//
// The last entry of a chain refers to the chain itself, so that an entry is removed without the hash of its
// block. A table takes eight or twelve bytes for each entry, a third or half of what probed places with keys of 64 bits need. A block that is
// in none is taken for one of its chain once in 2³² or 4 billion look-ups. That makes one forecast
// wrong, never a page. Blocks of the guard's sample have low hashes, so with them it is once in 134 million.
type table[T reference] struct {
	heads []T      // by chain: its first entry; a chain without entries refers to itself
	next  []T      // by entry
	tags  []uint32 // by entry; 0: not in the table
	n     int      // entries in the table
}

// reference is a reference to an entry or to a chain.
type reference interface{ int16 | int32 }

// narrowMost is the most entries of a table with references of 16 bits. Those to chains are negative.
const narrowMost = 1<<15 - 1

// index is a table of either kind of references.
type index interface {
	find(hash uint64) int32
	put(hash uint64, at int32)
	remove(at int32)
	entries() int
	bytes() int
	check() error
}

// newIndex makes a table for a list of n entries with the shortest references that are enough, and returns its tags as well.
func newIndex(n int) (index, []uint32) {
	if n <= narrowMost {
		t := newTable[int16](n)
		return &t, t.tags
	}
	t := newTable[int32](n)
	return &t, t.tags
}

// chained is how many entries there are for each chain. With two the forecast takes 3 % longer for long prompts.
const chained = 1

// newTable makes a table for a list of n entries, none of them in it.
func newTable[T reference](n int) table[T] {
	if int(T(n)) != n {
		panic(fmt.Sprintf("table of %d entries with references of %d bytes", n, unsafe.Sizeof(T(0))))
	}
	t := table[T]{heads: make([]T, n/chained+1), next: make([]T, n), tags: make([]uint32, n)}
	for chain := range t.heads {
		t.heads[chain] = toChain[T](chain)
	}
	return t
}

// toChain is the reference to a chain where one to an entry may be: all of these are below those to entries.
func toChain[T reference](chain int) T { return ^T(chain) }

// tagOf is the tag of a block. Its upper bits are those of the hash.
func tagOf(hash uint64) uint32 { return max(1, uint32(hash>>32)) }

// partOf is one of n parts that the lower half of a hash belongs to, which has nothing in common with the tag.
func partOf(hash uint64, n int) int { return int(uint64(uint32(hash)) * uint64(n) >> 32) }

// chainOf is the chain of a block.
func (t *table[T]) chainOf(hash uint64) int { return partOf(hash, len(t.heads)) }

// find gives the entry of a block, or −1.
func (t *table[T]) find(hash uint64) int32 {
	tag := tagOf(hash)
	at := t.heads[t.chainOf(hash)]
	for at >= 0 && t.tags[at] != tag {
		at = t.next[at]
	}
	return int32(max(at, -1))
}

// put makes an entry, which is not in the table, that of a block, which has none.
func (t *table[T]) put(hash uint64, at int32) {
	head := &t.heads[t.chainOf(hash)]
	t.next[at], *head = *head, T(at)
	t.tags[at] = tagOf(hash)
	t.n++
}

// remove takes an entry out of the table.
func (t *table[T]) remove(at int32) {
	end := t.next[at]
	for end >= 0 {
		end = t.next[end]
	}
	before := &t.heads[^end]
	for *before != T(at) {
		before = &t.next[*before]
	}
	*before = t.next[at]
	t.tags[at] = 0
	t.n--
}

// entries is the number of entries in the table.
func (t *table[T]) entries() int { return t.n }
