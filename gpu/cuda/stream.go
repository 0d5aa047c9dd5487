//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// ring is how many tickets of a stream have an event of their own; older ones
// are waited for by the oldest of these, which comes later on the stream.
const ring = 64

// Flags of the driver.
const (
	streamNonBlocking  = 1
	eventBlockingSync  = 1
	eventDisableTiming = 2
	portableMapped     = 1 | 2
)

// stream is a stream with its tickets 1 … last.
type stream struct {
	name   string
	index  int
	handle uintptr
	last   uint64
	passed uint64 // known to have passed, where there is no counter
	events [ring]uintptr
	// dirty: something was queued since the last ticket.
	dirty bool
	// external: the host application queues work on it that we do not see.
	external bool
}

// NewStream makes a stream.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	r := d.driver.call(fnStreamCreate, address(&d.out.number[0]), streamNonBlocking, 0)
	if err := d.failure(fnStreamCreate, r, "stream "+name); err != nil {
		return 0, err
	}
	return d.addStream(&stream{name: name, handle: uintptr(d.out.number[0])})
}

// External takes in a stream of the host application, a CUstream of the same
// process and the same context. Its tickets come from Fence.
func (d *Device) External(name string, handle uintptr) (gpu.Stream, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	on := "stream " + name
	r := d.driver.call(fnStreamGetCtx, handle, address(&d.out.number[0]))
	if err := d.failure(fnStreamGetCtx, r, on); err != nil {
		return 0, err
	}
	if uintptr(d.out.number[0]) != d.context {
		return 0, fmt.Errorf("cuda: stream %s belongs to another context than the device's primary one", name)
	}
	r = d.driver.call(fnStreamIsCapturing, handle, address(&d.out.small))
	if err := d.failure(fnStreamIsCapturing, r, on); err != nil {
		return 0, err
	}
	if d.out.small != 0 {
		return 0, fmt.Errorf("cuda: stream %s is being captured into a graph", name)
	}
	return d.addStream(&stream{name: name, handle: handle, external: true})
}

// ExternalEvent gives a ticket that passes when an event of the host application
// has: a CUevent of the same process and context, recorded before. It waits on a
// stream of its own, in the order of the calls: a ticket passes after those given
// for events before.
func (d *Device) ExternalEvent(event uintptr) (gpu.Ticket, error) {
	if err := d.enter(); err != nil {
		return gpu.Ticket{}, err
	}
	defer d.leave()
	const on = "stream external events"
	if d.foreign == 0 {
		r := d.driver.call(fnStreamCreate, address(&d.out.number[0]), streamNonBlocking, 0)
		if err := d.failure(fnStreamCreate, r, on); err != nil {
			return gpu.Ticket{}, err
		}
		id, err := d.addStream(&stream{name: "external events", handle: uintptr(d.out.number[0])})
		if err != nil {
			return gpu.Ticket{}, err
		}
		d.foreign = id
	}
	s, err := d.stream(d.foreign)
	if err != nil {
		return gpu.Ticket{}, err
	}
	r := d.driver.call(fnStreamWaitEvent, s.handle, event, 0)
	if err := d.failure(fnStreamWaitEvent, r, on); err != nil {
		return gpu.Ticket{}, err
	}
	return d.ticket(d.foreign, s)
}

// addStream makes the events of a stream.
func (d *Device) addStream(s *stream) (gpu.Stream, error) {
	for i := range s.events {
		r := d.driver.call(fnEventCreate, address(&d.out.number[0]), eventBlockingSync|eventDisableTiming)
		if err := d.failure(fnEventCreate, r, "stream "+s.name); err != nil {
			d.endStream(s)
			return 0, err
		}
		s.events[i] = uintptr(d.out.number[0])
	}
	id, ok := d.streams.Add(s)
	if !ok {
		d.endStream(s)
		return 0, fmt.Errorf("cuda: stream %s: there are %d streams already", s.name, gpu.MaxStreams)
	}
	s.index = streams.Place(id)
	atomic.StoreUint64(&d.out.counters[s.index], 0)
	return id, nil
}

// DestroyStream gives a stream back when everything queued on it has passed. A
// stream of the host application is only forgotten: it is not touched, and the
// host may have destroyed it before.
func (d *Device) DestroyStream(id gpu.Stream) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	s, err := d.stream(id)
	if err != nil {
		return err
	}
	if !d.passedLocked(gpu.Ticket{Stream: id, Seq: s.last}) {
		return fmt.Errorf("cuda: stream %s: destroyed before ticket %d has passed: %w", s.name, s.last, gpu.ErrInUse)
	}
	if s.dirty && !s.external {
		switch r := d.driver.call(fnStreamQuery, s.handle); r {
		case success:
		case notReady:
			return fmt.Errorf("cuda: stream %s: destroyed while it waits: %w", s.name, gpu.ErrInUse)
		default:
			return d.failure(fnStreamQuery, r, "stream "+s.name)
		}
	}
	d.streams.Remove(id)
	d.endStream(s)
	if id == d.foreign {
		d.foreign = 0
	}
	return nil
}

func (d *Device) endStream(s *stream) {
	for i, e := range s.events {
		if e != 0 {
			d.driver.call(fnEventDestroy, e)
			s.events[i] = 0
		}
	}
	if !s.external {
		d.driver.call(fnStreamDestroy, s.handle)
	}
}

// drain waits until all streams are idle.
func (d *Device) drain() {
	for _, s := range d.streams.All {
		d.driver.call(fnStreamSynchronize, s.handle)
	}
}

func (d *Device) stream(s gpu.Stream) (*stream, error) {
	st, err := d.streams.Find(s)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return st, nil
}

// known refuses tickets that no stream has given.
func (d *Device) known(t gpu.Ticket) error {
	if t.IsZero() || d.streams.Destroyed(t.Stream) {
		return nil
	}
	s, err := d.stream(t.Stream)
	if err != nil {
		return err
	}
	if t.Seq > s.last {
		return fmt.Errorf("cuda: ticket %d of stream %s, which has given %d", t.Seq, s.name, s.last)
	}
	return nil
}

// ticket makes the next ticket of a stream: the counter, then the event, so
// that whoever has seen the event sees the counter.
func (d *Device) ticket(id gpu.Stream, s *stream) (gpu.Ticket, error) {
	s.last++
	s.dirty = false
	if d.counters != 0 {
		at := d.counters + uintptr(s.index)*8
		r := d.driver.call(fnStreamWriteValue64, s.handle, at, uintptr(s.last), 0)
		if err := d.failure(fnStreamWriteValue64, r, "stream "+s.name); err != nil {
			return gpu.Ticket{}, err
		}
	} else {
		d.poll(s, s.last-1) // before the oldest event is recorded anew
	}
	r := d.driver.call(fnEventRecord, s.events[s.last%ring], s.handle)
	if err := d.failure(fnEventRecord, r, "stream "+s.name); err != nil {
		return gpu.Ticket{}, err
	}
	return gpu.Ticket{Stream: id, Seq: s.last}, nil
}

// event is an event that passes when the ticket has passed, or later.
func (s *stream) event(seq uint64) uintptr {
	if s.last >= ring {
		seq = max(seq, s.last-ring+1)
	}
	return s.events[seq%ring]
}

// poll learns by events what has passed, up to a ticket, on a stream without a
// counter. Of a ticket whose event was recorded anew it learns with the oldest
// that is left.
func (d *Device) poll(s *stream, upTo uint64) {
	seq := s.passed + 1
	if upTo >= ring {
		seq = max(seq, upTo-ring+1)
	}
	for ; seq <= upTo; seq++ {
		if d.driver.call(fnEventQuery, s.events[seq%ring]) != success {
			return
		}
		s.passed = seq
	}
}

func (d *Device) count(s *stream) uint64 {
	return atomic.LoadUint64(&d.out.counters[s.index])
}

// Fence gives the point after all that was queued on the stream so far.
func (d *Device) Fence(id gpu.Stream) (gpu.Ticket, error) {
	if err := d.enter(); err != nil {
		return gpu.Ticket{}, err
	}
	defer d.leave()
	s, err := d.stream(id)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if !s.dirty && !s.external {
		return gpu.Ticket{Stream: id, Seq: s.last}, nil
	}
	return d.ticket(id, s)
}

// Wait makes what is queued on the stream later wait for the tickets.
func (d *Device) Wait(id gpu.Stream, tickets ...gpu.Ticket) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	s, err := d.stream(id)
	if err != nil {
		return err
	}
	for _, t := range tickets {
		if err := d.known(t); err != nil {
			return fmt.Errorf("wait on stream %s: %w", s.name, err)
		}
	}
	// Also a wait for what has passed makes the next fence a new point, so that
	// what fences cover does not depend on how far the device is.
	s.dirty = s.dirty || len(tickets) > 0
	return d.waitFor(s, tickets)
}

// waitFor queues waits; what has passed, or comes before on the same stream,
// needs none.
func (d *Device) waitFor(s *stream, tickets []gpu.Ticket) error {
	for _, t := range tickets {
		if d.passedLocked(t) {
			continue
		}
		from, err := d.streams.Find(t.Stream)
		if err != nil || from == s {
			continue
		}
		r := d.driver.call(fnStreamWaitEvent, s.handle, from.event(t.Seq), 0)
		if err := d.failure(fnStreamWaitEvent, r, fmt.Sprintf("stream %s for ticket %d of %s", s.name, t.Seq, from.name)); err != nil {
			return err
		}
		s.dirty = true
	}
	return nil
}

// passedLocked tells whether a known ticket has passed; those of a destroyed
// stream have.
func (d *Device) passedLocked(t gpu.Ticket) bool {
	s, err := d.streams.Find(t.Stream)
	if t.IsZero() || err != nil {
		return true
	}
	if d.counters != 0 {
		return d.count(s) >= t.Seq
	}
	if s.passed < t.Seq {
		d.poll(s, s.last)
	}
	return s.passed >= t.Seq
}

// Done tells whether a ticket has passed.
func (d *Device) Done(t gpu.Ticket) bool {
	if t.IsZero() {
		return true
	}
	if d.enter() != nil {
		return false
	}
	defer d.leave()
	return d.known(t) == nil && d.passedLocked(t)
}

// Sync blocks until the ticket has passed or the context ends. A thread sits in
// the driver meanwhile, also for a while after the context has ended.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	event, on, err := d.waitable(t)
	if err != nil || event == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		d.waiters.Done()
		return err
	}
	passed := make(chan result, 1)
	go func() {
		defer d.waiters.Done()
		passed <- d.block(event)
	}()
	select {
	case r := <-passed:
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.failure(fnEventSynchronize, r, on); err != nil {
			return err
		}
		if s, err := d.streams.Find(t.Stream); err == nil {
			s.passed = max(s.passed, t.Seq)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitable gives the event to wait for, 0 when the ticket has passed; with an
// event, a waiter is counted.
func (d *Device) waitable(t gpu.Ticket) (event uintptr, on string, err error) {
	if err := d.enter(); err != nil {
		return 0, "", err
	}
	defer d.leave()
	if err := d.known(t); err != nil {
		return 0, "", err
	}
	if t.IsZero() || t.Seq == 0 || d.passedLocked(t) {
		return 0, "", nil
	}
	d.waiters.Add(1)
	s, _ := d.streams.Find(t.Stream)
	return s.event(t.Seq), fmt.Sprintf("stream %s, ticket %d", s.name, t.Seq), nil
}
