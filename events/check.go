package events

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
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
	c.say(l.events.n <= l.limit, "%d events are kept, the limit is %d", l.events.n, l.limit)
	c.say(uint64(l.events.n) <= l.next, "%d events are kept of %d", l.events.n, l.next)
	spans, first := 0, l.next
	for i := range l.events.n {
		spans += int(l.events.at(i).spans)
	}
	c.say(spans == l.spans.n, "%d spans are kept, events have %d", l.spans.n, spans)
	for _, r := range l.readers {
		first = min(first, r.next)
		c.say(r.next <= l.next, "reader %d is at event %d of %d", r.id, r.next, l.next)
	}
	c.say(l.events.n == 0 || l.first() >= first, "event %d is kept, every reader is at %d", l.first(), first)
	l.checkRuns(&c)
	return errors.Join(c.problems...)
}

// checkRuns counts the refs of all runs again. A run's refs are made again from what
// refers to it, so a ref that was never ended is found at the first check behind it,
// and not when memory runs out.
func (l *Log) checkRuns(c *checker) {
	refs := make([]int32, len(l.runs.list))
	for i := range l.spans.n {
		refs[l.spans.at(i).run]++
	}
	free := 0
	for n := range l.runs.list {
		r := &l.runs.list[n]
		if r.tokens == nil {
			free++
			continue
		}
		if r.parent != none {
			refs[r.parent]++
			c.say(r.parentIndex < l.runs.list[r.parent].count, "run %d follows block %d of run %d", n, r.parentIndex, r.parent)
		}
		if r.inTree > 0 {
			refs[n]++
		}
		// Drafts are out with others and cannot be walked, so their number is taken
		// from the run itself.
		refs[n] += r.drafts
		c.say(r.inTree >= 0 && r.inTree <= r.count, "the tree has %d blocks of run %d, which has %d", r.inTree, n, r.count)
		hashes := r.named().hashes
		c.say(hashes == nil || len(hashes) == int(r.count), "run %d has %d hashes of %d blocks", n, len(hashes), r.count)
	}
	for n, want := range refs {
		c.say(l.runs.list[n].refs == want, "run %d has %d refs, counted %d", n, l.runs.list[n].refs, want)
	}
	c.say(free == len(l.runs.free), "%d runs are free, listed %d", free, len(l.runs.free))
}

// verify panics if Check finds anything. It costs a walk over all runs, so it does
// nothing without the build tag invariants.
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
	fmt.Fprintf(&b, "%d of %d events, next %d\n", l.events.n, l.limit, l.next)
	at := 0
	for i := range l.events.n {
		e := l.events.at(i)
		d := Draft{}
		d.event(e, l.first()+uint64(i))
		blocks := 0
		for range e.spans {
			blocks += int(l.spans.at(at).count)
			at++
		}
		line := strings.Replace(Draw(&d.batch.Events[0]), " "+short(kvevents.Hash{})+" ", " 1 block ", 1)
		if e.kind == protocol.BlocksStored || e.kind == protocol.BlocksRemoved {
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
