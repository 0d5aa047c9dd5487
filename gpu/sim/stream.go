package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/kvactor/kvactor/gpu"
)

// maxStreams is far above what anybody needs; each keeps its last operations.
const maxStreams = 1024

// remembered is how many past operations of a stream Timing knows.
const remembered = 256

// forever is a time that does not come.
const forever = math.MaxInt64

// stream is an in-order queue. Its operations have numbers 1, 2, …; done is
// that of the last one that has ended.
type stream struct {
	name    string
	last    uint64
	done    uint64
	queue   fifo
	stalled int64 // nothing starts before this time
	past    []Timing
}

// fifo is a queue of operation records. The head moves through a slice that is
// packed when more than half of it is behind.
type fifo struct {
	items []int32
	head  int
}

func (q *fifo) push(i int32) { q.items = append(q.items, i) }
func (q *fifo) clear()       { q.items, q.head = q.items[:0], 0 }
func (q *fifo) all() []int32 { return q.items[q.head:] }
func (q *fifo) empty() bool  { return q.head == len(q.items) }
func (q *fifo) first() int32 { return q.items[q.head] }
func (q *fifo) pop() (i int32) {
	i = q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.clear()
	} else if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		q.items, q.head = q.items[:n], 0
	}
	return i
}

// NewStream makes a stream.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	if len(d.streams) == maxStreams {
		return 0, fmt.Errorf("sim: stream %s: there are %d streams already", name, maxStreams)
	}
	d.streams = append(d.streams, &stream{name: name})
	return gpu.Stream(len(d.streams)), nil
}

func (d *Device) stream(s gpu.Stream) (*stream, error) {
	if d.err != nil {
		return nil, d.err
	}
	if s == 0 || int(s) > len(d.streams) {
		return nil, fmt.Errorf("sim: no stream %d", s)
	}
	return d.streams[s-1], nil
}

// known refuses tickets that no stream has given.
func (d *Device) known(t gpu.Ticket) error {
	if t.IsZero() {
		return nil
	}
	if int(t.Stream) > len(d.streams) {
		return fmt.Errorf("sim: ticket of stream %d, which does not exist", t.Stream)
	}
	if s := d.streams[t.Stream-1]; t.Seq > s.last {
		return fmt.Errorf("sim: ticket %d of stream %s, which has given %d", t.Seq, s.name, s.last)
	}
	return nil
}

func (d *Device) passed(t gpu.Ticket) bool {
	return t.IsZero() || d.streams[t.Stream-1].done >= t.Seq
}

// Fence gives the point after all that was queued on the stream so far.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.stream(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	return gpu.Ticket{Stream: s, Seq: st.last}, nil
}

// Done tells whether a ticket has passed. Unknown tickets have not, and none
// has on a device that is lost or closed.
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
	st.stalled = max(st.stalled, d.now+int64(t))
	return nil
}

// Timing is when an operation was submitted, started and ended, in virtual time.
type Timing struct {
	Seq                uint64
	Submit, Start, End time.Duration
}

// Timing gives the times of a passed operation; ok is false when it has not
// passed or was too long ago: a stream remembers its last 256.
func (d *Device) Timing(t gpu.Ticket) (timing Timing, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.IsZero() || d.known(t) != nil {
		return Timing{}, false
	}
	past := d.streams[t.Stream-1].past
	if len(past) == 0 {
		return Timing{}, false
	}
	timing = past[t.Seq%remembered]
	return timing, timing.Seq == t.Seq && t.Seq != 0
}
