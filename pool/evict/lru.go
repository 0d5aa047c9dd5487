package evict

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/heap"
)

// lru is the policy that evicts the pages that were used least recently, see Core.before.
type lru struct {
	indifferent
	core *Core
}

func newLRU(c *Core, _ Options, _ int) Policy { return &lru{core: c} }

// NewQueue makes a queue.
func (l *lru) NewQueue() Queue { return newLRUQueue(l.core) }

// NewCopies makes a queue.
func (l *lru) NewCopies() Queue { return newLRUQueue(l.core) }

// lruQueue is a heap of pages in the order of Core.before. References end in order of use, and
// those of a sequence from its last page on, so pages nearly always come in the order in which
// they are evicted: then Add compares a page with one other.
type lruQueue struct {
	core *Core
	heap []int32
}

func newLRUQueue(c *Core) *lruQueue { return &lruQueue{core: c} }

// Len is the number of pages.
func (q *lruQueue) Len() int { return len(q.heap) }

// Before tells whether page a is evicted before page b.
func (q *lruQueue) Before(a, b int32) bool { return q.core.before(a, b) }

// Moved notes the index of a page in the heap.
func (q *lruQueue) Moved(p int32, i int) { q.core.pages[p].at = int32(i) }

// Add adds a page.
func (q *lruQueue) Add(p int32) { heap.Push(&q.heap, q, p) }

// Remove removes a page.
func (q *lruQueue) Remove(p int32) { heap.Remove(&q.heap, q, int(q.core.pages[p].at)) }

// First is the page that was used least recently.
func (q *lruQueue) First() int32 { return q.heap[0] }

// Peek appends the first n pages.
func (q *lruQueue) Peek(n int, list []int32) []int32 { return peekHeap(&q.heap, q, n, list) }

// peekHeap appends the first n elements of a heap in their order.
func peekHeap[O heap.Order[int32]](h *[]int32, o O, n int, list []int32) []int32 {
	from := len(list)
	for len(list) < from+n && len(*h) > 0 {
		list = append(list, heap.Pop(h, o))
	}
	for _, p := range list[from:] {
		heap.Push(h, o, p)
	}
	return list
}

// Pages appends all pages.
func (q *lruQueue) Pages(list []int32) []int32 { return append(list, q.heap...) }

// Check verifies the heap.
func (q *lruQueue) Check() error { return checkHeap(q.core, q.heap, q) }

// checkHeap verifies that pages are in order, and know their indices.
func checkHeap[O heap.Order[int32]](c *Core, h []int32, o O) error {
	var errs []error
	if i := heap.Misplaced(h, o); i >= 0 {
		errs = append(errs, fmt.Errorf("page %d is evicted before page %d above it", h[i], h[(i-1)/2]))
	}
	for i, p := range h {
		if at := c.pages[p].at; at != int32(i) {
			errs = append(errs, fmt.Errorf("page %d is at %d of a heap, and says %d", p, i, at))
		}
	}
	return errors.Join(errs...)
}
