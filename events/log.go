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
// [next−len(events), next); none is kept that every reader has had.
type Log struct {
	limit   int
	engine  string
	events  []kvevents.Event // their tokens, covers and namespaces are those of records
	next    uint64           // id of the next event that is made
	readers []reader
	opened  kvevents.ReaderID // the last reader that was opened

	blocks protocol.Following[named] // those in the tree
	hasher hasher
	// blind is set while the log does not know the blocks of the tree: after a failure, or
	// when every reader is absent. It gives ids and counts losses until a snapshot brings
	// the blocks.
	blind   bool
	absence uint64 // a reader that is further behind than so many events is absent
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
		l.push(kvevents.Event{
			Type: kvevents.EventCreated, Pool: p, PrimaryPages: pages.Primary,
			SecondaryPages: pages.Secondary,
		})
		l.trim()
		l.verify()
	}
}

// change keeps what happened to blocks as an event of its own or as a part of the
// last one.
func (l *Log) change(c *protocol.Change) {
	// A joined change adds to the last event, which is kept: only a push drops
	// events, and the oldest one.
	if !c.Joined {
		l.push(eventOf(c))
	}
	l.extend(&l.events[len(l.events)-1], c)
}

// push keeps an event and numbers it; the oldest makes way for it if there is
// no room. The newest event is worth more to a reader than the oldest: a reader that has lost
// one needs a snapshot in either case, and other readers lose nothing.
func (l *Log) push(e kvevents.Event) {
	if len(l.events) == l.limit {
		l.drop(1)
	}
	e.ID = l.next
	l.next++
	l.events = append(l.events, e)
}

// drop drops the oldest events. The array becomes no longer than twice what is kept: append makes
// another one when it is full.
func (l *Log) drop(n int) {
	clear(l.events[:n])
	l.events = l.events[n:]
}

// first returns the id of the oldest event that is kept.
func (l *Log) first() uint64 { return l.next - uint64(len(l.events)) }

// dropAll counts n events that the log cannot make. Without them the kept events are
// of no use to any reader, so they are dropped as well.
func (l *Log) dropAll(n int) {
	l.events = nil
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
	l.blocks = protocol.Following[named]{}
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
