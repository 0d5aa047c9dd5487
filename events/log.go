package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Log keeps the latest events for its readers, each of which takes them in turn.
//
// Invariants: at most limit events are kept, with the consecutive ids
// [next−events.n, next); none is kept that every reader has had; the spans of the
// kept events are those in spans, in the same order.
type Log struct {
	limit  int
	engine string
	// Event i of the deque has the id next − events.n + i, so ids are not stored.
	events deque[kept]
	// The spans lie beside the events and not in them, so that an event of one block
	// needs no slice of its own. An event that is dropped takes its spans with it.
	spans   deque[span]
	next    uint64 // id of the next event that is made
	readers []reader
	opened  kvevents.ReaderID // the last reader that was opened

	blocks []*record // by id, those in the tree
	hasher hasher
	// blind is set while the log does not know the blocks of the tree: after a failure, or
	// when every reader is absent. It gives ids and counts losses until a snapshot brings
	// the blocks.
	blind   bool
	absence uint64 // a reader that is further behind than so many events is absent
}

// kept is an event that a reader has not had yet.
type kept struct {
	kind        protocol.ChangeKind // not BlocksEntered, BlocksLeft
	created     bool                // the event created, whatever kind is
	pool        messages.PoolID
	tier        messages.Tier
	priority    messages.Priority
	oldPriority messages.Priority
	spans       int32 // of Log.spans
	pages       PoolPages
}

// span is consecutive blocks of one prefix, up to the last one.
type span struct {
	last      *record
	count     int32
	tier      messages.Tier
	priority  messages.Priority
	backwards bool // in the event the last block comes first
}

// records are the blocks of a span in the order in which the event tells them.
func (s *span) records() []*record {
	list, r := make([]*record, s.count), s.last
	for i := range slices.Backward(list) {
		list[i] = r
		r = r.parent
	}
	if s.backwards {
		slices.Reverse(list)
	}
	return list
}

// Config is what a log is made from.
type Config struct {
	// Limit is the number of events that the log keeps at most. With 0 it keeps
	// none, counts none and gives no ids: events are off.
	Limit int
	// Engine is the id of the engine, which all batches carry.
	Engine string
}

// New makes a log with one reader, FirstReader.
func New(c Config) *Log {
	if c.Limit < 0 {
		panic(fmt.Sprintf("events: a log of %d events", c.Limit))
	}
	return &Log{
		limit: c.Limit, engine: c.Engine, readers: []reader{{id: FirstReader}},
		absence: uint64(max(absentBuffers*c.Limit, absentEvents)),
	}
}

// Enabled tells whether events are on; if they are off no changes are needed.
func (l *Log) Enabled() bool { return l.limit > 0 }

// Next returns the id that the next event will have.
func (l *Log) Next() uint64 { return l.next }

// Created makes the event that tells of a pool and its size.
func (l *Log) Created(p messages.PoolID, pages PoolPages) {
	if l.Enabled() {
		e := l.push()
		e.created, e.pool, e.pages = true, p, pages
		l.trimUnread()
		l.verify()
	}
}

// change keeps what happened to blocks as an event of its own or as a part of the
// last one.
func (l *Log) change(c *protocol.Change) {
	// A joined change adds to the last event, which is kept: only a push drops
	// events, and the oldest one.
	if !c.Joined {
		e := l.push()
		e.kind, e.pool, e.tier, e.priority, e.oldPriority = c.Kind, c.Pool, c.Tier, c.Priority, c.OldPriority
	}
	l.events.at(l.events.n-1).spans++
	*l.spans.push() = l.span(c)
}

// span is the blocks of a change as they are now: the tree may give their ids to others later.
func (l *Log) span(c *protocol.Change) span {
	return span{l.blocks[c.Last], c.Count, c.Tier, c.Priority, c.Backwards}
}

// push keeps an event, which the caller fills in; the oldest makes way for it if there is
// no room. The newest event is worth more to a reader than the oldest: a reader that has lost
// one needs a snapshot in either case, and other readers lose nothing.
func (l *Log) push() *kept {
	if l.events.n == l.limit {
		l.drop()
	}
	l.next++
	return l.events.push()
}

// drop removes the oldest event. Readers that have not had it see that by its id. The
// spans of the oldest event are the oldest spans.
func (l *Log) drop() {
	for range l.events.pop().spans {
		l.spans.pop()
	}
}

// first returns the id of the oldest event that is kept.
func (l *Log) first() uint64 { return l.next - uint64(l.events.n) }

// dropAll counts n events that the log cannot make. Without them the kept events are
// of no use to any reader, so they are dropped as well.
func (l *Log) dropAll(n int) {
	for l.events.n > 0 {
		l.drop()
	}
	// The ids go on behind the gap, so every reader sees by the ids alone that it has
	// missed something.
	l.next += uint64(n)
}

// TreeLost notes that the tree of pool p has lost all it held, and with it n
// events. Every reader finds the gap in the ids and starts again from a snapshot.
func (l *Log) TreeLost(p messages.PoolID, n int) {
	if !l.Enabled() {
		return
	}
	l.dropAll(n)
	l.blocks = nil
	l.verify()
}

// Resume makes a log that continues where a broken one has stopped: its readers have
// lost what was kept, and n events that were to be kept. It knows no block until a
// reader asks for a snapshot, which each of them must. Nothing of the broken log but
// its counters and readers is used: the failure may have come in the middle of a change.
func Resume(broken *Log, n int) *Log {
	l := New(Config{Limit: broken.limit, Engine: broken.engine})
	if !l.Enabled() {
		return l
	}
	l.readers, l.opened = slices.Clone(broken.readers), broken.opened
	l.next, l.blind = broken.next+uint64(n), true
	l.verify()
	return l
}
