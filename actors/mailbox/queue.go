package mailbox

// keptMessages is how many messages an empty queue may have room for, 128 KiB: more than a
// facade allows in at once.
const keptMessages = 8192

// queue holds messages in the order in which they came. It belongs to the mailbox's lock.
type queue struct {
	list []any
	at   int // list[:at] has been taken and is nil
}

// waiting counts the messages.
func (q *queue) waiting() int { return len(q.list) - q.at }

// push adds a message. Before the list grows it moves to where others have been taken, if these
// are more: a queue that is never empty takes no more than twice what waits in it.
func (q *queue) push(x any) {
	if len(q.list) == cap(q.list) && q.at > q.waiting() {
		n := copy(q.list, q.list[q.at:])
		clear(q.list[n:])
		q.list, q.at = q.list[:n], 0
	}
	q.list = append(q.list, x)
}

// take removes the first message. What a burst has made of the list goes with its last one.
func (q *queue) take() any {
	x := q.list[q.at]
	q.list[q.at] = nil
	q.at++
	if q.waiting() == 0 {
		q.list, q.at = q.list[:0], 0
		if cap(q.list) > keptMessages {
			q.list = nil
		}
	}
	return x
}
