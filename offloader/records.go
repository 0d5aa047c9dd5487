package offloader

import "github.com/kvactor/kvactor/messages"

// records are those of the slots on which something may be under way. A slot
// without one is one whose transfers and kernels have all passed: of the pages
// of a pool that is at work, most.
//
// They are never moved, so that two can be held at a time; what is touched in
// one piece of work is there to its end. A hand goes round and gives back those
// that have passed: two for each new one, so that there are at most a few times
// as many as are needed at a time.
type records struct {
	chunks [][]record
	n      int32 // records in the chunks that have been used
	free   int32 // first unused one of these + 1, linked through more; 0: none
	live   int   // records in use
	hand   int32
	work   uint32                     // number of the work under way
	passed []messages.Ticket          // of each stream, the newest ticket known to have passed
	ask    func(messages.Ticket) bool // Config.Passed
}

// recordChunk is how many records are made at a time: a few pages of memory.
const recordChunk = 128

// handSteps is how many records are looked at for each new one.
const handSteps = 2

func (l *records) at(n int32) *record { return &l.chunks[n/recordChunk][n%recordChunk] }

// enter makes the record of a slot and gives its number + 1.
func (l *records) enter(s Slot) int32 {
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
	l.live++
	return n + 1
}

// done tells whether a ticket is known to have passed. Streams are in order, so
// that what has been known of one ticket is known of those before.
func (l *records) done(t messages.Ticket) bool {
	if t.IsZero() {
		return true
	}
	for i := range l.passed {
		if l.passed[i].Stream == t.Stream && l.passed[i].Seq >= t.Seq {
			return true
		}
	}
	if l.ask == nil || !l.ask(t) {
		return false
	}
	l.passed = merge(l.passed, t)
	return true
}

// tidy lets the hand pass some records.
func (l *ledger) tidy() {
	for range min(handSteps, int(l.n)) {
		if l.hand++; l.hand >= l.n {
			l.hand = 0
		}
		if r := l.at(l.hand); r.used && r.touched != l.work && l.over(r) {
			l.giveBack(l.hand)
		}
	}
}

// over tells whether nothing is under way on a slot.
func (l *ledger) over(r *record) bool {
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

// giveBack makes a record unused.
func (l *ledger) giveBack(n int32) {
	r := l.at(n)
	l.clearReads(r)
	l.pools[r.slot.Pool].tiers[r.slot.Tier].end(r.slot.Page)
	*r = record{more: l.free}
	l.free = n + 1
	l.live--
}
