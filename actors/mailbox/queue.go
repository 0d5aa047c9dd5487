package mailbox

// Limits of what an idle mailbox keeps.
const (
	// smallBatch is the most messages that are no burst: more than a facade allows
	// in at once.
	smallBatch = 256
	// keptMessages is the capacity that a slice may keep for good, 16 KiB. It
	// is well above smallBatch, so that slices which small batches have grown,
	// append's reserve included, are never dropped.
	keptMessages = 4 * smallBatch
	// patience is how many batches in a row must have been small before a
	// slice that a burst has grown is dropped. It is long against the pause
	// between the bursts of a busy engine, so that steady work allocates nothing.
	patience = 1024
)

// queue is two slices that change places: senders append to in, the runner
// walks out. One lock for a whole batch is all that they share.
type queue struct {
	in  []any // appended under the mailbox's lock
	out []any // header written under the lock, elements the runner's own
	at  int   // the runner's: out[:at] has been taken and is nil
	// seen is at when the runner last held the lock; others may read it there.
	seen int
	calm int // batches in a row with at most smallBatch messages
}

// push appends under the lock.
func (q *queue) push(x any) { q.in = append(q.in, x) }

// left tells whether out has messages. It is the runner's own.
func (q *queue) left() bool { return q.at < len(q.out) }

// take removes the first of out. It is the runner's own.
func (q *queue) take() any {
	x := q.out[q.at]
	q.out[q.at] = nil
	q.at++
	return x
}

// empty tells under the lock that no message waits.
func (q *queue) empty() bool { return len(q.in) == 0 && !q.left() }

// swap makes the posted messages the next batch, under the lock and when
// nothing is left. It reports whether there is one.
func (q *queue) swap() bool {
	q.shrink(len(q.in))
	q.in, q.out = q.out[:0], q.in
	q.at, q.seen = 0, 0
	return len(q.out) > 0
}

// waiting counts the messages under the lock. While the runner is at work its
// whole batch counts; otherwise the count is exact.
func (q *queue) waiting() int { return len(q.in) + len(q.out) - q.seen }

// shrink drops slices that a burst has grown, when many small batches have come
// since. It runs under the lock with nothing left in out.
func (q *queue) shrink(batch int) {
	if batch > smallBatch {
		q.calm = 0
		return
	}
	if q.calm < patience {
		q.calm++
		return
	}
	if cap(q.out) > keptMessages {
		q.out = nil
	}
	if batch == 0 && cap(q.in) > keptMessages {
		q.in = nil
	}
}
