package events

import "github.com/kvactor/kvactor/messages"

// Lose says that n events have happened that nobody can tell, after which nothing
// from before is spoken of again: what the log keeps is of no use without them and
// is lost as well. A mirror sees the gap in the ids and starts anew from a snapshot.
func (l *Log) Lose(n int) {
	if !l.Enabled() {
		return
	}
	batch := l.Take()
	l.owed.forget()
	l.next += uint64(n)
	l.lost = batch.Lost + uint64(len(batch.Events)+n)
	l.verify()
}

// Resume makes a log that goes on where a broken one has stopped. What that one
// kept is lost, and so are the events that it was to keep and has not.
func Resume(broken *Log, rest []messages.Event) *Log {
	l := New(broken.limit)
	if !l.Enabled() {
		return l
	}
	l.next, l.lost, l.owed = broken.next, broken.lost, broken.owed
	kept := broken.ordered(0)
	for i := range rest {
		enter(&rest[i])
	}
	for _, events := range [][]messages.Event{kept, rest} {
		for i := range events {
			l.lose(&events[i])
		}
	}
	l.next += uint64(len(rest))
	l.lost += uint64(len(kept) + len(rest))
	l.verify()
	return l
}
