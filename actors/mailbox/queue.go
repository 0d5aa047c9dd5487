package mailbox

// keptMessages is how many messages a slice may have room for when it is not in use, 128 KiB:
// more than a facade allows in at once.
const keptMessages = 8192

// queue is two slices that change places: senders append to in, the runner
// walks out. One lock for a whole batch is all that they share.
type queue struct {
	in  []any // appended under the mailbox's lock
	out []any // header written under the lock, elements the runner's own
	at  int   // the runner's: out[:at] has been taken and is nil
	// seen is at when the runner last held the lock; others may read it there.
	seen int
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
// nothing is left. It reports whether there is one. A slice that a burst has grown goes when a batch
// that is no burst comes.
func (q *queue) swap() bool {
	worked := q.out[:0]
	if cap(worked) > keptMessages && len(q.in) <= keptMessages {
		worked = nil
	}
	q.in, q.out = worked, q.in
	q.at, q.seen = 0, 0
	return len(q.out) > 0
}

// waiting counts the messages under the lock. While the runner is at work its
// whole batch counts; otherwise the count is exact.
func (q *queue) waiting() int { return len(q.in) + len(q.out) - q.seen }
