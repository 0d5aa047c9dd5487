//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// issued refuses tickets that no stream has issued.
// The zero ticket and those of destroyed streams have passed.
func (d *Device) issued(t gpu.Ticket) error {
	if t.IsZero() || d.streams.Destroyed(t.Stream) {
		return nil
	}
	st, err := d.stream(t.Stream)
	if err != nil {
		return err
	}
	// A wait for it would hang until the stream has come so far, perhaps for ever.
	if t.Seq > st.last {
		return fmt.Errorf("cuda: ticket %d of stream %s, whose last is %d", t.Seq, st.name, st.last)
	}
	return nil
}

// Known refuses tickets that no stream has issued. A device that has ended knows every ticket: its
// own error says more.
func (d *Device) Known(t gpu.Ticket) error {
	s, err := d.lock()
	if err != nil {
		return nil //nolint:nilerr // the next call returns it
	}
	defer s.unlock()
	return d.issued(t)
}

// ticket makes the next ticket of a stream: the counter, then the event, so that
// whatever comes after the event sees the counter. The stream's number rises only
// when both are queued; otherwise there would be a ticket whose event was never
// recorded, and a wait for such an event is no wait.
// The number is the stream's own: tickets of two streams have no order between them.
func (d *Device) ticket(s *session, st *stream) (gpu.Ticket, error) {
	// Number 0 is the ticket that has always passed.
	seq := st.last + 1

	if d.progress.counted() {
		at := d.progress.counter(st.place)
		if r := s.call(fnStreamWriteValue64, st.handle, at, uintptr(seq), 0); r != success {
			return d.waitInstead(s, st, s.failure(fnStreamWriteValue64, r, st.String()))
		}
	} else {
		d.poll(s, st, st.last) // before the oldest event is recorded again
	}
	// Recording an event again does not change what waited for its earlier recording.
	if r := s.call(fnEventRecord, st.events[seq%ring], st.handle); r != success {
		return d.waitInstead(s, st, s.failure(fnEventRecord, r, st.String()))
	}
	st.last, st.dirty = seq, false
	return gpu.Ticket{Stream: st.id, Seq: seq}, nil
}

// waitInstead replaces a ticket that could not be made: it waits for the stream,
// after which everything on the stream has passed, and so has the ticket that it
// returns. A stream that cannot be waited for is one of a lost device, or one of
// the host that is being captured: then nothing is on it that would ever pass.
func (d *Device) waitInstead(s *session, st *stream, cause error) (gpu.Ticket, error) {
	r := s.call(fnStreamSynchronize, st.handle)
	// A refusal because of the capture says nothing about the device, which is not lost.
	if r.capture() {
		return gpu.Ticket{}, cause
	}
	if err := s.failure(fnStreamSynchronize, r, st.String()); err != nil {
		d.markLost(err)
		return gpu.Ticket{}, fmt.Errorf("%w: %w", cause, err)
	}
	// The counter may have been written: the number is not used again.
	st.last++
	st.dirty = false
	d.progress.note(st.place, st.last)
	return gpu.Ticket{Stream: st.id, Seq: st.last}, nil
}

// event is an event that passes when the ticket has passed, or later.
func (st *stream) event(seq uint64) uintptr {
	// Tickets up to last − ring have no event of their own any more.
	if st.last >= ring {
		seq = max(seq, st.last-ring+1)
	}
	return st.events[seq%ring]
}

// poll learns by events what has passed, up to a ticket, on a device without
// counters. Of a ticket whose event was recorded again it learns with the oldest
// that is left.
func (d *Device) poll(s *session, st *stream, upTo uint64) {
	seq := d.progress.reached(st.place) + 1
	if upTo >= ring {
		seq = max(seq, upTo-ring+1)
	}
	// Tickets of a stream pass in order, so the first that has not passed ends the search.
	for ; seq <= upTo; seq++ {
		r := s.call(fnEventQuery, st.events[seq%ring])
		if r != success {
			if r != notReady {
				_ = s.failure(fnEventQuery, r, st.String()) // notes a lost device
			}
			return
		}
		d.progress.note(st.place, seq)
	}
}

// Fence returns the point after all that was queued on the stream so far.
// The host calls it behind a kernel that it has launched on a stream of its own.
func (d *Device) Fence(id gpu.Stream) (gpu.Ticket, error) {
	s, st, err := d.lockWithStream(id)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer s.unlock()
	d.tellEnded(s)
	// Nothing was queued since the last ticket, which therefore covers all. Of the host's streams
	// that is not known.
	if !st.dirty && !st.external {
		return gpu.Ticket{Stream: id, Seq: st.last}, nil
	}
	if err := s.notCapturing(st); err != nil {
		return gpu.Ticket{}, err
	}
	return d.ticket(s, st)
}

// Wait makes what is queued on the stream later wait for the tickets.
func (d *Device) Wait(id gpu.Stream, tickets ...gpu.Ticket) error {
	s, st, err := d.lockWithStream(id)
	if err != nil {
		return err
	}
	defer s.unlock()
	// All are checked before the first wait is queued, so that a refused call changes nothing.
	for _, t := range tickets {
		if err := d.issued(t); err != nil {
			return fmt.Errorf("wait on stream %s: %w", st.name, err)
		}
	}
	if err := s.notCapturing(st); err != nil {
		return err
	}
	// Also a wait for what has passed makes the next fence a new point, so that
	// what fences cover does not depend on how far the device is.
	st.dirty = st.dirty || len(tickets) > 0
	return d.waitFor(s, st, tickets)
}

// waitFor queues waits; what has passed, or comes before on the same stream,
// needs none.
func (d *Device) waitFor(s *session, st *stream, tickets []gpu.Ticket) error {
	for _, t := range tickets {
		// A wait that the device need not make would cost a call and an entry of its queue. The
		// own stream is in order anyway.
		if t.Stream == st.id || d.passed(s, t) {
			continue
		}
		from, err := d.streams.Find(t.Stream)
		if err != nil { // a destroyed stream has passed
			continue
		}
		if r := s.call(fnStreamWaitEvent, st.handle, from.event(t.Seq), 0); r != success {
			return s.failure(fnStreamWaitEvent, r, fmt.Sprintf("%s for ticket %d of %s", st, t.Seq,
				from.name))
		}
		st.dirty = true
	}
	return nil
}

// passed tells whether a known ticket has passed; those of a destroyed stream
// have. It runs under the lock.
func (d *Device) passed(s *session, t gpu.Ticket) bool {
	if t.IsZero() {
		return true
	}
	st, err := d.streams.Find(t.Stream)
	if err != nil {
		return true
	}
	// With counters the device itself keeps the number up to date; without them it is what the
	// last poll has learned.
	if d.progress.reached(st.place) < t.Seq && !d.progress.counted() {
		d.poll(s, st, st.last)
	}
	return d.progress.reached(st.place) >= t.Seq
}

// Done tells whether a ticket has passed. Where streams write counters that is
// a few atomic loads: no lock, no driver call. An error that ended the context is
// seen by the next call that asks the driver.
// The loads are atomic: the device writes the counter while the CPU reads it.
func (d *Device) Done(t gpu.Ticket) bool {
	if d.ending() != nil {
		return false
	}
	if t.IsZero() {
		return true
	}
	place := streams.IndexOf(t.Stream)
	// A place that belongs to another stream by now is left to the slow path, which knows both.
	if d.progress.counted() && d.progress.has(place, t.Stream) {
		return d.progress.reached(place) >= t.Seq
	}
	s, err := d.lock()
	if err != nil {
		return false
	}
	defer s.unlock()
	return d.issued(t) == nil && d.passed(s, t) && d.ending() == nil
}

// Sync blocks until the ticket has passed or the context ends. A thread sits in
// the driver meanwhile, also for a while after the context has ended.
// A host that polls Done instead needs no thread.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	event, on, err := d.waitable(t)
	if err != nil || event == 0 {
		return err
	}
	// The call that waitable has counted ends here, since no goroutine is started.
	if err := ctx.Err(); err != nil {
		d.busy.Done()
		return err
	}
	// Buffered: when the context ends first, the goroutine still ends.
	passed := make(chan error, 1)
	go func() {
		defer d.busy.Done()
		passed <- d.block(event, on, t)
	}()
	select {
	case err := <-passed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitable returns the event to wait for, 0 when the ticket has passed; with an
// event, it counts a call in the driver.
// Close waits for that call, so the event is not destroyed under the wait.
func (d *Device) waitable(t gpu.Ticket) (event uintptr, on string, err error) {
	s, err := d.lock()
	if err != nil {
		return 0, "", err
	}
	defer s.unlock()
	if err := d.issued(t); err != nil {
		return 0, "", err
	}
	if t.Seq == 0 || d.passed(s, t) {
		return 0, "", d.ending()
	}
	st, _ := d.streams.Find(t.Stream)
	// Under the lock, and after a session has begun: Close has not begun to wait.
	d.busy.Add(1)
	return st.event(t.Seq), fmt.Sprintf("%s, ticket %d", st, t.Seq), nil
}

// block sits in the driver until an event has passed.
// It runs on a goroutine of its own, whose thread sleeps in the driver.
func (d *Device) block(event uintptr, on string, t gpu.Ticket) error {
	s, err := d.beginAnyway()
	if err != nil {
		return err
	}
	defer s.end()
	if err := s.do(fnEventSynchronize, on, event); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The stream may have been destroyed meanwhile.
	if st, err := d.streams.Find(t.Stream); err == nil {
		d.progress.note(st.place, t.Seq)
	}
	return nil
}
