package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// waiting is the waiting room: admissions that found no pages, first come first
// served. Nothing is held for them: a batch that must wait has given its claims
// back and is judged anew, from its first stage on, when it is called.
//
//	line ──▶ judged ──▶ served
//	           │  ▲
//	     lacks │  │ called: pages were let go, blocks stored, or it became the first
//	           ▼  │
//	          room ──▶ gone: its context ended, or the engine did
//
// A batch waits until the first of its requests fits; the others are then judged
// as ever. It never waits with a part of it admitted: two such batches could wait
// for each other's pages, which their hosts cannot let go yet.
//
// While one waits, every admission behind it lacks pages, whatever is there: one
// that is large is not starved by small ones. Running sequences go before all that
// wait, because only their end lets pages go.
type waiting struct {
	line
	limit int
	due   bool // the first is worth another try
	// lacks is the pool that the first found too few pages in; seen of total
	// were available there then.
	lacks, seen, total int
	parking            int // the pool that the batch on its way here lacks pages in
}

// worthy tells whether the first that waits may find more than last time.
func (c *Coordinator) worthy() bool {
	w := &c.waiting
	return w.due || c.available(w.lacks) > w.seen || c.pages[w.lacks].Total != w.total
}

// called takes the first out of the room if it is worth a try. Those whose
// callers have gone make room for who is behind them.
func (c *Coordinator) called() (queued, bool) {
	w := &c.waiting
	for w.len() > 0 && !c.port.Waits(w.items[w.head].sender) {
		w.pop()
		w.due = true
	}
	if w.len() == 0 || !c.worthy() {
		return queued{}, false
	}
	w.due = true // for the next, unless this one comes back
	q, _ := w.pop()
	q.called = true
	return q, true
}

// Departed tells that a caller in the room waits no longer.
func (c *Coordinator) Departed() { c.run() }

// sweep drops those whose callers have gone, so that they take no one's place.
func (w *waiting) sweep(port Port) {
	kept := w.items[w.head:w.head]
	for _, q := range w.items[w.head:] {
		if port.Waits(q.sender) {
			kept = append(kept, q)
		} else {
			w.due = true
		}
	}
	clear(w.items[w.head+len(kept):])
	w.items = w.items[:w.head+len(kept)]
}

// hasPlace tells whether one more may wait.
func (c *Coordinator) hasPlace() bool {
	w := &c.waiting
	if w.len() >= w.limit {
		w.sweep(c.port)
	}
	return w.len() < w.limit
}

// behind tells whether the batch under way may take nothing, because another
// waits.
func (c *Coordinator) behind() bool {
	return c.admitting.purpose == toAdmit && c.waiting.len() > 0 && !c.round.called
}

// lackAll is the refusal of an item that may take nothing. A sequence ends up
// with one page more at least, if only by a takeover.
func (c *Coordinator) lackAll(it *admission) (refusal *messages.Refusal, pool int) {
	for p := range c.Pools {
		if need := c.need(it, p); need > 0 {
			return messages.RefusePages(c.Pools[p].Name, need, 0), p
		}
	}
	return messages.RefusePages(c.Pools[0].Name, 1, 0), 0
}

// mayWait tells whether the batch goes to the room because the item under
// judgement lacks pages: nothing of the batch has been admitted, the item would
// fit if nobody else held a page, and the room has a place.
func (c *Coordinator) mayWait(it *admission) bool {
	a := &c.admitting
	if c.waiting.limit == 0 || a.purpose != toAdmit || a.again {
		return false
	}
	for i := range a.items[:a.judging] {
		if a.items[i].refused == nil {
			return false
		}
	}
	for p := range c.Pools {
		// The claims of the items behind it are made before it takes a page.
		if c.need(it, p)+c.claims(p)+a.seized[p] > c.pages[p].Total {
			return false
		}
	}
	return c.round.called || c.hasPlace()
}

// claims is the pages that the batch has claimed in a pool, each once.
func (c *Coordinator) claims(p int) int {
	items := c.admitting.items
	if len(items) == 1 {
		return items[0].plans[p].claimed
	}
	pages := map[messages.PageID]struct{}{messages.NoPage: {}}
	for i := range items {
		if items[i].refused == nil {
			for _, page := range items[i].sequence.pools[p].tables[0] {
				pages[page] = struct{}{}
			}
		}
	}
	return len(pages) - 1
}

// park sends the batch to the room: first its claims are given back.
func (c *Coordinator) park(refusal *messages.Refusal, pool int) {
	c.waiting.parking = pool
	c.noteRefusal(refusal)
	c.resetWork()
	for i := range c.admitting.items {
		if it := &c.admitting.items[i]; it.refused == nil {
			it.refused = refusal
			c.unclaim(it)
		}
	}
	c.sendPools((*Coordinator).unclaimed)
}

// unclaimed ends the sequences of the batch.
func (c *Coordinator) unclaimed() {
	c.pooled()
	for i := range c.admitting.items {
		c.endRefused(&c.admitting.items[i])
	}
	c.admitting.items = c.admitting.items[:0]
	c.letThen((*Coordinator).parked)
}

// parked puts the request into the room and ends the round without an answer.
// The first of the room comes back to where it was.
func (c *Coordinator) parked() {
	w, q := &c.waiting, c.round
	c.hand, c.round = hand{queued: q}, queued{}
	stays := c.port.Park(q.sender)
	c.hand = hand{}
	if !stays {
		return
	}
	first := q.called || w.len() == 0
	q.called = false
	if !first {
		w.push(q)
		return
	}
	w.pushFirst(q)
	w.due, w.lacks, w.seen, w.total = false, w.parking, c.available(w.parking), c.pages[w.parking].Total
}

// stored notes that blocks were stored which the first that waits may match: it
// needs fewer pages then, though none came free.
func (c *Coordinator) stored(items []protocol.StoreItem) {
	w := &c.waiting
	if w.len() == 0 || w.due {
		return
	}
	r := w.items[w.head].request.(*messages.Admit)
	for i := range items {
		for j := range r.Requests {
			w.due = w.due || items[i].Namespace == r.Requests[j].Namespace
		}
	}
}

// endWaiting answers all that wait with the cause.
func (c *Coordinator) endWaiting(cause error) {
	for {
		q, ok := c.waiting.pop()
		if !ok {
			return
		}
		c.port.Abort(q.request, q.sender, cause)
	}
}

// pushFirst puts a request back to where pop took it from.
func (l *line) pushFirst(q queued) {
	if l.head == 0 {
		l.items = append(l.items, queued{})
		copy(l.items[1:], l.items)
		l.items[0] = q
		return
	}
	l.head--
	l.items[l.head] = q
}
