package coordinator

// queued is a request that waits for its round.
type queued struct {
	request, sender any
	// parked: the request has waited in the admission queue and has been taken out
	// of it, to be tried again.
	parked bool
	// followsMove: a rebalance that was due before the request has been made. The request is
	// served without another.
	followsMove bool
}

// queue is first in, first out. Its array is used again.
// Popped slots are not shifted away at once: pop is then a read and an increment, however
// long the queue is.
type queue struct {
	items []queued
	head  int // items[:head] have been popped
}

// push adds a request at the end. When the array is full it moves the requests to
// the front of it instead of growing, if at least half of the slots have been
// popped: so a queue that is never empty does not grow without end, and each move
// has been paid for by as many pops.
func (q *queue) push(r queued) {
	if len(q.items) == cap(q.items) && q.head > 0 && 2*q.head >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, r)
}

// pushFirst puts a request back to where pop took it from.
func (q *queue) pushFirst(r queued) {
	// The slot that pop has left is free, unless the array has been compacted or emptied
	// since.
	if q.head == 0 {
		q.items = append(q.items, queued{})
		copy(q.items[1:], q.items)
		q.items[0] = r
		return
	}
	q.head--
	q.items[q.head] = r
}

// pop takes the first request into r; ok is false if there is none, and r stays as it is.
func (q *queue) pop(r *queued) (ok bool) {
	if q.head == len(q.items) {
		return false
	}
	// Where it stays, and not as a result: each copy of a queued waits for the stores of the
	// one before, and together they took two in a hundred of the time of a small request.
	*r = q.items[q.head]
	// The slot must not keep the request alive.
	q.items[q.head] = queued{}
	q.head++
	// Empty: the next push begins at the front, so a queue that runs empty now and then never
	// copies.
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return true
}

// first is the request that pop would take; nil if there is none.
func (q *queue) first() *queued {
	if q.head == len(q.items) {
		return nil
	}
	return &q.items[q.head]
}

// keep drops all requests but those that the predicate keeps, in order.
func (q *queue) keep(kept func(queued) bool) {
	// Those that stay keep their order, and the array its requests nowhere else.
	n := q.head
	for _, r := range q.items[q.head:] {
		if kept(r) {
			q.items[n] = r
			n++
		}
	}
	clear(q.items[n:])
	q.items = q.items[:n]
	if q.head == n {
		q.items, q.head = q.items[:0], 0
	}
}

func (q *queue) len() int { return len(q.items) - q.head }
