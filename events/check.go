package events

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// checker collects what is wrong.
type checker struct{ problems []error }

func (c *checker) say(ok bool, format string, args ...any) {
	if !ok {
		c.problems = append(c.problems, fmt.Errorf("events: "+format, args...))
	}
}

// Check walks the whole log and joins everything that is wrong with it.
func (l *Log) Check() error {
	var c checker
	c.say(len(l.events) <= l.limit, "%d events are kept, the limit is %d", len(l.events), l.limit)
	c.say(uint64(len(l.events)) <= l.next, "%d events are kept of %d", len(l.events), l.next)
	first := l.next
	for i := range l.events {
		id := l.events[i].ID
		c.say(id == l.first()+uint64(i), "event %d is kept as %d", id, l.first()+uint64(i))
	}
	for _, r := range l.readers {
		first = min(first, r.next)
		c.say(r.next <= l.next, "reader %d is at event %d of %d", r.id, r.next, l.next)
	}
	c.say(len(l.events) == 0 || l.first() >= first, "event %d is kept, every reader is at %d",
		l.first(),
		first)
	for id, r := range l.blocks.All() {
		c.say(r == nil || int(r.ID) == id, "block %d is known as another one", id)
		c.say(r == nil || r.Parent == nil || l.blocks.Of(r.Parent.ID) == r.Parent,
			"block %d follows one that is not in the tree", id)
	}
	return errors.Join(c.problems...)
}

// verify panics if Check finds anything. It costs a walk over all blocks, so it
// does nothing without the build tag invariants.
func (l *Log) verify() {
	if invariants.Enabled {
		if err := l.Check(); err != nil {
			panic(err)
		}
	}
}

// String draws the log, oldest event first:
//
//	2 of 3 events, next 7
//	  5 stored pool 0: 3 blocks
//	  6 updated pool 1: 1 block primary to secondary
//	  reader 0 next 5 lost 2
func (l *Log) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d events, next %d\n", len(l.events), l.limit, l.next)
	for i := range l.events {
		e := l.events[i]
		blocks := len(e.Blocks) + len(e.Hashes)
		e.Blocks, e.Hashes, e.HasParent = nil, nil, false
		line := strings.Replace(Draw(&e), " "+short(e.Hash)+" ", " 1 block ", 1)
		if e.Type == kvevents.EventStored || e.Type == kvevents.EventRemoved {
			line += fmt.Sprintf(": %d %s", blocks, plural(blocks))
		}
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for i := range l.readers {
		r := &l.readers[i]
		fmt.Fprintf(&b, "  reader %d next %d lost %d\n", r.id, r.next, l.missed(r))
	}
	return b.String()
}

func plural(n int) string {
	if n == 1 {
		return "block"
	}
	return "blocks"
}
