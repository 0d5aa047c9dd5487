package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// remembered is how many past operations of a stream Timing knows.
// It bounds the memory of a stream to 8 KiB of times.
const remembered = 256

// forever is a time that does not come.
const forever = math.MaxInt64

// stream is an in-order queue. Its operations have numbers 1, 2, …; done is
// that of the last one that has ended.
//
// Invariants: done < the numbers in the queue ≤ last, and these are consecutive. Only the
// first one may be ready or running.
type stream struct {
	id      gpu.Stream
	name    string
	last    uint64
	done    uint64
	queue   inprocess.FIFO[*op]
	stalled int64 // nothing starts before this time
	// past is a ring: the operation with number n is at n modulo remembered. Nil at first.
	past []Timing
}

// NewStream makes a stream.
// The name is for traces and errors; two streams may have the same one.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	// The queue grows with use: most streams hold a few operations.
	st := &stream{name: name}
	id, ok := d.streams.Add(st)
	if !ok {
		return 0, fmt.Errorf("sim: stream %s: there are %d streams already", name, gpu.MaxStreams)
	}
	st.id = id
	return id, nil
}

// DestroyStream gives a stream back when all its operations have ended.
func (d *Device) DestroyStream(s gpu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	// The operation is named, since the caller has to find the wait that it forgot.
	if !st.queue.Empty() {
		o := st.queue.First()
		return fmt.Errorf("sim: stream %s: destroyed while %s %q, operation %d, is under way: %w",
			st.name, o.kind, o.label, o.seq, gpu.ErrInUse)
	}
	d.streams.Remove(s)
	return nil
}

// stream finds a live stream of a device that has not ended.
func (d *Device) stream(s gpu.Stream) (*stream, error) {
	if d.err != nil {
		return nil, d.err
	}
	st, err := d.streams.Find(s)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return st, nil
}

// known refuses tickets that no stream has issued.
func (d *Device) known(t gpu.Ticket) error {
	if t.IsZero() || d.streams.Destroyed(t.Stream) {
		return nil
	}
	s, err := d.streams.Find(t.Stream)
	if err != nil {
		return fmt.Errorf("sim: ticket %d: %w", t.Seq, err)
	}
	// A ticket from the future is a bug of the caller; to wait for it would hang.
	if t.Seq > s.last {
		return fmt.Errorf("sim: ticket %d of stream %s, whose last is %d", t.Seq, s.name, s.last)
	}
	return nil
}

// Known refuses tickets that no stream has issued.
func (d *Device) Known(t gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known(t)
}

// passed is asked about known tickets; those of a destroyed stream have passed.
func (d *Device) passed(t gpu.Ticket) bool {
	if t.IsZero() {
		return true
	}
	s, err := d.streams.Find(t.Stream)
	return err != nil || s.done >= t.Seq
}

// Fence returns the point after all that was queued on the stream so far.
// Nothing is queued for it: the ticket is that of the last operation, and the one of an
// unused stream has passed.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.stream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	return gpu.Ticket{Stream: s, Seq: st.last}, nil
}

// Done tells whether a ticket has passed. Unknown tickets have not passed, and on
// a device that is lost or closed no ticket has.
func (d *Device) Done(t gpu.Ticket) bool {
	passed, err := d.ask(t)
	return passed && err == nil
}

// Stall keeps a stream from starting anything for a time, as a host does that
// is late with its launches.
func (d *Device) Stall(s gpu.Stream, t time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	// Stalls do not add up: a host that is late twice at once is late once.
	st.stalled = max(st.stalled, d.now+int64(t))
	return nil
}

// Timing is when an operation was submitted, started and ended, in virtual time.
type Timing struct {
	Seq                uint64
	Submit, Start, End time.Duration
}

// Timing returns the times of a passed operation; ok is false when it has not
// passed or was too long ago: a stream remembers its last 256.
func (d *Device) Timing(t gpu.Ticket) (timing Timing, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streams.Find(t.Stream)
	if err != nil || len(s.past) == 0 {
		return Timing{}, false
	}
	// The ring may hold a later operation in this place; its number tells.
	timing = s.past[t.Seq%remembered]
	return timing, timing.Seq == t.Seq && t.Seq != 0
}
