package offloader

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The waits that the host makes before its kernels read and write.
const (
	readAfterWriter   = "read waits for writer"
	writeAfterWriter  = "write waits for writer"
	writeAfterReaders = "write waits for readers"
)

// waits names the waits of a copy for the last write of its source, for the last write of its
// destination and for the reads of the destination.
//
// They have names so that a test can leave each of them out and prove it necessary: without it
// the hazard checker must report a violation.
type waits struct{ source, writer, readers string }

// laneWaits are the waits of the copies on each lane. One without a name cannot be left out,
// because nothing would fail: the last offload to a host page is on the same stream as the next
// one.
var laneWaits = [lanes]waits{
	Offload: {source: "offload waits for writer of source",
		readers: "offload waits for readers of host page"},
	Onboard: onboardWaits,
	Duplicate: {"copy waits for writer of source", "copy waits for writer of destination",
		"copy waits for readers of destination"},
	Bulk: onboardWaits,
}

var onboardWaits = waits{"onboard waits for offload of host page",
	"onboard waits for writer of destination", "onboard waits for readers of destination"}

// WaitNames lists what Config.SkipWait may name.
func WaitNames() []string {
	l, c, u := laneWaits[Offload], laneWaits[Duplicate], onboardWaits
	return []string{l.source, l.readers, c.source, c.writer, c.readers, u.source, u.writer,
		u.readers, readAfterWriter, writeAfterWriter, writeAfterReaders}
}

// skips tells whether a test leaves a wait out.
func (o *Offloader) skips(wait string) bool { return wait != "" && wait == o.cfg.SkipWait }

// wait adds the tickets that one item must wait for to the submission.
//
// A read needs the last write of its source; a write needs the last write and all reads of its
// destination. Reads of the source are not waited for, since reads do not conflict.
func (o *Offloader) wait(it *item, src, dst *record) {
	cause := &laneWaits[it.lane]
	o.sub.Waits = o.afterWrite(o.sub.Waits, src, cause.source)
	o.sub.Waits = o.afterWrite(o.sub.Waits, dst, cause.writer)
	o.sub.Waits = o.afterReads(o.sub.Waits, dst, cause.readers)
}

// afterWrite adds the last write of a slot to a set of tickets.
func (o *Offloader) afterWrite(set []messages.Ticket, r *record, cause string) []messages.Ticket {
	if o.skips(cause) {
		return set
	}
	// Some of the reads may be writes, so a reader waits for all of them.
	if r.mixed {
		set = o.afterReads(set, r, cause)
	}
	return protocol.AddTicket(set, r.written)
}

// afterReads adds the reads of a slot.
func (o *Offloader) afterReads(set []messages.Ticket, r *record, cause string) []messages.Ticket {
	if o.skips(cause) {
		return set
	}
	for _, t := range r.reads {
		set = protocol.AddTicket(set, t)
	}
	return set
}

// mark records the pages that a kernel of the host reads or writes.
//
// The record of a copy assumes that it waited for what was before; a kernel's write cannot
// assume it, hence markWrite. A kernel that has passed needs no records: there is nothing to
// wait for. That is the usual case of a release, since a host that knows the last token of a
// sequence has waited for the kernel that computed it.
func (o *Offloader) mark(m *protocol.Mark) {
	if o.ledger.done(m.Ticket) {
		return
	}
	for _, p := range m.Pages {
		if p == messages.NoPage {
			continue
		}
		s := Slot{m.Pool, messages.Primary, p}
		if m.Write {
			o.ledger.markWrite(s, m.Ticket)
		} else {
			o.ledger.read(s, m.Ticket)
		}
	}
}

// answer says what must have passed before pages are read and written.
// Cost: one record a page.
//
// The set has one ticket for each stream, however many pages are asked about, so the host
// makes at most that many waits.
func (o *Offloader) answer(r *protocol.WaitQuery) {
	set := r.Tickets[:0]
	for pool, pages := range r.Read {
		for _, p := range pages {
			set = o.beforeRead(set, messages.PoolID(pool), p)
		}
	}
	for pool, pages := range r.Write {
		for _, p := range pages {
			set = o.beforeWrite(set, messages.PoolID(pool), p)
		}
	}
	// Filtered once at the end: the set is small and each question may ask the device.
	r.Tickets = o.ledger.withoutPassed(set)
}

// beforeRead adds what must have passed before a device page is read, if it is one.
func (o *Offloader) beforeRead(
	set []messages.Ticket, pool messages.PoolID, p messages.PageID,
) []messages.Ticket {
	if p == messages.NoPage {
		return set
	}
	return o.afterWrite(set, o.ledger.look(Slot{pool, messages.Primary, p}), readAfterWriter)
}

// beforeWrite adds what must have passed before a device page is written to, if it is one.
func (o *Offloader) beforeWrite(
	set []messages.Ticket, pool messages.PoolID, p messages.PageID,
) []messages.Ticket {
	if p == messages.NoPage {
		return set
	}
	r := o.ledger.look(Slot{pool, messages.Primary, p})
	return o.afterReads(o.afterWrite(set, r, writeAfterWriter), r, writeAfterReaders)
}

// HandoverWaits is what must have passed before the caller submits the copies of a hand-over to a
// stream of its own. The offloader treats such copies like kernels of the host: they change no
// state of a page, and staging memory is no memory of the engine.
func (o *Offloader) HandoverWaits(m *protocol.CopyPages) (set []messages.Ticket) {
	o.expect(idle, "HandoverWaits")
	o.ledger.begin()
	before := o.beforeRead
	if m.In {
		before = o.beforeWrite
	}
	for _, c := range m.Copies {
		set = before(set, c.Pool, c.Page)
	}
	return o.ledger.withoutPassed(set)
}

// NoteHandover notes, for all who use the pages later, that the copies of a hand-over read or
// write them until their ticket has passed.
func (o *Offloader) NoteHandover(m *protocol.CopyPages) {
	for _, c := range m.Copies {
		o.mark(&protocol.Mark{Pool: c.Pool, Pages: []messages.PageID{c.Page}, Write: m.In,
			Ticket: m.Ticket})
	}
}
