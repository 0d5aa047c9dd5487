package inprocess

// FIFO is a queue of operations. The head moves through a slice that is packed when
// more than half of it is behind.
type FIFO[T any] struct {
	items []T
	head  int
}

// Push appends an operation.
func (q *FIFO[T]) Push(v T) { q.items = append(q.items, v) }

// Clear drops all operations.
func (q *FIFO[T]) Clear() {
	clear(q.items)
	q.items, q.head = q.items[:0], 0
}

// All is the queue in order, valid until it changes.
func (q *FIFO[T]) All() []T { return q.items[q.head:] }

// Empty tells whether no operation is queued.
func (q *FIFO[T]) Empty() bool { return q.head == len(q.items) }

// First is the operation whose turn it is.
func (q *FIFO[T]) First() T { return q.items[q.head] }

// Pop removes the first operation. The slice is packed rarely enough that the cost
// of an operation stays constant.
func (q *FIFO[T]) Pop() (v T) {
	v = q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.Clear()
	} else if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}

// Fill writes one byte value everywhere, doubling what it has, at the speed of copies.
func Fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
