package events

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Lose says that the tree of pool p has lost all it held, and that n events have
// happened that nobody can tell. What the log keeps is of no use without them and
// is lost as well: a mirror sees the gap in the ids and starts anew from a snapshot.
func (l *Log) Lose(p messages.PoolID, n int) {
	if !l.Enabled() {
		return
	}
	for _, e := range l.ordered(0) {
		l.lose(&e)
	}
	if l.shared.second == 0 {
		l.owed.forget() // nothing from before is spoken of again
	}
	kept, lost := l.kept, l.lost
	clear(l.ring)
	l.first, l.kept = 0, 0
	l.next, l.lost = l.next+uint64(n), lost+uint64(kept+n)
	l.shared.trees[l.tree(p)].keys = 0
	l.shared.gap(l.next)
	l.verify()
}

// Resume makes a log that goes on where a broken one has stopped. What that one
// kept is lost, and so are the events that it was to keep and has not.
func Resume(broken *Log, rest []protocol.Event) *Log {
	l := New(broken.limit)
	if !l.Enabled() {
		return l
	}
	l.next, l.lost, l.owed, l.shared = broken.next, broken.lost, broken.owed, broken.shared
	l.needs.era = broken.needs.era + 1
	kept := broken.ordered(0)
	for i := range rest {
		l.shared.trees[l.tree(rest[i].Pool)].keys += enter(&rest[i])
	}
	for _, events := range [][]protocol.Event{kept, rest} {
		for i := range events {
			l.lose(&events[i])
		}
	}
	l.next += uint64(len(rest))
	l.lost += uint64(len(kept) + len(rest))
	l.shared.gap(l.next)
	l.verify()
	return l
}
