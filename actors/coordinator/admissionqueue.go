package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// admissionQueue holds admissions that found no pages, first come first served.
// Nothing is held for them: a batch that must wait has given its claims back, and
// starts from its first stage when it is tried again.
//
//	queue ──▶ decided ──▶ served
//	           │  ▲
//	     lacks │  │ tried again: pages came free, blocks were stored,
//	     pages │  │ or it became the first
//	           ▼  │
//	     admission queue ──▶ gone: its context ended, or the engine did
//
// A batch waits until the first of its requests fits; the others are then decided
// as ever. It never waits with a part of it admitted: two such batches could wait
// for each other's pages, which their hosts cannot give back yet.
//
// While one waits, every admission behind it lacks pages, whatever is there: one
// that is large is not starved by small ones. Running sequences go before all that
// wait, because only their end gives pages back.
type admissionQueue struct {
	queue
	limit  int // batches; 0: none waits
	port   Port
	counts *pageCounts
	due    bool // the first is worth another try
	// seen is, by pool, the pages that were available when the first batch was tried, and total
	// the size of the pool. Not only of the pool that lacked some: with a page more in another
	// one, for the copy of a checkpoint or of a partial block, it may reuse more.
	seen, total []int
}

// put adds a batch that lacks pages. One that was tried again, and so was
// the first, comes back to its place.
func (w *admissionQueue) put(q queued) {
	first := q.parked || w.len() == 0
	q.parked = false
	if !first {
		w.push(q)
		return
	}
	w.pushFirst(q)
	w.due, w.seen, w.total = false, w.seen[:0], w.total[:0]
	for p := range w.counts.device {
		w.seen, w.total = append(w.seen, w.counts.available(p)), append(w.total, w.counts.device[p].Total)
	}
}

// next takes the first batch into q if it is worth a try: it may find more than last
// time. Those whose callers have gone make room for the ones behind them.
func (w *admissionQueue) next(q *queued) bool {
	for w.len() > 0 && !w.port.Waits(w.items[0].sender) {
		var gone queued
		w.pop(&gone)
		w.due = true
	}
	if w.len() == 0 || !w.worthTrying() {
		return false
	}
	w.due = true // for the batch behind it, unless this one comes back
	w.pop(q)
	q.parked = true
	return true
}

// worthTrying tells whether the first that waits may find more than last time.
func (w *admissionQueue) worthTrying() bool {
	for p := range w.seen {
		if w.counts.available(p) > w.seen[p] || w.counts.device[p].Total != w.total[p] {
			return true
		}
	}
	return w.due
}

// hasPlace tells whether one more may wait. Batches whose callers have gone are
// removed first.
func (w *admissionQueue) hasPlace() bool {
	if w.len() >= w.limit {
		w.items = slices.DeleteFunc(w.items, func(q queued) bool {
			gone := !w.port.Waits(q.sender)
			w.due = w.due || gone
			return gone
		})
	}
	return w.len() < w.limit
}

// requests is the number of requests in the batches that wait. Those whose callers have gone
// count until they are found out.
func (w *admissionQueue) requests() (n int) {
	for _, q := range w.items {
		n += len(q.request.(*messages.Admit).Requests)
	}
	return n
}

// noteStored notes that blocks were stored: the first that waits may match them, and
// needs fewer pages then, though none came free.
func (w *admissionQueue) noteStored(items []protocol.StoreItem) {
	w.due = w.due || len(items) > 0
}

// check verifies that the queue keeps its limit, and that between rounds the first
// has been tried if it is worth it.
func (w *admissionQueue) check() error {
	if w.len() > w.limit || w.due && w.len() > 0 {
		return fmt.Errorf(
			"coordinator: %d batches wait for pages, at most %d may, the first is to be tried: %v", w.len(),
			w.limit, w.due)
	}
	return nil
}

// String draws the queue.
func (w *admissionQueue) String() string {
	if w.len() == 0 {
		return ""
	}
	return fmt.Sprintf("%d batches wait; when the first was tried, %v of %v pages were available\n",
		w.len(), w.seen, w.total)
}
