package coordinator

import "slices"

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
type queue struct {
	items []queued
	head  int // items[:head] have been popped, less than half of all
}

// push adds a request at the end.
func (q *queue) push(r queued) { q.items = append(q.items, r) }

// pushFirst puts a request back to where pop took it from.
func (q *queue) pushFirst(r queued) { q.items = slices.Insert(q.items, q.head, r) }

// pop takes the first request into r; ok is false if there is none, and r stays as it is.
func (q *queue) pop(r *queued) (ok bool) {
	if q.len() == 0 {
		return false
	}
	// Where it stays, and not as a result: each copy of a queued waits for the stores of the
	// one before, and together they took two in a hundred of the time of a small request.
	*r = q.items[q.head]
	// The slot must not keep the request alive.
	q.items[q.head] = queued{}
	// The others are moved to the front when as many have been popped: that pays for the move.
	if q.head++; 2*q.head >= len(q.items) {
		q.items, q.head = slices.Delete(q.items, 0, q.head), 0
	}
	return true
}

// first is the request that pop would take; nil if there is none.
func (q *queue) first() *queued {
	if q.len() == 0 {
		return nil
	}
	return &q.items[q.head]
}

// keep drops all requests but those that the predicate keeps, in order.
func (q *queue) keep(kept func(queued) bool) {
	q.items, q.head = slices.DeleteFunc(q.items[q.head:], func(r queued) bool { return !kept(r) }), 0
}

func (q *queue) len() int { return len(q.items) - q.head }
