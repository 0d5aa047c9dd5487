package forecast

import "math/bits"

// filter finds the blocks of a request that tables may know, or that the guard samples: all others cost one hash, one
// comparison and one bit.
//
// Most blocks are in no table, and many chains of a table have entries, so that a processor cannot guess whether one is
// empty. A filter has 8 to 16 bits for each entry of its tables; a block whose bit is 0 is in none of them. The
// bits of removed entries stay until as many were removed as there are words, and are then set again from the tags,
// which costs O(1) for each removal.
type filter struct {
	words []uint64
	shift uint8       // the upper bits of a hash are the index of its bit
	stale int         // entries that were removed
	tags  [2][]uint32 // of the entries that it knows; 0: free
	found []int32     // of the current request, by index
	drawn []int32     // those of the current request that the guard samples, by index
}

// newFilter makes a filter of watched blocks and session ends, of which there are none yet.
//
// One filter serves both, since a pass that reads two takes twice as long and both find few.
func newFilter(w *watch, e *sessions) *filter {
	size := 64
	for size <= 8*(len(w.tags)+len(e.tags)) {
		size *= 2
	}
	f := &filter{words: make([]uint64, size/64), shift: uint8(65 - bits.Len(uint(size))), tags: [2][]uint32{w.tags, e.tags}}
	w.filter, e.filter = f, f
	return f
}

// hashOf is the hash of a signature: its upper bits are as random as all of the signature.
func hashOf(signature uint64) uint64 { return signature * 0x9e3779b97f4a7c15 }

// mark sets the bit of a block, whose tag has the upper bits of its hash.
func (f *filter) mark(tag uint32) {
	at := uint64(tag) << 32 >> f.shift
	f.words[at/64] |= 1 << (at % 64)
}

// has tells whether the bit of a block is set.
func (f *filter) has(tag uint32) bool {
	at := uint64(tag) << 32 >> f.shift
	return f.words[at/64]>>(at%64)&1 != 0
}

// scan lists the blocks of a request that may be in a table, and apart from them those with hashes up to a limit.
//
// Every index is written to the lists, and stays if the list grows by it. A processor would guess a branch wrong at every
// tenth block, which costs more than all the rest. In a small pool the guard samples every block, so with one list for both the
// tables would be searched for all of them.
func (f *filter) scan(signatures []uint64, limit uint64) (found, drawn []int32) {
	if f.stale > len(f.words) {
		f.renew()
	}
	if cap(f.found) < len(signatures) {
		f.found, f.drawn = make([]int32, len(signatures)), make([]int32, len(signatures))
	}
	found, drawn = f.found[:len(signatures)], f.drawn[:len(signatures)]
	n, m, words, shift := 0, 0, f.words, f.shift
	for i, s := range signatures {
		h := hashOf(s)
		at := h >> (shift & 63)
		found[n], drawn[m] = int32(i), int32(i)
		_, above := bits.Sub64(limit, h, 0) // 1 if the hash is above the limit
		n += int(words[at/64] >> (at % 64) & 1)
		m += int(1 - above)
	}
	return found[:n], drawn[:m]
}

// renew sets the bits again from the tags.
//
// Counters instead of bits, which removals could take back, were rejected: with four times the memory fewer of them
// stay in the processor's caches.
func (f *filter) renew() {
	f.stale = 0
	clear(f.words)
	for _, tags := range f.tags {
		for _, tag := range tags {
			if tag != 0 {
				f.mark(tag)
			}
		}
	}
}
