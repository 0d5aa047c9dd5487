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

// lruQueue holds pages in the order of Core.before. References end in order of use, and those
// of a sequence from its last page on, so pages nearly always arrive in the order in which they
// are evicted: they are appended to a list. A page that belongs before the end of the list,
// because it was unclaimed or its priority has changed, is put into a heap.
//
//	list  4 ─ 9 ─ 3 ─ 2        victims: 4, 7, 9, 1, 3, 2
//	heap  7 1
type lruQueue struct {
	core       *Core
	head, tail int32 // of the list; None: it is empty
	heap       []int32
	n          int // pages in both
}

// listed is the index of a page that is in the list and not in the heap.
const listed int32 = -1

func newLRUQueue(c *Core) *lruQueue { return &lruQueue{core: c, head: None, tail: None} }

// Len is the number of pages.
func (q *lruQueue) Len() int { return q.n }

// Before tells whether page a is evicted before page b.
func (q *lruQueue) Before(a, b int32) bool { return q.core.before(a, b) }

// Moved notes the index of a page in the heap.
func (q *lruQueue) Moved(p int32, i int) { q.core.pages[p].at = int32(i) }

// Add adds a page.
func (q *lruQueue) Add(p int32) {
	q.n++
	if q.tail != None && q.core.before(p, q.tail) {
		heap.Push(&q.heap, q, p)
		return
	}
	q.insert(p, None)
}

// insert inserts a page in front of one of the list, or at its end.
func (q *lruQueue) insert(p, next int32) {
	pages := q.core.pages
	prev := q.tail
	if next != None {
		prev = pages[next].prev
	}
	pages[p].at = listed
	q.join(prev, p)
	q.join(p, next)
}

// join makes two pages neighbours in the list. None is in front of its head and behind its tail.
func (q *lruQueue) join(prev, next int32) {
	if prev == None {
		q.head = next
	} else {
		q.core.pages[prev].next = next
	}
	if next == None {
		q.tail = prev
	} else {
		q.core.pages[next].prev = prev
	}
}

// Remove removes a page.
func (q *lruQueue) Remove(p int32) {
	q.n--
	g := &q.core.pages[p]
	if g.at != listed {
		heap.Remove(&q.heap, q, int(g.at))
		return
	}
	q.join(g.prev, g.next)
}

// First is the page that was used least recently.
func (q *lruQueue) First() int32 {
	if q.head == None || len(q.heap) > 0 && q.core.before(q.heap[0], q.head) {
		return q.heap[0]
	}
	return q.head
}

// Peek appends the first n pages. A page that it finds in the heap goes to its place in the
// list, so a page leaves the heap once whoever removes it.
func (q *lruQueue) Peek(n int, list []int32) []int32 {
	at := q.head
	for ; n > 0; n-- {
		if len(q.heap) > 0 && (at == None || q.core.before(q.heap[0], at)) {
			p := heap.Pop(&q.heap, q)
			q.insert(p, at)
			at = p
		}
		if at == None {
			break
		}
		list = append(list, at)
		at = q.core.pages[at].next
	}
	return list
}

// Pages appends those of the list and of the heap.
func (q *lruQueue) Pages(list []int32) []int32 {
	for p := q.head; p != None; p = q.core.pages[p].next {
		list = append(list, p)
	}
	return append(list, q.heap...)
}

// Check verifies that both parts are in order and have as many pages as are counted.
func (q *lruQueue) Check() error {
	n, last := len(q.heap), None
	var errs []error
	for p := q.head; p != None && n <= len(q.core.pages); p = q.core.pages[p].next {
		if g := &q.core.pages[p]; g.at != listed || g.prev != last || last != None && q.core.before(p, last) {
			errs = append(errs, fmt.Errorf("page %d is listed behind page %d, and says %d", p, last, g.prev))
		}
		last = p
		n++
	}
	for i, p := range q.heap {
		if q.core.pages[p].at != int32(i) {
			errs = append(errs, fmt.Errorf("page %d is at %d of a heap, and says %d",
				p, i, q.core.pages[p].at))
		}
	}
	if i := heap.Misplaced(q.heap, q); i >= 0 {
		errs = append(errs, fmt.Errorf("page %d is evicted before page %d above it",
			q.heap[i], q.heap[(i-1)/2]))
	}
	if n != q.n || q.tail != last {
		errs = append(errs, fmt.Errorf("%d pages up to page %d are in a queue that says %d up to page %d",
			n, last, q.n, q.tail))
	}
	return errors.Join(errs...)
}
