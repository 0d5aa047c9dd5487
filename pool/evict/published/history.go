package published

// history remembers which contents were evicted, up to a number of them. The oldest are
// forgotten first.
type history struct {
	list []uint64       // identities, the oldest first; some of them are not in it any more
	at   map[uint64]int // of those that are: the number in the order of coming
	past int            // numbers before that of list[0]
}

// size is how many contents are remembered.
func (h *history) size() int { return len(h.at) }

// add remembers contents, unless their identity is not known.
func (h *history) add(identity uint64, capacity int) {
	if identity == 0 {
		return
	}
	if h.at == nil {
		h.at = map[uint64]int{}
	}
	h.at[identity] = h.past + len(h.list)
	h.list = append(h.list, identity)
	h.shrink(capacity)
	if len(h.list) > 2*len(h.at)+64 {
		h.compact()
	}
}

// remove forgets contents, and tells whether they were remembered.
func (h *history) remove(identity uint64) bool {
	_, ok := h.at[identity]
	delete(h.at, identity)
	return ok
}

// shrink forgets the oldest contents beyond a number.
func (h *history) shrink(capacity int) {
	for len(h.at) > max(0, capacity) {
		if id := h.list[0]; h.at[id] == h.past {
			delete(h.at, id)
		}
		h.list = h.list[1:]
		h.past++
	}
}

// compact drops those of the list that are not remembered any more.
func (h *history) compact() {
	kept := make([]uint64, 0, 2*len(h.at)+64)
	for i, id := range h.list {
		if at, ok := h.at[id]; ok && at == h.past+i {
			h.at[id] = len(kept)
			kept = append(kept, id)
		}
	}
	h.list, h.past = kept, 0
}
