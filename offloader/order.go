package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// order is a heap of host pages that knows where each one stands, so that any
// can be taken out. The top is the page that goes first: the lowest priority,
// of these the oldest, of these the deepest. Clean and ahead copies have no
// say by priority, so theirs is 0 there.
//
// A heap was preferred to a list for each priority because reprioritising and
// unpinning put pages in the middle of an age, where a list would be searched.
type order struct{ heap []messages.PageID }

// sooner tells whether page a goes before page b. Copies of one
// request go in the order in which they were made, equal pages by block, not by
// number: which page a block got depends on what was copied ahead of demand,
// and the same requests must displace the same blocks with and without that.
func sooner(pages []hostPage, a, b messages.PageID) bool {
	x, y := &pages[a], &pages[b]
	if x.state == sole && x.priority != y.priority {
		return x.priority < y.priority
	}
	if x.moment() != y.moment() {
		return x.age < y.age
	}
	if x.depth != y.depth {
		return x.depth > y.depth
	}
	if x.age != y.age {
		return x.age < y.age
	}
	if x.state == clean && x.born != y.born {
		return x.born < y.born
	}
	if x.block != y.block {
		return x.block < y.block
	}
	return a < b
}

// moment is the age by which pages are compared before their depth. The last bit
// of a use tells apart what was let go early and late in one use.
func (pg *hostPage) moment() uint64 {
	if pg.state == sole {
		return protocol.Use(pg.age).Moment()
	}
	return pg.age
}

// top gives the page that goes first, or NoPage.
func (r *order) top() messages.PageID {
	if len(r.heap) == 0 {
		return messages.NoPage
	}
	return r.heap[0]
}

// push puts a page in.
func (r *order) push(pages []hostPage, p messages.PageID) {
	r.heap = append(r.heap, p)
	pages[p].place = int32(len(r.heap) - 1)
	r.up(pages, len(r.heap)-1)
}

// remove takes a page out.
func (r *order) remove(pages []hostPage, p messages.PageID) {
	i, last := int(pages[p].place), len(r.heap)-1
	r.swap(pages, i, last)
	r.heap = r.heap[:last]
	pages[p].place = -1
	if i < last {
		r.down(pages, i)
		r.up(pages, i)
	}
}

func (r *order) swap(pages []hostPage, i, j int) {
	r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
	pages[r.heap[i]].place, pages[r.heap[j]].place = int32(i), int32(j)
}

func (r *order) up(pages []hostPage, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !sooner(pages, r.heap[i], r.heap[parent]) {
			return
		}
		r.swap(pages, i, parent)
		i = parent
	}
}

func (r *order) down(pages []hostPage, i int) {
	for {
		child := 2*i + 1
		if child >= len(r.heap) {
			return
		}
		if right := child + 1; right < len(r.heap) && sooner(pages, r.heap[right], r.heap[child]) {
			child = right
		}
		if !sooner(pages, r.heap[child], r.heap[i]) {
			return
		}
		r.swap(pages, i, child)
		i = child
	}
}
