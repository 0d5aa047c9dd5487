package offloader

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// record holds what may still be under way on one slot: its last write, and the newest
// read since then of each stream. Streams execute in order, so waiting for the newest
// read of a stream is waiting for all of them.
type record struct {
	written messages.Ticket
	reads   []messages.Ticket // no stream occurs twice
	mixed   bool              // some of the reads may be writes, see markWrite

	// They are compared with Offloader.batchNo, which grows with each batch, so that marks
	// of earlier batches need not be erased.
	readBatch, writeBatch uint64 // the last batches that read and write the slot
	failed                uint64 // the last work in which a copy to the slot failed
}

// ledger has a record for each slot on which something may be under way, which is true of few
// slots at a time. It orders accesses to memory, so it knows slots and not blocks: a new owner of a
// page waits for what an earlier owner has started there.
//
// When there are twice as many records as the last sweep has left, a sweep releases those whose
// tickets have all passed, before the next work begins: a pointer to a record holds until the work
// ends. Waits for an access that is done are harmless but cost a call of the device, so tickets
// that have passed are filtered out where Config.Passed is known.
type ledger struct {
	of      map[Slot]*record
	unused  []*record                  // to be used again with their arrays
	sweepAt int                        // records
	passed  []messages.Ticket          // of each stream, the newest ticket known to have passed
	waiting messages.Ticket            // the last that had not passed in this work
	ask     func(messages.Ticket) bool // Config.Passed
}

// sweepSpare is how many records there are beyond twice those that a sweep has left.
const sweepSpare = 64

// newLedger makes a ledger of which nothing is under way.
func newLedger(passed func(messages.Ticket) bool) ledger {
	return ledger{ask: passed, of: map[Slot]*record{}, sweepAt: sweepSpare}
}

// look is the record of a slot for reading, an empty one if there is none.
func (l *ledger) look(s Slot) *record {
	if r := l.of[s]; r != nil {
		return r
	}
	return &nothing
}

// nothing is the empty record that look returns. It is never written.
var nothing record

// read records a read of a slot that is done at ticket.
//
// A read does not replace the last write: the next reader still waits for that write.
func (l *ledger) read(s Slot, t messages.Ticket) {
	r := l.slot(s)
	r.reads = protocol.AddTicket(r.reads, t)
}

// write records a write of a slot that is done at ticket and that waits for all
// accesses before it, so that these need not be remembered.
//
// That the reads before can be removed follows from order on the device: whoever waits for
// this write waits for all that it has waited for.
func (l *ledger) write(s Slot, t messages.Ticket) {
	r := l.slot(s)
	r.written, r.reads, r.mixed = t, r.reads[:0], false
}

// markWrite records a write by a kernel of the host. The kernel waited for the tickets
// that the host was given with its pages. It did not wait for reads that began later,
// so reads are kept, except those on the kernel's own stream. The write before is kept
// as well, among the reads: a host that had nothing to compute may not have waited for
// it, and a fence on the host's stream does not cover other streams.
func (l *ledger) markWrite(s Slot, t messages.Ticket) {
	r := l.slot(s)
	if !r.written.IsZero() && r.written.Stream != t.Stream {
		// A reader must wait for that write too, so it may not overlook the reads.
		r.reads, r.mixed = protocol.AddTicket(r.reads, r.written), true
	}
	if r.written.Stream != t.Stream || r.written.Seq < t.Seq {
		r.written = t
	}
	r.reads = slices.DeleteFunc(r.reads,
		func(read messages.Ticket) bool { return read.Stream == t.Stream && read.Seq <= t.Seq })
}

// withoutPassed removes the tickets that have passed from a set.
func (l *ledger) withoutPassed(set []messages.Ticket) []messages.Ticket {
	return slices.DeleteFunc(set, l.done)
}

// slot is the record of a slot, made if there is none.
func (l *ledger) slot(s Slot) *record {
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
func (l *ledger) begin() {
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
func (l *ledger) done(t messages.Ticket) bool {
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
