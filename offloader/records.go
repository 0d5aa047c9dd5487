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
// have all passed. A record that the current work has touched stays until the work ends.
type records struct {
	of       map[Slot]*record
	unused   []*record                  // to be used again with their arrays
	sweepAt  int                        // records
	work     uint64                     // number of the current work
	passed   []messages.Ticket          // of each stream, the newest ticket known to have passed
	underWay []messages.Ticket          // of some streams, one that had not passed in this work
	ask      func(messages.Ticket) bool // Config.Passed
}

// sweepSpare is how many records there are beyond twice those that a sweep has left.
const sweepSpare = 64

// acquire makes the record of a slot.
func (l *records) acquire(s Slot) *record {
	if len(l.of) >= l.sweepAt {
		l.sweep()
	}
	r := &record{}
	if k := len(l.unused) - 1; k >= 0 {
		r, l.unused = l.unused[k], l.unused[:k]
	}
	*r = record{reads: r.reads[:0]}
	l.of[s] = r
	return r
}

// sweep releases the records with nothing under way.
func (l *records) sweep() {
	for s, r := range l.of {
		if r.touched != l.work && l.finished(r) {
			delete(l.of, s)
			l.unused = append(l.unused, r)
		}
	}
	l.sweepAt = 2*len(l.of) + sweepSpare
}

// finished tells whether nothing is under way on the slot of a record.
func (l *records) finished(r *record) bool {
	under := func(t messages.Ticket) bool { return !l.done(t) }
	return l.done(r.written) && !slices.ContainsFunc(r.reads, under)
}

// begin starts the work with a number, one above that of the work before.
func (l *records) begin(work uint64) { l.work, l.underWay = work, l.underWay[:0] }

// done tells whether a ticket is known to have passed. Streams execute in order, so a
// ticket that has passed means that all earlier tickets of its stream have passed.
//
// Both answers are remembered for each stream, the negative one until the work ends, so most
// questions need no call of Config.Passed, which may ask the device.
func (l *records) done(t messages.Ticket) bool {
	if t.IsZero() {
		return true
	}
	for i := range l.passed {
		if l.passed[i].Stream == t.Stream && l.passed[i].Seq >= t.Seq {
			return true
		}
	}
	for i := range l.underWay {
		if l.underWay[i].Stream == t.Stream && l.underWay[i].Seq <= t.Seq {
			return false
		}
	}
	if l.ask == nil || !l.ask(t) {
		l.noteUnderWay(t)
		return false
	}
	l.passed = protocol.AddTicket(l.passed, t)
	return true
}

// noteUnderWay notes a ticket that has not passed: the oldest of its stream.
func (l *records) noteUnderWay(t messages.Ticket) {
	for i := range l.underWay {
		if l.underWay[i].Stream == t.Stream {
			l.underWay[i].Seq = min(l.underWay[i].Seq, t.Seq)
			return
		}
	}
	l.underWay = append(l.underWay, t)
}
