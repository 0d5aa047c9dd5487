package offloader

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// records allocates the records of slots. A slot has a record only while something may
// be under way on it, which is true of few pages at a time.
//
// A record that the current work has touched stays until the work ends. For each new record a
// clock hand inspects two others and releases those whose tickets have all passed. So there are
// at most a few times as many records as slots with something under way.
type records struct {
	list      []*record
	unused    []int32 // of list, to be used again with their arrays
	clockHand int
	work      uint64                     // number of the current work
	passed    []messages.Ticket          // of each stream, the newest ticket known to have passed
	underWay  []messages.Ticket          // of some streams, a ticket that had not passed in the current work
	ask       func(messages.Ticket) bool // Config.Passed
}

// clockSteps is how many records are inspected for each new one.
const clockSteps = 2

// acquire makes the record of a slot and returns its number.
func (l *records) acquire(s Slot) int32 {
	n := int32(len(l.list))
	if k := len(l.unused) - 1; k >= 0 {
		n, l.unused = l.unused[k], l.unused[:k]
	} else {
		l.list = append(l.list, &record{})
	}
	r := l.list[n]
	*r = record{slot: s, reads: r.reads[:0], touched: l.work, used: true}
	return n
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

// reclaim inspects the next records and releases those with nothing under way.
//
// Two steps for each new record keep up with the growth: the hand goes round all records
// while half as many are made. A sweep at the end of each Move was rejected, since it costs
// time in proportion to what is under way and not to the Move.
func (l *ledger) reclaim() {
	for range min(clockSteps, len(l.list)) {
		l.clockHand = (l.clockHand + 1) % len(l.list)
		if r := l.list[l.clockHand]; r.used && r.touched != l.work && l.finished(r) {
			l.release(l.clockHand)
		}
	}
}

// finished tells whether nothing is under way on the slot of a record.
func (l *ledger) finished(r *record) bool {
	return l.done(r.written) && !slices.ContainsFunc(r.reads, func(t messages.Ticket) bool { return !l.done(t) })
}

// release makes a record unused.
func (l *ledger) release(n int) {
	r := l.list[n]
	l.pools[r.slot.Pool].of[r.slot.Tier][r.slot.Page] = 0
	r.used = false
	l.unused = append(l.unused, int32(n))
}
