package evict

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/internal/heap"
	"github.com/kvactor/kvactor/messages"
)

// lru is the policy that evicts the pages that were used least recently, see Core.Before. The
// Core knows all that it needs.
type lru struct{ core *Core }

func newLRU(c *Core, _ Options) Policy { return &lru{core: c} }

// NewQueue makes a queue.
func (l *lru) NewQueue() Queue { return newLRUQueue(l.core) }

// Used does nothing, as do the other methods.
func (l *lru) Used([]messages.PageID, *Request) {}
func (l *lru) Forget(int32)                     {}
func (l *lru) Move(_, _ int32)                  {}
func (l *lru) Resize(int)                       {}

// lruQueue holds pages in the order of Core.Before. References end in order of use, and those
// of a sequence from its last page on, so pages nearly always arrive in the order in which they
// are evicted: they are appended to a list. A page that belongs before the end of the list,
// because it was unclaimed or its priority has changed, is put into a heap.
//
//	list  4 ─ 9 ─ 3 ─ 2        victims: 4, 7, 9, 1, 3, 2
//	heap  7 1
type lruQueue struct {
	list
	core *Core
	heap []int32
}

// listed is the index of a page that is in the list and not in the heap.
const listed int32 = -1

func newLRUQueue(c *Core) *lruQueue { return &lruQueue{list: empty, core: c} }

// Before tells whether page a is evicted before page b.
func (q *lruQueue) Before(a, b int32) bool { return q.core.Before(a, b) }

// Moved notes the index of a page in the heap.
func (q *lruQueue) Moved(p int32, i int) { q.core.pages[p].At = int32(i) }

// Add adds a page.
func (q *lruQueue) Add(p int32) {
	if q.tail != None && q.core.Before(p, q.tail) {
		heap.Push(&q.heap, q, p)
		return
	}
	q.enlist(p, None)
}

// enlist inserts a page into the list.
func (q *lruQueue) enlist(p, next int32) {
	q.core.pages[p].At = listed
	q.link(q.core.pages, p, next)
}

// Remove removes a page.
func (q *lruQueue) Remove(p int32) {
	g := &q.core.pages[p]
	if g.At != listed {
		heap.Remove(&q.heap, q, int(g.At))
		return
	}
	q.unlink(q.core.pages, p)
}

// First is the page that was used least recently.
func (q *lruQueue) First() int32 {
	if q.head == None || len(q.heap) > 0 && q.core.Before(q.heap[0], q.head) {
		return q.heap[0]
	}
	return q.head
}

// Peek appends the first n pages. A page that it finds in the heap goes to its place in the
// list, so a page leaves the heap once whoever removes it.
func (q *lruQueue) Peek(n int, list []int32) []int32 {
	at := q.head
	for ; n > 0; n-- {
		if len(q.heap) > 0 && (at == None || q.core.Before(q.heap[0], at)) {
			p := heap.Pop(&q.heap, q)
			q.enlist(p, at)
			at = p
		}
		if at == None {
			break
		}
		list = append(list, at)
		at = q.core.pages[at].Next
	}
	return list
}

// Check verifies that both parts are in order and have so many pages.
func (q *lruQueue) Check(pages int) error {
	n, last := len(q.heap), None
	var errs []error
	for p := q.head; p != None && n <= len(q.core.pages); p = q.core.pages[p].Next {
		if g := &q.core.pages[p]; g.At != listed || g.Prev != last || last != None &&
			q.core.Before(p, last) {
			errs = append(errs, fmt.Errorf("page %d is listed behind page %d, and says %d", p, last, g.Prev))
		}
		last = p
		n++
	}
	for i, p := range q.heap {
		if q.core.pages[p].At != int32(i) {
			errs = append(errs, fmt.Errorf("page %d is at %d of a heap, and says %d",
				p, i, q.core.pages[p].At))
		}
	}
	if i := heap.Misplaced(q.heap, q); i >= 0 {
		errs = append(errs, fmt.Errorf("page %d is evicted before page %d above it",
			q.heap[i], q.heap[(i-1)/2]))
	}
	if n != pages || q.tail != last {
		errs = append(errs, fmt.Errorf("%d pages up to page %d are in a queue of %d up to page %d",
			n, last, pages, q.tail))
	}
	return errors.Join(errs...)
}
