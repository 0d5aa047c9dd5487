package forecast

import "math/bits"

// table maps 64-bit signatures to indices: open addressing with linear probing, at most half full. A signature of
// 0 marks an empty place, so that of a block is made odd. It grows only while the history that it belongs to grows.
//
// Most signatures that are looked up are not in the table, and half of the places are occupied, so that a processor
// cannot foretell whether a place is empty. A filter of eight bits for each place answers nearly all of these: a key whose bit is 0
// is not in the table. The bits of removed keys stay until as many keys were removed as the table has room for, and are
// then set again from the keys, which costs O(1) for each removal.
type table struct {
	keys    []uint64
	values  []int32
	n       int
	filter  []uint64
	shift   uint8 // the upper bits of a hash are the index of its bit
	removed int   // keys since the filter was made
}

// newTable has room for n entries.
func newTable(n int) table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return table{
		keys: make([]uint64, size), values: make([]int32, size), filter: make([]uint64, size/8),
		shift: uint8(64 - bits.Len(uint(8*size-1))),
	}
}

// bit is the place of a key in the filter.
func (t *table) bit(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> t.shift }

// may tells whether a key may be in the table.
func (t *table) may(key uint64) bool {
	at := t.bit(key)
	return t.filter[at/64]>>(at%64)&1 != 0
}

// find gives the index of a signature, or −1. Callers that look up many signatures ask may before.
func (t *table) find(key uint64) int32 {
	mask := uint64(len(t.keys) - 1)
	for at := (key >> 20) & mask; t.keys[at] != 0; at = (at + 1) & mask {
		if t.keys[at] == key {
			return t.values[at]
		}
	}
	return -1
}

// put adds a signature or changes its index.
func (t *table) put(key uint64, value int32) {
	mask := uint64(len(t.keys) - 1)
	at := (key >> 20) & mask
	for ; t.keys[at] != 0; at = (at + 1) & mask {
		if t.keys[at] == key {
			t.values[at] = value
			return
		}
	}
	t.keys[at], t.values[at] = key, value
	t.n++
	t.mark(key)
}

// mark sets the bit of a key.
func (t *table) mark(key uint64) {
	at := t.bit(key)
	t.filter[at/64] |= 1 << (at % 64)
}

// sweep makes the filter again, without the keys that were removed.
func (t *table) sweep() {
	t.removed = 0
	clear(t.filter)
	for _, key := range t.keys {
		if key != 0 {
			t.mark(key)
		}
	}
}

// remove takes a signature out and closes the gap in its run of occupied places. Marks of removed entries were rejected: a
// history forgets an entry for each new one, so marks would fill the table and it would have to be built again and again.
func (t *table) remove(key uint64) {
	mask := uint64(len(t.keys) - 1)
	at := (key >> 20) & mask
	for t.keys[at] != key {
		if t.keys[at] == 0 {
			return
		}
		at = (at + 1) & mask
	}
	t.n--
	for next := (at + 1) & mask; t.keys[next] != 0; next = (next + 1) & mask {
		// An entry may move back to the gap only if the gap is not before its first place.
		if home := (t.keys[next] >> 20) & mask; (next-home)&mask >= (next-at)&mask {
			t.keys[at], t.values[at] = t.keys[next], t.values[next]
			at = next
		}
	}
	t.keys[at] = 0
	if t.removed++; t.removed > len(t.keys)/2 {
		t.sweep()
	}
}
