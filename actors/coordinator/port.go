package coordinator

import (
	"time"

	"github.com/kvactor/kvactor/internal/protocol"
)

// Port carries the coordinator's messages. What goes to the tree, a pool or the
// offloader comes back as the same record through Answered; nothing else does.
type Port interface {
	Tree(message any)
	Pool(work *protocol.PoolWork)
	PoolAudit(audit *protocol.Audit)
	ResizePool(resize *protocol.ResizePool)
	RebuildPool(rebuild *protocol.RebuildPool)
	Offloader(message any)
	// Events hands over a request whose answer the events actor gives itself; keys
	// are those of the tree, for a snapshot.
	Events(request, sender any, keys []protocol.Event)
	// Begin tells the sender that its request is being served; false drops the
	// request, because nobody waits for it any more.
	Begin(sender any) bool
	// Park tells the sender that its request waits for pages; false drops the
	// request, because nobody waits for it any more. Waits asks that again.
	Park(sender any) bool
	Waits(sender any) bool
	// Reply gives a request back to its sender, answered.
	Reply(request, sender any)
	// Abort tells the sender that its request could not be served.
	Abort(request, sender any, cause error)
	// Now is the time by which timers act.
	Now() time.Duration
}

// queued is a request that waits for its round.
type queued struct {
	request, sender any
	called          bool // from the waiting room
}

// line is the queue of requests: first in, first out, its array reused.
type line struct {
	items []queued
	head  int
}

// push uses the slots again that pop has left, when they are at least half of all:
// a line in which somebody always waits would grow without end, and so what moves has
// been paid for.
func (l *line) push(q queued) {
	if len(l.items) == cap(l.items) && l.head > 0 && 2*l.head >= len(l.items) {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, q)
}

func (l *line) pop() (queued, bool) {
	if l.head == len(l.items) {
		return queued{}, false
	}
	q := l.items[l.head]
	l.items[l.head] = queued{}
	l.head++
	if l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	}
	return q, true
}

func (l *line) len() int { return len(l.items) - l.head }
