package offloader

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// links join sole pages to lists. The page behind one is here, the page in front of it in hostPage.made: a page takes four bytes,
// as in a heap. Of a sole page that is in no list both mean nothing.
type links struct {
	pages []hostPage
	next  []messages.PageID // by page
}

// newLinks makes links for so many host pages, which are in no list.
func newLinks(pages []hostPage) *links {
	return &links{pages: pages, next: make([]messages.PageID, len(pages))}
}

// pageList is a list of pages; an empty one begins and ends with NoPage.
type pageList struct{ head, tail messages.PageID }

// join makes two pages neighbours in a list. NoPage is in front of its head and behind its tail.
func (k *links) join(l *pageList, before, behind messages.PageID) {
	if before == messages.NoPage {
		l.head = behind
	} else {
		k.next[before] = behind
	}
	if behind == messages.NoPage {
		l.tail = before
	} else {
		k.setPrev(behind, before)
	}
}

// insert inserts a page, which is in no list, behind a page of a list, or at its head.
func (k *links) insert(l *pageList, before, p messages.PageID) {
	behind := l.head
	if before != messages.NoPage {
		behind = k.next[before]
	}
	k.join(l, before, p)
	k.join(l, p, behind)
}

// remove removes a page from its list.
func (k *links) remove(l *pageList, p messages.PageID) { k.join(l, k.prev(p), k.next[p]) }

// prev is the page in front of one in its list.
func (k *links) prev(p messages.PageID) messages.PageID { return messages.PageID(k.pages[p].made) }

// setPrev makes a page the one in front of another.
func (k *links) setPrev(p, before messages.PageID) { k.pages[p].made = uint32(before) }

// queues are pages of an order that came in the order of displacement: a list for each priority, of which there are few.
//
//	priority 20   4 ─ 9 ─ 3
//	priority 35   1 ─ 7 ─ 2 ─ 8      a page that is displaced before 8 goes to the heap of the order
type queues struct {
	links *links // nil: there are no lists
	list  []queue
}

// queue is the list of one priority.
type queue struct {
	priority messages.Priority
	pageList
}

// queued is the heapIndex of a page that is in a queue.
const queued = math.MaxInt32

// of is the queue of a priority, which is made if there is none.
func (q *queues) of(priority messages.Priority) *queue {
	i, ok := slices.BinarySearchFunc(q.list, priority, func(l queue, p messages.Priority) int { return cmp.Compare(l.priority, p) })
	if !ok {
		q.list = slices.Insert(q.list, i, queue{priority, pageList{messages.NoPage, messages.NoPage}})
	}
	return &q.list[i]
}

// add appends a page to the queue of its priority, unless it is displaced before the last one there. It tells whether it has.
//
// A search for the place from the end was rejected: where one request puts many pages in the middle it would take the square of their number.
func (q *queues) add(pages []hostPage, p messages.PageID) bool {
	if q.links == nil {
		return false
	}
	l := q.of(pages[p].priority)
	if l.tail != messages.NoPage && displacedBefore(pages, p, l.tail) {
		return false
	}
	pages[p].heapIndex = queued
	q.links.insert(&l.pageList, l.tail, p)
	return true
}

// remove removes a page from the queue of its priority.
func (q *queues) remove(pages []hostPage, p messages.PageID) {
	q.links.remove(&q.of(pages[p].priority).pageList, p)
	pages[p].heapIndex = -1
}

// first is the page of the queues that is displaced first, or NoPage: the head of the lowest priority that has pages.
func (q *queues) first() messages.PageID {
	for i := range q.list {
		if p := q.list[i].head; p != messages.NoPage {
			return p
		}
	}
	return messages.NoPage
}

// check verifies the queues of an order of sole pages: exactly the pages whose heapIndex is queued are in one, and in order.
func (q *queues) check(e *problems, h *hostPool, r *order) {
	n, says := 0, 0
	for p := range h.pages {
		if h.pages[p].state == sole && h.pages[p].heapIndex == queued && h.orderOf(messages.PageID(p)) == r {
			says++
		}
	}
	for i := range q.list {
		l, before := &q.list[i], messages.NoPage
		if i > 0 && q.list[i-1].priority >= l.priority {
			e.add("queue %d follows queue %d", l.priority, q.list[i-1].priority)
		}
		for p := l.head; p != messages.NoPage && n <= len(h.pages); p = q.links.next[p] {
			pg := &h.pages[p]
			if pg.state != sole || pg.heapIndex != queued || pg.priority != l.priority || h.orderOf(p) != r {
				e.add("host page %d of queue %d is %s at %d with priority %d", p, l.priority, stateNames[pg.state], pg.heapIndex, pg.priority)
			}
			if q.links.prev(p) != before {
				e.add("host page %d of queue %d is behind page %d, not %d", p, l.priority, q.links.prev(p), before)
			}
			if before != messages.NoPage && displacedBefore(h.pages, p, before) {
				e.add("host page %d is displaced before %d in front of it", p, before)
			}
			before = p
			n++
		}
		if l.tail != before {
			e.add("queue %d ends with page %d, not %d", l.priority, before, l.tail)
		}
	}
	if says != n {
		e.add("%d pages are in queues, %d are said to be", n, says)
	}
}
