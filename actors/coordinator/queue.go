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

// queue is first in, first out.
type queue struct{ items []queued }

// push adds a request at the end.
func (q *queue) push(r queued) { q.items = append(q.items, r) }

// pushFirst puts a request back to where pop took it from.
func (q *queue) pushFirst(r queued) { q.items = slices.Insert(q.items, 0, r) }

// pop takes the first request into r; ok is false if there is none, and r stays as it is.
func (q *queue) pop(r *queued) (ok bool) {
	if len(q.items) == 0 {
		return false
	}
	*r = q.items[0]
	q.items = slices.Delete(q.items, 0, 1)
	return true
}

// stop answers all that wait with the cause.
func (q *queue) stop(port Port, cause error) {
	for r := new(queued); q.pop(r); {
		port.Abort(r.request, r.sender, cause)
	}
}

func (q *queue) len() int { return len(q.items) }
