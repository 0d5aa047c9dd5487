package events

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Log holds the latest events until its one reader takes them.
//
// Invariants: len(ring) ≤ limit and kept ≤ len(ring); the kept events have the
// consecutive ids [next−kept, next); slots that keep nothing are zero; a naming
// counts the spans of kept stored events that need its tokens, and is needed by
// each span of a kept event.
type Log struct {
	limit  int
	ring   []protocol.Event // grows up to limit, then wraps
	first  int              // slot of the oldest kept event
	kept   int
	next   uint64 // id of the next event
	lost   uint64 // dropped since the reader's last call
	owed   owed
	needs  needs
	shared shared
}

// New makes a log that keeps at most limit events. With 0 it keeps none, counts
// none and gives no ids: events are off.
func New(limit int) *Log {
	if limit < 0 {
		panic(fmt.Sprintf("events: a log of %d events", limit))
	}
	return &Log{limit: limit, owed: owed{limit: min(limit, math.MaxInt/owedPerEvent) * owedPerEvent}, needs: needs{era: 1}}
}

// NewShared makes a log that two trees tell of their changes: one has the pools
// before second, the other those from it on.
func NewShared(limit int, second messages.PoolID) *Log {
	l := New(limit)
	l.shared.second = second
	return l
}

// Enabled tells whether events are on; if not, nobody need make any.
func (l *Log) Enabled() bool { return l.limit > 0 }

// Next is the id that the next event will have.
func (l *Log) Next() uint64 { return l.next }

// Append gives the events the next ids and keeps them; the oldest that do not
// fit are lost. The slice stays the caller's, what its events point to is the
// log's from then on, and later the reader's. Call Settle after it, at once or
// as soon as nobody is in Name any more.
func (l *Log) Append(batch []protocol.Event) {
	if !l.Enabled() {
		return
	}
	for i := range batch {
		if batch[i].Type != messages.EventCleared {
			l.push(&batch[i])
		} else if tree := l.tree(batch[i].Pool); l.clears(tree) {
			l.clearAll(tree)
		}
	}
	l.verify()
}

func (l *Log) push(e *protocol.Event) {
	slot := l.makeRoom()
	l.ring[slot] = *e
	l.ring[slot].ID = l.next
	l.next++
	l.kept++
	t := &l.shared.trees[l.tree(e.Pool)]
	t.keys += enter(e)
	l.need(e)
	t.next, l.shared.bare = l.next, false
}

// makeRoom gives the slot of the next event.
func (l *Log) makeRoom() int {
	switch {
	case l.kept == l.limit: // the oldest makes way
		l.lose(&l.ring[l.first])
		l.first = (l.first + 1) % len(l.ring)
		l.kept--
		l.lost++
	case l.kept == len(l.ring): // straighten, so that append may grow the ring
		l.ring = append(l.ordered(l.kept), protocol.Event{})
		l.ring = l.ring[:min(cap(l.ring), l.limit)]
		l.first = 0
	}
	return (l.first + l.kept) % len(l.ring)
}

// ordered copies the kept events, oldest first, into a slice with room to spare.
func (l *Log) ordered(spare int) []protocol.Event {
	events := make([]protocol.Event, 0, l.kept+spare)
	tail := min(l.kept, len(l.ring)-l.first)
	events = append(events, l.ring[l.first:l.first+tail]...)
	return append(events, l.ring[:l.kept-tail]...)
}

// Take gives the events since the last Take or Snapshot. They are the caller's,
// who gives them to Name before anybody reads them.
func (l *Log) Take() protocol.EventBatch {
	batch := protocol.EventBatch{Events: l.ordered(0), Lost: l.lost}
	for i := range batch.Events {
		leave(&batch.Events[i])
	}
	l.clear()
	return batch
}

// Snapshot makes the batch that starts a mirror anew from keys, every key of
// the cache as stored events at this moment. Events from before are part of it:
// they are not told any more, and the next Take goes on after it. It is for
// Name too, which names all that is stored.
func (l *Log) Snapshot(keys []protocol.Event) protocol.EventBatch {
	batch := protocol.EventBatch{Events: keys, Lost: l.lost, Snapshot: true, Next: l.next}
	for i := range l.ring {
		leave(&l.ring[i])
		l.unneed(&l.ring[i])
	}
	l.owed.forget()
	l.clear()
	return batch
}

func (l *Log) clear() {
	clear(l.ring)
	l.first, l.kept, l.lost = 0, 0, 0
	l.verify()
}

// Check reports everything that is wrong with the log.
func (l *Log) Check() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(l.ring) > l.limit {
		wrong("events: a ring of %d slots, the limit is %d", len(l.ring), l.limit)
	}
	if l.kept > len(l.ring) || uint64(l.kept)+l.lost > l.next {
		wrong("events: %d kept and %d lost of %d events in %d slots", l.kept, l.lost, l.next, len(l.ring))
		return errors.Join(problems...)
	}
	for i := range l.ring {
		e := &l.ring[(l.first+i)%len(l.ring)]
		switch want := l.next - uint64(l.kept) + uint64(i); {
		case i < l.kept && (e.ID != want || e.Type == ""):
			wrong("events: %s where event %d should be", Draw(&e.Event), want)
		case i >= l.kept && (e.ID != 0 || e.Type != ""):
			wrong("events: %s in a free slot", Draw(&e.Event))
		}
	}
	problems = append(problems, l.checkNamings()...)
	return errors.Join(problems...)
}

func (l *Log) verify() {
	if invariants {
		if err := l.Check(); err != nil {
			panic(err)
		}
	}
}

// String draws the log, oldest event first.
func (l *Log) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d events, %d lost, next %d\n", l.kept, l.limit, l.lost, l.next)
	for _, e := range l.ordered(0) {
		fmt.Fprintf(&b, "  %s\n", Draw(&e.Event))
	}
	return b.String()
}
