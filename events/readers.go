package events

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// FirstReader is the reader that every log has from its first event on.
const FirstReader kvevents.ReaderID = 0

// MaxReaders is how many readers a log has at most: as many routers, mirrors and
// metrics as one engine may be asked to serve. A reader costs 16 bytes, and each
// event looks at none of them.
const MaxReaders = 64

// reader takes events in turn. It has lost those between its next and the oldest
// that is kept.
//
// Invariant: next is at most Log.next.
type reader struct {
	id   kvevents.ReaderID
	next uint64 // the id of the event that it takes next
}

// OpenReader adds a reader. It takes the events from now on; a mirror begins with a
// snapshot. An id is never given twice, so a reader that was closed cannot take the
// events of another.
func (l *Log) OpenReader() (kvevents.ReaderID, error) {
	if len(l.readers) == MaxReaders {
		return 0, refusals.New(messages.ErrBusy, "events have %d readers already", MaxReaders)
	}
	// Events that are made from here on are news to the reader.
	l.opened++
	l.readers = append(l.readers, reader{id: l.opened, next: l.next})
	l.verify()
	return l.opened, nil
}

// CloseReader removes a reader. Without any, nothing is kept.
func (l *Log) CloseReader(id kvevents.ReaderID) error {
	if _, err := l.reader(id); err != nil {
		return err
	}
	l.readers = slices.DeleteFunc(l.readers, func(r reader) bool { return r.id == id })
	l.trim()
	l.verify()
	return nil
}

// reader returns a reader.
func (l *Log) reader(id kvevents.ReaderID) (*reader, error) {
	i := slices.IndexFunc(l.readers, func(r reader) bool { return r.id == id })
	if i < 0 {
		return nil, refusals.New(messages.ErrBadRequest, "reader %d of events is not open", id)
	}
	return &l.readers[i], nil
}

// A reader is absent if it has missed as many events as the buffer keeps four times over,
// and no fewer than 65,536: it does not read, or much too rarely for what a mirror needs.
const (
	absentBuffers = 4
	absentEvents  = 1 << 16
)

// absent tells whether there are readers and all of them are absent.
func (l *Log) absent() bool {
	newest := uint64(0)
	for i := range l.readers {
		newest = max(newest, l.readers[i].next)
	}
	return len(l.readers) > 0 && l.next-newest > l.absence
}

// forgetUnread forgets what absent readers have not read, and what is known of the tree.
// Each of them has lost events and needs a snapshot in any case; to make the others, and to keep
// all tokens of the tree, would be work for no reader. The cost does not depend on what
// is forgotten: the arrays go to the garbage collector.
func (l *Log) forgetUnread() {
	l.events, l.blocks = nil, protocol.Following[named]{}
	l.blind = true
}

// missed returns how many events a reader has missed since it last took some. The
// events in [next, first) were dropped before the reader took them.
func (l *Log) missed(r *reader) uint64 { return max(r.next, l.first()) - r.next }

// trim drops the events that every reader has had: all if there is no reader.
func (l *Log) trim() {
	next := l.next
	for i := range l.readers {
		next = min(next, l.readers[i].next)
	}
	if l.first() < next {
		l.drop(int(next - l.first()))
	}
}

// Take gives a reader the events since its last Take or Snapshot. The batch is the reader's.
func (l *Log) Take(id kvevents.ReaderID) (kvevents.EventBatch, error) {
	r, err := l.reader(id)
	if err != nil {
		return kvevents.EventBatch{}, err
	}
	from := int(max(r.next, l.first()) - l.first())
	b := l.batch(r, append([]kvevents.Event{}, l.events[from:]...))
	// A batch that gets lost on its way is a gap in the ids for the mirror.
	r.next = l.next
	l.trim()
	l.verify()
	return b, nil
}

// Snapshot gives a reader every key of the cache as stored events without ids. The
// records are those of all trees at this moment, with all blocks and
// keys. What happened before is part of it: the reader does not get those events any
// more, and its next Take goes on after it.
func (l *Log) Snapshot(
	id kvevents.ReaderID, records ...*protocol.Changes,
) (kvevents.EventBatch, error) {
	r, err := l.reader(id)
	if err != nil {
		return kvevents.EventBatch{}, err
	}
	list := []kvevents.Event{}
	if l.Enabled() {
		for _, c := range records {
			list = l.keys(list, c)
		}
		l.blind = false // it makes events again
	}
	b := l.batch(r, list)
	b.Snapshot, b.Next = true, l.next
	r.next = l.next
	l.trim()
	l.verify()
	return b, nil
}

// keys adds what the pools of a tree hold as stored events. A blind log learns the blocks.
func (l *Log) keys(list []kvevents.Event, c *protocol.Changes) []kvevents.Event {
	rest := *c
	for i := range c.List {
		switch change := &c.List[i]; change.Kind {
		case protocol.BlocksEntered:
			if l.blind {
				l.enter(&rest, change)
			}
		case protocol.BlocksStored:
			if !change.Joined {
				list = append(list, eventOf(change))
			}
			l.extend(&list[len(list)-1], change)
		default:
			panic(fmt.Sprintf("events: a snapshot with a change of kind %d", change.Kind))
		}
	}
	return list
}
