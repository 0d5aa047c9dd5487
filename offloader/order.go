package offloader

import (
	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// order holds the host pages of one state that may be displaced. The first is the
// page of the lowest priority, of these the least recently used, of these the
// deepest. The priority of clean and ahead copies does not count.
//
// The device evicts in the order of use as well, so sole pages nearly always come in the order in which they will be
// displaced, and are appended to a list, as in the device pools. The others, because changes of priority and ends of pins put
// them in the middle, are in a binary heap, and so are all copies: a request makes the shallow ones first, and the deep ones are displaced
// first. Pages know their indices there, so any page can be removed in O(log pages). With all pages in the heap a decision took
// three to five times as long.
//
// Where the policy of the device pool predicts the next use, sole pages are in pieces instead.
type order struct {
	heap   []messages.PageID
	queues queues
	pieces *pieces // of all orders of the pool; nil: the pages are in the heap and the queues
	levels levels  // of the pieces of this order
}

// pageOrder compares host pages for package heap.
type pageOrder struct{ pages []hostPage }

// Before tells whether page a is displaced before page b.
func (o pageOrder) Before(a, b messages.PageID) bool { return displacedBefore(o.pages, a, b) }

// Moved notes the index of a page.
func (o pageOrder) Moved(p messages.PageID, i int) { o.pages[p].heapIndex = int32(i) }

// displacedBefore tells whether page a is displaced before page b.
//
// Clean copies of one request are ordered as they were made, and equal pages by
// block. The page number decides last and only between pages without a block: it
// depends on what was copied ahead of demand, and the same requests must displace the
// same blocks with and without copies ahead.
func displacedBefore(pages []hostPage, a, b messages.PageID) bool {
	x, y := &pages[a], &pages[b]
	if x.state == sole && x.priority != y.priority {
		return x.priority < y.priority
	}
	if x.useTime() != y.useTime() {
		return x.age < y.age
	}
	if x.depth != y.depth {
		return x.depth > y.depth
	}
	if x.age != y.age {
		return x.age < y.age
	}
	if x.state == clean && x.made != y.made {
		return x.made < y.made
	}
	if x.block != y.block {
		return x.block < y.block
	}
	return a < b
}

// useTime is the part of a page's age that is compared before the depth: of a use its
// moment, which leaves out whether the page was released early or late.
func (pg *hostPage) useTime() uint64 {
	if pg.state == sole {
		return protocol.Use(pg.age).Moment()
	}
	return pg.age
}

// first is the page that is displaced first, or NoPage.
func (r *order) first() messages.PageID {
	if r.pieces != nil {
		return r.pieces.first(&r.levels)
	}
	p := r.queues.first()
	if len(r.heap) == 0 {
		return p
	}
	if p != messages.NoPage && displacedBefore(r.queues.links.pages, p, r.heap[0]) {
		return p
	}
	return r.heap[0]
}

// push adds a page.
func (r *order) push(pages []hostPage, p messages.PageID) {
	if r.pieces != nil {
		r.pieces.push(&r.levels, p)
		return
	}
	if r.queues.add(pages, p) {
		return
	}
	heap.Push(&r.heap, pageOrder{pages}, p)
}

// remove removes a page.
func (r *order) remove(pages []hostPage, p messages.PageID) {
	if r.pieces != nil {
		r.pieces.remove(p)
		return
	}
	if pages[p].heapIndex == queued {
		r.queues.remove(pages, p)
		return
	}
	heap.Remove(&r.heap, pageOrder{pages}, int(pages[p].heapIndex))
}
