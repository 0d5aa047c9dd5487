package sim

import (
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

// stream is a queue. Only its first operation may be ready or running.
type stream struct {
	inprocess.Stream[*op]
	stalled int64 // nothing starts before this time
	// past is a ring: the operation with number n is at n modulo remembered. Nil at first.
	past []Timing
}

// NewStream makes a stream.
// The name is for traces and errors; two streams may have the same one.
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

// Fence returns the point after all that was queued on the stream so far.
// Nothing is queued for it: the ticket is that of the last operation, and the one of an
// unused stream has passed.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.streams.Fence(s)
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
	st, err := d.streams.Live(s)
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
	s, err := d.streams.Table.Find(t.Stream)
	if err != nil || len(s.past) == 0 {
		return Timing{}, false
	}
	// The ring may hold a later operation in this place; its number tells.
	timing = s.past[t.Seq%remembered]
	return timing, timing.Seq == t.Seq && t.Seq != 0
}
