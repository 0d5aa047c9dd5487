package offloader

import (
	"fmt"
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

// ledger has a record for each slot on which something may be under way. It orders
// accesses to memory, so it knows slots and not blocks: a new owner of a page waits for
// what an earlier owner has started there.
//
// Waits for an access that is done are harmless but cost a call of the device, so tickets
// that have passed are filtered out where Config.Passed is known.
type ledger struct {
	records
	pools []poolLedger
}

// poolLedger is the part of the ledger that belongs to one pool.
type poolLedger struct {
	name  string
	pages [2]int // by tier, device pages that there were before included
}

// init sizes the ledger; nothing is under way.
func (l *ledger) init(pools []PoolConfig, passed func(messages.Ticket) bool) {
	l.ask, l.of, l.sweepAt = passed, map[Slot]*record{}, sweepSpare
	l.pools = make([]poolLedger, len(pools))
	for i, p := range pools {
		l.pools[i].name = p.Name
		l.grow(messages.PoolID(i), messages.Primary, p.DevicePages)
		// Spare pages are written like all others, so the ledger includes them.
		l.grow(messages.PoolID(i), messages.Secondary, p.HostPages+p.SparePages+p.SavePages)
	}
}

// grow makes room for pages. Records of pages that no longer exist are kept: nothing
// may be under way there, so the tickets in them have passed.
func (l *ledger) grow(pool messages.PoolID, tier messages.Tier, pages int) {
	n := &l.pools[pool].pages[tier]
	*n = max(*n, pages)
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

// mustHold panics on a slot that does not exist.
func (l *ledger) mustHold(s Slot) {
	p := &l.pools[s.Pool]
	if n := p.pages[s.Tier]; s.Page < 0 || int(s.Page) >= n {
		panic(fmt.Sprintf("offloader: pool %s: %s page %d of %d", p.name, s.Tier, s.Page, n))
	}
}

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
