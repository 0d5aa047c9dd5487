package inprocess

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// Operation is what Streams knows of an operation of a device.
type Operation interface {
	fmt.Stringer // kind, label and number, for errors
	// Uses finds a page of t that the operation uses.
	Uses(t Touching) (gpu.Slot, bool)
}

// Stream is an in-order queue. Its operations have numbers 1, 2, …; Done is that of the last
// one that has ended. A device adds what it keeps of a stream beside.
//
// Invariants: Done < the numbers in the queue ≤ Last, and these are consecutive.
type Stream[O Operation] struct {
	ID    gpu.Stream
	Name  string
	Last  uint64
	Done  uint64
	Queue FIFO[O]
}

// Base is the stream itself.
func (s *Stream[O]) Base() *Stream[O] { return s }

// Streams are the streams of a device, which serializes the calls.
type Streams[S interface{ Base() *Stream[O] }, O Operation] struct {
	Backend string // for errors
	Err     error  // why the device has ended, for good; nil: it has not
	Table   streams.Table[S]
}

// New gives a stream, without a name so far, its number.
func (q *Streams[S, O]) New(st S, name string) (gpu.Stream, error) {
	if q.Err != nil {
		return 0, q.Err
	}
	id, ok := q.Table.Add(st)
	if !ok {
		return 0, fmt.Errorf("%s: stream %s: there are %d streams already", q.Backend, name,
			gpu.MaxStreams)
	}
	st.Base().ID, st.Base().Name = id, name
	return id, nil
}

// Destroy gives a stream back when all its operations have ended. The error names the
// operation, since the caller has to find the wait that it forgot.
func (q *Streams[S, O]) Destroy(s gpu.Stream) error {
	st, err := q.Live(s)
	if err != nil {
		return err
	}
	if b := st.Base(); !b.Queue.Empty() {
		return fmt.Errorf("%s: stream %s: destroyed while %s, is under way: %w", q.Backend, b.Name,
			b.Queue.First(), gpu.ErrInUse)
	}
	q.Table.Remove(s)
	return nil
}

// Live finds a live stream of a device that has not ended.
func (q *Streams[S, O]) Live(s gpu.Stream) (st S, err error) {
	if q.Err != nil {
		return st, q.Err
	}
	if st, err = q.Table.Find(s); err != nil {
		err = fmt.Errorf("%s: %w", q.Backend, err)
	}
	return st, err
}

// Known refuses tickets that no stream has issued: waiting for them would hang.
func (q *Streams[S, O]) Known(t gpu.Ticket) error {
	if t.IsZero() || q.Table.Destroyed(t.Stream) {
		return nil
	}
	s, err := q.Table.Find(t.Stream)
	if err != nil {
		return fmt.Errorf("%s: ticket %d: %w", q.Backend, t.Seq, err)
	}
	if b := s.Base(); t.Seq > b.Last {
		return fmt.Errorf("%s: ticket %d of stream %s, whose last is %d", q.Backend, t.Seq, b.Name,
			b.Last)
	}
	return nil
}

// Passed is asked about known tickets; those of a destroyed stream have passed.
func (q *Streams[S, O]) Passed(t gpu.Ticket) bool {
	if t.IsZero() {
		return true
	}
	s, err := q.Table.Find(t.Stream)
	return err != nil || s.Base().Done >= t.Seq
}

// Waitable finds a live stream that is to wait for tickets, all of which are known.
func (q *Streams[S, O]) Waitable(
	s gpu.Stream, what string, tickets []gpu.Ticket,
) (st S, err error) {
	if st, err = q.Live(s); err != nil {
		return st, err
	}
	for _, t := range tickets {
		if err := q.Known(t); err != nil {
			return st, fmt.Errorf("%s on stream %s: %w", what, st.Base().Name, err)
		}
	}
	return st, nil
}

// Fence returns the point after all that was queued on the stream so far: the ticket of
// the last operation. That of an unused stream has passed.
func (q *Streams[S, O]) Fence(s gpu.Stream) (gpu.Ticket, error) {
	st, err := q.Live(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	return gpu.Ticket{Stream: s, Seq: st.Base().Last}, nil
}

// Idle refuses when an operation that has not ended uses one of the pages. It looks at all
// that is queued, which is slow and right: pools are resized and destroyed rarely.
func (q *Streams[S, O]) Idle(t Touching) error {
	for _, s := range q.Table.All {
		for _, o := range s.Base().Queue.All() {
			if slot, ok := o.Uses(t); ok {
				return fmt.Errorf("%s of stream %s, is under way on %s page %d", o, s.Base().Name, slot.Tier,
					slot.Page)
			}
		}
	}
	return nil
}

// Span is the memory that a copy writes to, and the memory that it reads; From is nil if
// the copy writes zeros.
type Span struct{ To, From []byte }

// Move copies the bytes of spans, and forgets their memory, which may be of a pool that is
// destroyed later.
func Move(spans []Span) {
	for _, m := range spans {
		if m.From == nil {
			clear(m.To)
		} else {
			copy(m.To, m.From)
		}
	}
	clear(spans)
}

// Run is the function of a kernel on a device that is one.
func Run(k *gpu.Kernel) func(gpu.PageBytes) {
	if each := k.RunRank; each != nil {
		return func(bytes gpu.PageBytes) { each(0, bytes) }
	}
	return k.Run
}
