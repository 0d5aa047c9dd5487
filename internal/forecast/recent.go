package forecast

import "fmt"

// recent is a map of so many entries at most, in the order of their last use.
type recent[V any] struct {
	index      map[uint64]int32
	entries    []recentEntry[V]
	unused     []int32
	head, tail int32 // used least recently and latest; none: the map is empty
}

type recentEntry[V any] struct {
	key        uint64
	prev, next int32
	value      V
}

// none ends lists.
const none int32 = -1

func newRecent[V any](most int) *recent[V] {
	r := &recent[V]{
		index: make(map[uint64]int32, most), entries: make([]recentEntry[V], most), head: none,
		tail: none,
	}
	for i := range r.entries {
		r.unused = append(r.unused, int32(i))
	}
	return r
}

// find is the value of a key, or nil.
func (r *recent[V]) find(key uint64) *V {
	if at, ok := r.index[key]; ok {
		return &r.entries[at].value
	}
	return nil
}

// use makes a key the latest used and returns its value, which is that of the zero key if it is
// new. The least recently used key goes if there is no room.
func (r *recent[V]) use(key uint64) *V {
	at, ok := r.index[key]
	switch {
	case ok:
		r.join(r.entries[at].prev, r.entries[at].next)
	default:
		if len(r.unused) == 0 {
			r.remove(r.entries[r.head].key)
		}
		last := len(r.unused) - 1
		at, r.unused = r.unused[last], r.unused[:last]
		r.entries[at] = recentEntry[V]{key: key}
		r.index[key] = at
	}
	r.join(r.tail, at)
	r.join(at, none)
	return &r.entries[at].value
}

// remove removes a key, which is there.
func (r *recent[V]) remove(key uint64) {
	at := r.index[key]
	delete(r.index, key)
	r.join(r.entries[at].prev, r.entries[at].next)
	r.unused = append(r.unused, at)
}

// join makes two entries neighbours. None is in front of the head and behind the tail.
func (r *recent[V]) join(prev, next int32) {
	if prev == none {
		r.head = next
	} else {
		r.entries[prev].next = next
	}
	if next == none {
		r.tail = prev
	} else {
		r.entries[next].prev = prev
	}
}

// check verifies that the list has every key once.
func (r *recent[V]) check() error {
	n, last := 0, none
	for at := r.head; at != none && n <= len(r.entries); at = r.entries[at].next {
		if e := &r.entries[at]; e.prev != last || r.index[e.key] != at {
			return fmt.Errorf("key %x at %d follows %d and says %d, the index says %d",
				e.key, at, last, e.prev, r.index[e.key])
		}
		last = at
		n++
	}
	if n != len(r.index) || n+len(r.unused) != len(r.entries) || last != r.tail {
		return fmt.Errorf("%d keys are listed up to %d of %d, %d are in the index, %d of %d are unused",
			n, last, r.tail, len(r.index), len(r.unused), len(r.entries))
	}
	return nil
}
