package offloader

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// records are those of slots. A slot has a record only while something may be under way, which
// is true of few pages at a time.
//
// When there are twice as many as the last sweep has left, a sweep releases those whose tickets
// have all passed, before the next work begins: a pointer to a record holds until the work ends.
type records struct {
	of      map[Slot]*record
	unused  []*record                  // to be used again with their arrays
	sweepAt int                        // records
	passed  []messages.Ticket          // of each stream, the newest ticket known to have passed
	waiting messages.Ticket            // the last that had not passed in this work
	ask     func(messages.Ticket) bool // Config.Passed
}

// sweepSpare is how many records there are beyond twice those that a sweep has left.
const sweepSpare = 64

// slot is the record of a slot, made if there is none.
func (l *records) slot(s Slot) *record {
	r := l.of[s]
	if r != nil {
		return r
	}
	if k := len(l.unused) - 1; k >= 0 {
		r, l.unused = l.unused[k], l.unused[:k]
		*r = record{reads: r.reads[:0]}
	} else {
		r = &record{}
	}
	l.of[s] = r
	return r
}

// begin starts a piece of work.
func (l *records) begin() {
	l.waiting = messages.Ticket{}
	if len(l.of) < l.sweepAt {
		return
	}
	under := func(t messages.Ticket) bool { return !l.done(t) }
	for s, r := range l.of {
		if l.done(r.written) && !slices.ContainsFunc(r.reads, under) {
			delete(l.of, s)
			l.unused = append(l.unused, r)
		}
	}
	l.sweepAt = 2*len(l.of) + sweepSpare
}

// done tells whether a ticket is known to have passed. Streams execute in order, so a
// ticket that has passed means that all earlier tickets of its stream have passed.
//
// Answers are remembered, a negative one until the work ends or another comes, since each
// question may ask the device and most are about one ticket, of one kernel.
func (l *records) done(t messages.Ticket) bool {
	if t.IsZero() {
		return true
	}
	for i := range l.passed {
		if l.passed[i].Stream == t.Stream && l.passed[i].Seq >= t.Seq {
			return true
		}
	}
	if t == l.waiting {
		return false
	}
	if l.ask == nil || !l.ask(t) {
		l.waiting = t
		return false
	}
	l.passed = protocol.AddTicket(l.passed, t)
	return true
}
