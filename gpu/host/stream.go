package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// remembered is how many failed tickets of a stream Sync tells of.
const remembered = 256

// stream is a queue, with what waits for it. Each waiter waits for a number above Done.
type stream struct {
	inprocess.Stream[*op]
	waiters []waiter
	failed  []failure // the latest
}

// waiter is what goes on when a number of a stream is done: an operation or a goroutine.
type waiter struct {
	seq     uint64
	op      *op
	sleeper *sleeper
}

// sleeper is a goroutine in Sync.
type sleeper struct{ passed chan struct{} }

// failure is an operation that failed.
type failure struct {
	seq uint64
	err error
}

// NewStream makes a stream.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.New(&stream{}, name)
}

// DestroyStream gives a stream back when all its operations have ended.
func (d *Device) DestroyStream(s gpu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.Destroy(s)
}

// Known refuses tickets that no stream has issued.
func (d *Device) Known(t gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.Known(t)
}

// Fence returns the point after all that was queued on the stream so far: the ticket of
// the last operation. That of an unused stream has passed.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.Fence(s)
}

// Done tells whether a ticket has passed. Unknown tickets have not, and on a device that
// is lost or closed none has.
func (d *Device) Done(t gpu.Ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.Err == nil && d.streams.Known(t) == nil && d.streams.Passed(t)
}

// Sync blocks until the ticket has passed. The error is that of the context,
// gpu.ErrClosed, gpu.ErrDeviceLost, names a ticket that no stream has issued, or is
// what Complete was told of this ticket. Of a stream's failed tickets the last 256 are
// remembered.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	s, err := d.sleep(t)
	if err != nil {
		return err
	}
	if s != nil {
		select {
		case <-s.passed:
		case <-ctx.Done():
			d.forget(t, s)
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return d.streams.Err
	}
	return d.failure(t)
}

// sleep makes a sleeper for a ticket that has not passed; nil: it has.
func (d *Device) sleep(t gpu.Ticket) (*sleeper, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return nil, d.streams.Err
	}
	if err := d.streams.Known(t); err != nil || d.streams.Passed(t) {
		return nil, err
	}
	s := &sleeper{passed: make(chan struct{})}
	d.syncs[s] = struct{}{}
	d.await(t, waiter{sleeper: s})
	return s, nil
}

// await enters a waiter for a ticket that has not passed.
func (d *Device) await(t gpu.Ticket, w waiter) {
	st, err := d.streams.Table.Find(t.Stream)
	if err != nil {
		panic(fmt.Sprintf("host: ticket %d of stream %d was not refused: %v", t.Seq, t.Stream, err))
	}
	w.seq = t.Seq
	st.waiters = append(st.waiters, w)
}

// forget takes a sleeper away whose context has ended.
func (d *Device) forget(t gpu.Ticket, s *sleeper) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.syncs, s)
	st, err := d.streams.Table.Find(t.Stream)
	if err != nil {
		return
	}
	for i := range st.waiters {
		if st.waiters[i].sleeper == s {
			last := len(st.waiters) - 1
			st.waiters[i], st.waiters[last] = st.waiters[last], waiter{}
			st.waiters = st.waiters[:last]
			return
		}
	}
}

// failure is the error of a ticket that has passed.
func (d *Device) failure(t gpu.Ticket) error {
	s, err := d.streams.Table.Find(t.Stream)
	if err != nil {
		return nil //nolint:nilerr // tickets of a destroyed stream have passed
	}
	for _, f := range s.failed {
		if f.seq == t.Seq {
			return fmt.Errorf("host: ticket %d of stream %s: %w", t.Seq, s.Name, f.err)
		}
	}
	return nil
}

// fail notes that an operation failed.
func (s *stream) fail(seq uint64, err error) {
	if len(s.failed) == remembered {
		s.failed = append(s.failed[:0], s.failed[1:]...)
	}
	s.failed = append(s.failed, failure{seq, err})
}

// NewTicket queues an operation that the host application ends by Complete. What is queued
// on the stream later, and what waits for the ticket, waits for that. The operation
// itself is behind all that the stream was given before, and the waits: who does the work
// begins when these have passed, which Sync and Done tell.
func (d *Device) NewTicket(s gpu.Stream, label string, waits ...gpu.Ticket) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Waitable(s, fmt.Sprintf("ticket %q", label), waits)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.room(st, 0); err != nil {
		return gpu.Ticket{}, err
	}
	d.enqueue(st, foreign, label, waits)
	d.advance(st)
	return gpu.Ticket{Stream: s, Seq: st.Last}, nil
}

// errTwice is the mistake of two completions.
var errTwice = errors.New("it is complete already, or not a ticket of NewTicket")

// Complete ends the operation of a ticket of NewTicket: with nil, the bytes are where they
// belong; with an error, they never will be. The ticket passes when those before it on
// its stream have passed, so completions may come in any order. A second one is refused.
func (d *Device) Complete(t gpu.Ticket, failed error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return d.streams.Err
	}
	st, err := d.streams.Table.Find(t.Stream)
	if err != nil {
		return fmt.Errorf("host: ticket %d: %w", t.Seq, err)
	}
	if t.Seq <= st.Done || t.Seq > st.Last {
		return fmt.Errorf("host: ticket %d of stream %s: %w", t.Seq, st.Name, errTwice)
	}
	// Numbers in the queue are consecutive.
	o := st.Queue.All()[t.Seq-st.Done-1]
	if o.kind != foreign || o.complete {
		return fmt.Errorf("host: ticket %d of stream %s: %w", t.Seq, st.Name, errTwice)
	}
	o.complete = true
	if failed != nil {
		st.fail(t.Seq, failed)
	}
	d.advance(st)
	return nil
}
