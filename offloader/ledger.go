package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// inlineReads holds the readers of nearly every page: the lane that copies it
// out and the host's stream. Others go to the spill.
const inlineReads = 2

// record is what may still be under way on one slot: its last write, and the
// reads since, at most one for each stream, the newest. Streams are in order,
// so who waits for the newest has waited for all.
type record struct {
	written messages.Ticket
	reads   [inlineReads]messages.Ticket // unused ones are zero
	more    int32                        // first spilled read + 1; 0: none

	readBatch, writeBatch uint32 // the last batch that touches it
	spoiled               uint32 // twice the work in which a copy to it failed; odd: mixed
	touched               uint32 // the last work that asked for it
	slot                  Slot
	used                  bool
}

// spilled is a read that found no room in the record.
type spilled struct {
	ticket messages.Ticket
	next   int32 // + 1; 0: none
}

// ledger has a record for each slot on which something may be under way. A slot
// is memory: contents come and go, ordering stays with the page.
type ledger struct {
	records
	pools []poolLedger
	spill []spilled
	spare int32 // first unused spilled read + 1
}

// poolLedger is the part of one pool.
type poolLedger struct {
	name  string
	tiers [2]numbers // the pages' records
	pages [2]int     // of each tier
	// pending is, for each stream, the newest access of any device page. When
	// all of them have passed, nothing in the pool is under way.
	pending []messages.Ticket
}

func (l *ledger) init(pools []PoolConfig, passed func(messages.Ticket) bool) {
	l.ask = passed
	l.pools = make([]poolLedger, len(pools))
	for i, p := range pools {
		l.pools[i].name = p.Name
		l.grow(messages.PoolID(i), messages.Primary, p.DevicePages)
		l.grow(messages.PoolID(i), messages.Secondary, p.HostPages+p.SparePages)
	}
}

// grow makes room for pages. Those that go keep their places: nothing may be
// under way there, so what their records name has passed and delays no one.
func (l *ledger) grow(pool messages.PoolID, tier messages.Tier, pages int) {
	p := &l.pools[pool]
	p.pages[tier] = max(p.pages[tier], pages)
	p.tiers[tier].grow(pages)
}

// slot gives the record of a slot, to write in; it is good for the work under way.
func (l *ledger) slot(s Slot) *record {
	t := &l.pools[s.Pool].tiers[s.Tier]
	n := t.get(s.Page)
	if n == 0 {
		l.tidy()
		n = l.enter(s)
		t.set(s.Page, n)
	}
	r := l.at(n - 1)
	r.touched = l.work
	return r
}

// look gives the record of a slot, to read in: an empty one if there is none.
func (l *ledger) look(s Slot) *record {
	if n := l.pools[s.Pool].tiers[s.Tier].get(s.Page); n != 0 {
		return l.at(n - 1)
	}
	return &nothing
}

// nothing is the record of a slot on which nothing is under way.
var nothing record

// mustHold panics on a slot that does not exist.
func (l *ledger) mustHold(s Slot) {
	p := &l.pools[s.Pool]
	if n := p.pages[s.Tier]; s.Page < 0 || int(s.Page) >= n {
		panic(fmt.Sprintf("offloader: pool %s: %s page %d of %d", p.name, s.Tier, s.Page, n))
	}
}

// read records a read that is done at ticket.
func (l *ledger) read(s Slot, t messages.Ticket) {
	l.touch(s, t)
	l.addRead(l.slot(s), t)
}

// write records a write that is done at ticket and comes after all before it.
func (l *ledger) write(s Slot, t messages.Ticket) {
	l.touch(s, t)
	r := l.slot(s)
	r.written, r.spoiled = t, r.spoiled&^1
	l.clearReads(r)
}

// markWrite records a write by a host's kernel. The kernel waited for what it
// was told when its pages were handed out; reads begun since then are unknown
// to it, so reads stay, but for those on the kernel's own stream. The write
// before it stays too, among the reads: a host that had nothing to compute may
// not have waited for it, and a fence of its stream says nothing of others.
func (l *ledger) markWrite(s Slot, t messages.Ticket) {
	l.touch(s, t)
	r := l.slot(s)
	if !r.written.IsZero() && r.written.Stream != t.Stream {
		l.addRead(r, r.written)
		r.spoiled |= 1
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

// mixed tells that some of the reads may be writes, see markWrite.
func (r *record) mixed() bool { return r.spoiled&1 != 0 }

// spoil notes the work in which a copy to the slot failed.
func (r *record) spoil(number uint32) { r.spoiled = number<<1 | r.spoiled&1 }

// spoiledIn tells whether a copy to the slot failed in the work.
func (r *record) spoiledIn(number uint32) bool { return r.spoiled>>1 == number&(1<<31-1) }

// touch keeps pending.
func (l *ledger) touch(s Slot, t messages.Ticket) {
	if s.Tier == messages.Primary {
		p := &l.pools[s.Pool]
		p.pending = merge(p.pending, t)
	}
}

// addRead keeps the newest read of each stream.
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
	if empty >= 0 {
		r.reads[empty] = t
		return
	}
	r.more = l.spillRead(spilled{ticket: t, next: r.more})
}

// spillRead finds room for a read and gives its place + 1.
func (l *ledger) spillRead(s spilled) int32 {
	if n := l.spare; n != 0 {
		l.spare = l.spill[n-1].next
		l.spill[n-1] = s
		return n
	}
	l.spill = append(l.spill, s)
	return int32(len(l.spill))
}

// clearReads forgets the reads of a record.
func (l *ledger) clearReads(r *record) {
	r.reads = [inlineReads]messages.Ticket{}
	for n := r.more; n != 0; {
		s := &l.spill[n-1]
		next := s.next
		*s = spilled{next: l.spare}
		l.spare, n = n, next
	}
	r.more = 0
}

// merge adds a ticket to a set with one ticket for each stream, the newest.
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

// drop takes the tickets that have passed out of a set.
func drop(set []messages.Ticket, passed func(messages.Ticket) bool) []messages.Ticket {
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
