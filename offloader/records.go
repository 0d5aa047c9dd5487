package offloader

import "github.com/kvactor/kvactor/messages"

// records allocates the records of slots. A slot has a record only while something may
// be under way on it, which is true of few pages at a time.
//
// Records do not move, so that two can be used at a time, and a record that the current
// work has touched stays until the work ends. For each new record a clock hand inspects
// two others and releases those whose tickets have all passed. So there are at most a
// few times as many records as slots with something under way.
type records struct {
	// n = inUse + the records in the free list; records from n on have never been used.
	chunks    [][]record
	n         int32 // records in the chunks that have been used
	free      int32 // the first unused record + 1, linked through more; 0: none
	inUse     int   // number of records in use
	clockHand int32
	work      uint32                     // number of the current work
	passed    []messages.Ticket          // of each stream, the newest ticket known to have passed
	underWay  []messages.Ticket          // of some streams, a ticket that had not passed in the current work
	ask       func(messages.Ticket) bool // Config.Passed
}

// recordChunk is how many records are made at a time: a few pages of memory.
const recordChunk = 128

// clockSteps is how many records are inspected for each new one.
const clockSteps = 2

// at is a record by its number. It stays where it is while others are added.
func (l *records) at(n int32) *record { return &l.chunks[n/recordChunk][n%recordChunk] }

// acquire makes the record of a slot and returns its index + 1.
//
// Records are made in chunks that never move, so pointers to them stay valid while others
// are made. Growing one slice would move them.
func (l *records) acquire(s Slot) int32 {
	n := l.free - 1
	if n >= 0 {
		l.free = l.at(n).more
	} else {
		if n = l.n; int(n) == recordChunk*len(l.chunks) {
			l.chunks = append(l.chunks, make([]record, recordChunk))
		}
		l.n++
	}
	*l.at(n) = record{slot: s, touched: l.work, used: true}
	l.inUse++
	return n + 1
}

// begin starts the work with a number, one above that of the work before.
func (l *records) begin(work uint32) { l.work, l.underWay = work, l.underWay[:0] }

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
	l.passed = merge(l.passed, t)
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
	for range min(clockSteps, int(l.n)) {
		if l.clockHand++; l.clockHand >= l.n {
			l.clockHand = 0
		}
		if r := l.at(l.clockHand); r.used && r.touched != l.work && l.finished(r) {
			l.release(l.clockHand)
		}
	}
}

// finished tells whether nothing is under way on the slot of a record.
func (l *ledger) finished(r *record) bool {
	if !l.done(r.written) {
		return false
	}
	for _, t := range r.reads {
		if !l.done(t) {
			return false
		}
	}
	for n := r.more; n != 0; n = l.spill[n-1].next {
		if !l.done(l.spill[n-1].ticket) {
			return false
		}
	}
	return true
}

// release makes a record unused.
//
// The spilled reads and the entry of the page end with it, so invariants 8 and 9 of Check
// hold.
func (l *ledger) release(n int32) {
	r := l.at(n)
	l.clearReads(r)
	l.pools[r.slot.Pool].tiers[r.slot.Tier].end(r.slot.Page)
	*r = record{more: l.free}
	l.free = n + 1
	l.inUse--
}

// recordNumbers maps the pages of a tier to their records. It is divided into chunks of
// consecutive pages, and a chunk exists only while one of its pages has a record: what
// is under way are a few runs of pages, so the other chunks cost one pointer each.
type recordNumbers struct {
	chunks []*pageRecords // by page / recordChunkPages; nil: no page there has a record
	unused []*pageRecords // chunks that are empty, to be used again
}

// pageRecords is one chunk.
type pageRecords struct {
	of   [recordChunkPages]int32 // record + 1; 0: none
	used int32                   // pages that have one
}

// recordChunkPages is the number of pages in a chunk: 64 make chunks of 260 bytes.
const recordChunkPages = 64

// grow makes room for pages.
//
// It never shrinks: a pool that has become smaller may grow again, and the chunks are
// pointers without records by then.
func (t *recordNumbers) grow(pages int) {
	if n := (pages + recordChunkPages - 1) / recordChunkPages; n > len(t.chunks) {
		t.chunks = append(t.chunks, make([]*pageRecords, n-len(t.chunks))...)
	}
}

// get is the index + 1 of the record of a page, or 0.
func (t *recordNumbers) get(p messages.PageID) int32 {
	c := t.chunks[uint32(p)/recordChunkPages]
	if c == nil {
		return 0
	}
	return c.of[uint32(p)%recordChunkPages]
}

// set gives the record with index n − 1 to a page that has none.
func (t *recordNumbers) set(p messages.PageID, n int32) {
	at := &t.chunks[uint32(p)/recordChunkPages]
	if *at == nil {
		if top := len(t.unused) - 1; top >= 0 {
			*at, t.unused = t.unused[top], t.unused[:top]
		} else {
			*at = new(pageRecords)
		}
	}
	(*at).of[uint32(p)%recordChunkPages] = n
	(*at).used++
}

// end removes the record of a page.
//
// An empty chunk is all zeros, so it can be used again as it is.
func (t *recordNumbers) end(p messages.PageID) {
	at := &t.chunks[uint32(p)/recordChunkPages]
	(*at).of[uint32(p)%recordChunkPages] = 0
	if (*at).used--; (*at).used == 0 {
		t.unused = append(t.unused, *at)
		*at = nil
	}
}
