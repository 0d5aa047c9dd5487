package forecast

// table maps 64-bit signatures to indices: open addressing with linear probing, at most half full. A signature of
// 0 marks an empty place, so that of a block is made odd. It grows only while the history that it belongs to grows.
type table struct {
	keys   []uint64
	values []int32
	n      int
	filter *filter // that knows the keys; nil: none does
}

// newTable has room for n entries.
func newTable(n int) table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return table{keys: make([]uint64, size), values: make([]int32, size)}
}

// find gives the index of a signature, or −1.
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
	if t.filter != nil {
		t.filter.mark(key)
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
	if t.filter != nil {
		t.filter.stale++
	}
}
