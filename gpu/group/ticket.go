package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// asked is how many tickets a stream remembers before it asks which have passed. An engine has
// fewer copies under way on a stream than that nearly always.
const asked = 64

// tickets are the tickets of a stream of the group with those of the ranks that they
// stand for. Tickets that have passed on all ranks are forgotten, oldest first, which a stream
// allows because it passes its tickets in order.
//
// Invariants: 1 ≤ first ≤ next; parts has those of the tickets in [first, next); those below
// first have passed.
type tickets struct {
	ranks int
	parts inprocess.FIFO[uint64] // the numbers of all ranks for one ticket beside one another
	// first is the oldest ticket that is remembered, next the number of the next one. The
	// numbers of a stream begin at 1: ticket 0 is the point before anything was queued.
	first, next uint64
	last        []uint64 // by rank, of ticket next−1; zeros before there is one
}

// newTickets makes an empty list.
func newTickets(ranks int) tickets {
	return tickets{ranks: ranks, first: 1, next: 1, last: make([]uint64, ranks)}
}

// at are the tickets of the ranks for one in [first, next).
func (t *tickets) at(seq uint64) []uint64 {
	i := int(seq-t.first) * t.ranks
	return t.parts.All()[i : i+t.ranks]
}

// passed notes that a ticket has passed on all ranks, and with it all before it.
// Goroutines may report tickets in another order than they passed.
func (t *tickets) passed(seq uint64) {
	for ; t.first <= seq && t.first < t.next; t.first++ {
		for range t.ranks {
			t.parts.Pop()
		}
	}
}

// full tells whether so many tickets are remembered that some may be forgotten.
func (t *tickets) full() bool { return t.next-t.first >= asked }

// add appends a ticket.
func (t *tickets) add(seqs []uint64) {
	for _, seq := range seqs {
		t.parts.Push(seq)
	}
	// Kept apart: the last ticket may have been forgotten when it is compared with.
	copy(t.last, seqs)
	t.next++
}

// ticket returns the ticket of the group for st.seqs: the last one if the ranks have not
// moved on since then, else a new one. The caller holds the order of the stream.
func (d *Device) ticket(s gpu.Stream, st *stream) gpu.Ticket {
	d.forgetPassed(s, st)
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &st.tickets
	for r, seq := range st.seqs {
		// One rank that has moved on is enough: a fence after a wait may be a new point on some
		// ranks only, where what was waited for has not passed.
		if seq != t.last[r] {
			t.add(st.seqs)
			break
		}
	}
	return gpu.Ticket{Stream: s, Seq: t.next - 1}
}

// forgetPassed forgets tickets that have passed when many are remembered. Without it the list
// would grow when the host never asks for a ticket.
func (d *Device) forgetPassed(s gpu.Stream, st *stream) {
	// The members are asked without the lock, which kernels need that run meanwhile.
	d.mu.Lock()
	full, seq := st.tickets.full(), st.tickets.first
	d.mu.Unlock()
	// Done forgets what has passed. The first ticket that has not passed ends the search.
	for full && d.Done(gpu.Ticket{Stream: s, Seq: seq}) {
		d.mu.Lock()
		full, seq = st.tickets.first < st.tickets.next, st.tickets.first
		d.mu.Unlock()
	}
}

// part is the ticket of a rank that a ticket of the group stands for; the zero ticket if
// that has passed on all ranks. It is called under mu.
func (d *Device) part(t gpu.Ticket, rank int) (gpu.Ticket, error) {
	// A stream could only be destroyed when all of it had passed.
	if t.IsZero() || d.streams.Destroyed(t.Stream) {
		return gpu.Ticket{}, nil
	}
	st, err := d.streams.Find(t.Stream)
	switch {
	case err != nil:
		return gpu.Ticket{}, fmt.Errorf("group: ticket %d: %w", t.Seq, err)
	case t.Seq >= st.tickets.next:
		return gpu.Ticket{}, fmt.Errorf("group: ticket %d of stream %s, whose last is %d", t.Seq, st.name,
			st.tickets.next-1)
	// Only tickets that have passed on all ranks are forgotten; number 0 is before all of them.
	case t.Seq < st.tickets.first:
		return gpu.Ticket{}, nil
	}
	return gpu.Ticket{Stream: st.on[rank], Seq: st.tickets.at(t.Seq)[rank]}, nil
}

// Known refuses tickets that no stream has issued.
func (d *Device) Known(t gpu.Ticket) error {
	_, err := d.TicketOf(0, t)
	return err
}

// TicketOf is what a ticket of the group is on one rank: the zero ticket if it has
// passed on all.
func (d *Device) TicketOf(rank int, t gpu.Ticket) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.part(t, rank)
}

// translateWaits puts what each rank has to wait for into the stream's batches. An
// unknown ticket is refused before any rank has been told anything.
func (d *Device) translateWaits(st *stream, waits []gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range st.batches {
		b := &st.batches[r]
		// The list belongs to the stream and is used again: nothing is allocated in steady use.
		b.Waits = b.Waits[:0]
		for _, w := range waits {
			t, err := d.part(w, r)
			if err != nil {
				return err
			}
			// What has passed on all ranks is left out: the rank would look it up for nothing.
			if !t.IsZero() {
				b.Waits = append(b.Waits, t)
			}
		}
	}
	return nil
}

// Done tells whether a ticket has passed on all ranks. On a group that has ended none
// has.
func (d *Device) Done(t gpu.Ticket) bool {
	// How much the failed rank has done is not known, so the host must not
	// reuse memory that its copies may still write to.
	if d.ending() != nil {
		return false
	}
	for r, m := range d.members {
		part, err := d.TicketOf(r, t)
		if err != nil {
			return false
		}
		// A zero part says that the ticket has passed on all ranks.
		if part.IsZero() {
			return true
		}
		// One rank that is behind is enough: the ranks after it are not asked.
		if !m.Done(part) {
			return false
		}
	}
	d.forget(t)
	return true
}

// forget notes that a ticket has passed on all ranks.
func (d *Device) forget(t gpu.Ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A stream that was destroyed meanwhile has no list any more, and needs none.
	if st, err := d.streams.Find(t.Stream); err == nil {
		st.tickets.passed(t.Seq)
	}
}

// Sync blocks until the ticket has passed on all ranks or the context ends. The ranks
// work at the same time, so waiting for one after the other takes as long as the slowest.
// On a group that has ended it still waits for the ranks that answer, and then says why
// the group has ended: what they have under way may write to memory.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	if err := d.ending(); errors.Is(err, gpu.ErrClosed) {
		return err
	}
	for r, m := range d.members {
		part, err := d.TicketOf(r, t)
		if err != nil {
			return errors.Join(d.ending(), err)
		}
		// It will never pass there, and no byte moves there any more.
		if d.dead[r].Load() {
			continue
		}
		if err := m.Sync(ctx, part); err != nil {
			// The end of the context, nearly always: the ranks behind are not waited for.
			if !terminal(err) {
				return d.named(r, err)
			}
			_ = d.fail(r, err) // which is returned when the others are done
		}
	}
	if err := d.ending(); err != nil {
		return err
	}
	d.forget(t)
	return nil
}
