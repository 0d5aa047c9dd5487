package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// inlineReads is enough for nearly every page: the stream that copies it out and the
// host's stream. Reads by more streams are kept in ledger.spill.
const inlineReads = 2

// record holds what may still be under way on one slot: its last write, and the newest
// read since then of each stream. Streams execute in order, so waiting for the newest
// read of a stream is waiting for all of them.
type record struct {
	written messages.Ticket
	// No stream occurs twice in reads and the spilled reads together.
	reads [inlineReads]messages.Ticket // unused ones are zero
	more  int32                        // first spilled read + 1; 0: none

	// They are compared with Offloader.batchNo, which grows with each batch, so that marks
	// of earlier batches need not be erased.
	readBatch, writeBatch uint32 // the last batches that read and write the slot
	failed                uint32 // twice the number of the work in which a copy to the slot failed; odd: mixed
	touched               uint32 // the last work that used the record
	slot                  Slot
	used                  bool
}

// spilledRead is a read for which the record has no room.
type spilledRead struct {
	ticket messages.Ticket
	next   int32 // + 1; 0: none
}

// ledger has a record for each slot on which something may be under way. It orders
// accesses to memory, so it knows slots and not blocks: a new owner of a page waits for
// what an earlier owner has started there.
//
// Waits for an access that is done are harmless but cost a call of the device, so tickets
// that have passed are filtered out where Config.Passed is known.
type ledger struct {
	records
	pools       []poolLedger
	spill       []spilledRead
	unusedSpill int32 // first unused spilled read + 1
}

// poolLedger is the part of the ledger that belongs to one pool.
type poolLedger struct {
	name  string
	tiers [2]recordNumbers // of the pages, by tier
	// The chunks of tiers round up, so the exact numbers are kept to find wrong pages.
	pages [2]int // of each tier
	// pending is the newest access of any device page, for each stream. When all of
	// them have passed, nothing is under way in the pool.
	pending []messages.Ticket
}

// init sizes the ledger; nothing is under way.
func (l *ledger) init(pools []PoolConfig, passed func(messages.Ticket) bool) {
	l.ask = passed
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
	p := &l.pools[pool]
	p.pages[tier] = max(p.pages[tier], pages)
	p.tiers[tier].grow(pages)
}

// slot is the record of a slot, made if there is none. The pointer is valid until the
// end of the current work.
//
// A record is reclaimed only before a new one is made, so the cost is bound to what is under
// way. The mark touched keeps the records of the current work, which callers may still use.
func (l *ledger) slot(s Slot) *record {
	t := &l.pools[s.Pool].tiers[s.Tier]
	n := t.get(s.Page)
	if n == 0 {
		l.reclaim()
		n = l.acquire(s)
		t.set(s.Page, n)
	}
	r := l.at(n - 1)
	r.touched = l.work
	return r
}

// look is the record of a slot for reading, an empty one if there is none.
//
// It does not mark the record as touched, so the pointer must not be kept across slot.
func (l *ledger) look(s Slot) *record {
	if n := l.pools[s.Pool].tiers[s.Tier].get(s.Page); n != 0 {
		return l.at(n - 1)
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

// mustHoldPages panics on a device page that does not exist. NoPage entries are passed over.
//
// The id is shifted by one as an unsigned number, so that NoPage becomes 0 and every other
// wrong id is above n: one comparison for each page.
func (l *ledger) mustHoldPages(pool messages.PoolID, pages []messages.PageID) {
	n := uint32(l.pools[pool].pages[messages.Primary])
	for _, id := range pages {
		if uint32(id+1) > n {
			l.mustHold(Slot{pool, messages.Primary, id})
		}
	}
}

// read records a read of a slot that is done at ticket.
//
// A read does not replace the last write: the next reader still waits for that write.
func (l *ledger) read(s Slot, t messages.Ticket) {
	l.touch(s, t)
	l.addRead(l.slot(s), t)
}

// write records a write of a slot that is done at ticket and that waits for all
// accesses before it, so that these need not be remembered.
//
// That the reads before can be removed follows from order on the device: whoever waits for
// this write waits for all that it has waited for.
func (l *ledger) write(s Slot, t messages.Ticket) {
	l.touch(s, t)
	r := l.slot(s)
	r.written, r.failed = t, r.failed&^1
	l.clearReads(r)
}

// markWrite records a write by a kernel of the host. The kernel waited for the tickets
// that the host was given with its pages. It did not wait for reads that began later,
// so reads are kept, except those on the kernel's own stream. The write before is kept
// as well, among the reads: a host that had nothing to compute may not have waited for
// it, and a fence on the host's stream does not cover other streams.
func (l *ledger) markWrite(s Slot, t messages.Ticket) {
	l.touch(s, t)
	r := l.slot(s)
	if !r.written.IsZero() && r.written.Stream != t.Stream {
		l.addRead(r, r.written)
		// A reader must wait for that write too, so it may not overlook the reads.
		r.failed |= 1
	}
	if r.written.Stream != t.Stream || r.written.Seq < t.Seq {
		r.written = t
	}
	for i := range r.reads {
		if r.reads[i].Stream == t.Stream && r.reads[i].Seq <= t.Seq {
			r.reads[i] = messages.Ticket{}
		}
	}
}

// mixed tells whether some of the reads may be writes, see markWrite.
func (r *record) mixed() bool { return r.failed&1 != 0 }

// markFailed notes the work in which a copy to the slot failed.
func (r *record) markFailed(number uint32) { r.failed = number<<1 | r.failed&1 }

// failedIn tells whether a copy to the slot failed in the work.
func (r *record) failedIn(number uint32) bool { return r.failed>>1 == number&(1<<31-1) }

// touch updates pending.
func (l *ledger) touch(s Slot, t messages.Ticket) {
	if s.Tier == messages.Primary {
		p := &l.pools[s.Pool]
		p.pending = merge(p.pending, t)
	}
}

// addRead adds a read and keeps only the newest of its stream.
//
// It is a search of a few entries: there are as many as streams that read one page at a time.
func (l *ledger) addRead(r *record, t messages.Ticket) {
	empty := -1
	for i := range r.reads {
		switch r.reads[i].Stream {
		case t.Stream:
			r.reads[i].Seq = max(r.reads[i].Seq, t.Seq)
			return
		case 0:
			if empty < 0 {
				empty = i
			}
		}
	}
	for n := r.more; n != 0; n = l.spill[n-1].next {
		if e := &l.spill[n-1].ticket; e.Stream == t.Stream {
			e.Seq = max(e.Seq, t.Seq)
			return
		}
	}
	// Only after the search of the spilled reads, or a stream could be in both places.
	if empty >= 0 {
		r.reads[empty] = t
		return
	}
	r.more = l.spillRead(spilledRead{ticket: t, next: r.more})
}

// spillRead stores a read that the record has no room for, and returns its index + 1.
func (l *ledger) spillRead(s spilledRead) int32 {
	if n := l.unusedSpill; n != 0 {
		l.unusedSpill = l.spill[n-1].next
		l.spill[n-1] = s
		return n
	}
	l.spill = append(l.spill, s)
	return int32(len(l.spill))
}

// clearReads removes all reads from a record.
//
// Spilled reads go back to the list of unused ones, so a ledger that has grown once does not
// allocate again.
func (l *ledger) clearReads(r *record) {
	r.reads = [inlineReads]messages.Ticket{}
	for n := r.more; n != 0; {
		s := &l.spill[n-1]
		next := s.next
		*s = spilledRead{next: l.unusedSpill}
		l.unusedSpill, n = n, next
	}
	r.more = 0
}

// merge adds a ticket to a set with one ticket for each stream, the newest.
//
// The newest ticket of a stream stands for all earlier ones, since a stream executes in
// order. So a set is as small as the number of streams, whatever the number of pages.
func merge(set []messages.Ticket, t messages.Ticket) []messages.Ticket {
	if t.IsZero() {
		return set
	}
	for i := range set {
		if set[i].Stream == t.Stream {
			set[i].Seq = max(set[i].Seq, t.Seq)
			return set
		}
	}
	return append(set, t)
}

// withoutPassed removes the tickets that have passed from a set.
func withoutPassed(set []messages.Ticket, passed func(messages.Ticket) bool) []messages.Ticket {
	if passed == nil {
		return set
	}
	kept := set[:0]
	for _, t := range set {
		if !passed(t) {
			kept = append(kept, t)
		}
	}
	return kept
}
