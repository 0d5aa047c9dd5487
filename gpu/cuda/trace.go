//go:build linux && (amd64 || arm64)

package cuda

import (
	"time"

	"github.com/kvactor/kvactor/gpu"
)

// maxMeasured bounds the batches under way that are measured. Each of them has two events, and
// tellEnded looks at all of them with every batch. A host that queues more learns the times of
// the first 256 of a burst, which is enough for a histogram.
const maxMeasured = 256

// trace measures batches of copies by two events each, which unlike those of tickets have
// times. All of it is used under the device's lock.
//
// Driver calls tell of the time between two events only, in milliseconds as a float32, which
// is too coarse after some hours. So the times of a batch count from the event that has ended
// the batch told of before it.
type trace struct {
	tell func(gpu.Transfer) // nil: nothing is measured
	// free are events of no batch. There are at most two for each batch that was ever measured
	// at one time, and they are destroyed with the device.
	free     []uintptr
	measured []measurement // under way, by the order of submission
	base     uintptr       // event that passed at the time at; 0: there is none yet
	at       time.Duration
}

// measurement is a batch under way.
type measurement struct {
	begin, end uintptr
	ticket     gpu.Ticket // comes after end on the stream
	gpu.Transfer
}

// begin records where the copies of a batch begin on a stream. ok is false if the batch is not
// measured.
func (t *trace) begin(s *session, st *stream, b *gpu.Batch) (m measurement, ok bool) {
	if t.tell == nil || len(b.Copies) == 0 || len(t.measured) == maxMeasured {
		return m, false
	}
	// Both events before anything is recorded: a batch with one of them could not be measured.
	// A batch is never refused because its measurement failed, so no error goes up from here.
	for _, e := range []*uintptr{&m.begin, &m.end} {
		if *e = t.event(s); *e == 0 {
			t.forget(&m)
			return m, false
		}
	}
	if s.call(fnEventRecord, m.begin, st.handle) != success {
		t.forget(&m)
		return m, false
	}
	m.Stream, m.Label, m.Copies = st.name, b.Label, len(b.Copies)
	for i := range b.Copies {
		m.Bytes += b.Copies[i].Bytes
	}
	return m, true
}

// end records where the copies end. The ticket of the batch is made next.
func (t *trace) end(s *session, st *stream, m *measurement, failed *gpu.CopyError) {
	// The time of a batch of which a part was refused says nothing about the link.
	if failed != nil || s.call(fnEventRecord, m.end, st.handle) != success {
		t.forget(m)
		return
	}
	// The number that the ticket of this batch is about to get. When it has passed both events
	// have, and asking for their times does not wait.
	m.ticket = gpu.Ticket{Stream: st.id, Seq: st.last + 1}
	t.measured = append(t.measured, *m)
}

// forget keeps the events of a measurement for others.
func (t *trace) forget(m *measurement) {
	for _, e := range []uintptr{m.begin, m.end} {
		if e != 0 && e != t.base {
			t.free = append(t.free, e)
		}
	}
}

// event returns an event that has times; 0 if there is none to be had.
func (t *trace) event(s *session) uintptr {
	if n := len(t.free); n > 0 {
		e := t.free[n-1]
		t.free = t.free[:n-1]
		return e
	}
	// Flags 0: an event with times. Those of tickets are made without, which is cheaper.
	if s.call(fnEventCreate, address(&s.out.number[0]), 0) != success {
		return 0
	}
	return uintptr(s.out.number[0])
}

// tellEnded tells of the batches that have ended. Streams overtake each other, so one under
// way does not hold up those behind it.
func (d *Device) tellEnded(s *session) {
	t := &d.trace
	left := t.measured[:0]
	for i := range t.measured {
		m := &t.measured[i]
		if !d.passed(s, m.ticket) {
			left = append(left, *m)
			continue
		}
		// A batch whose times the driver does not tell is left out: a zero would be taken for a
		// fast copy.
		if t.time(s, m) {
			t.tell(m.Transfer)
		}
		t.forget(m)
	}
	t.measured = left
}

// time asks for the times of a batch that has ended, and makes its end the base of the next.
func (t *trace) time(s *session, m *measurement) bool {
	busy, ok := s.elapsed(m.begin, m.end)
	if !ok {
		return false
	}
	if t.base != 0 {
		since, ok := s.elapsed(t.base, m.end)
		if !ok {
			return false
		}
		m.End = t.at + since
		m.Start = m.End - busy
	} else {
		// The first batch that is told of: the device's time begins with its first copy.
		m.End = busy
	}
	// The events of a batch are given back one by one: the old base is in no measurement.
	if t.base != 0 {
		t.free = append(t.free, t.base)
	}
	t.base, t.at = m.end, m.End
	return true
}

// elapsed is the time between two events that have passed, below 0 if the second was first.
func (s *session) elapsed(from, to uintptr) (time.Duration, bool) {
	r := s.call(fnEventElapsedTime, address(&s.out.millis), from, to)
	if r != success {
		_ = s.failure(fnEventElapsedTime, r, "times of copies") // notes a lost device
		return 0, false
	}
	// A float32 of milliseconds has steps of a microsecond from eight seconds on: the reason to
	// count from the last batch that was told of, which is seldom longer ago.
	return time.Duration(float64(s.out.millis) * float64(time.Millisecond)), true
}

// close destroys the events. Batches that have not been told of by then are not told of any
// more: tellEnded has looked at them when all streams were waited for.
func (t *trace) close(s *session) {
	for i := range t.measured {
		t.forget(&t.measured[i])
	}
	if t.base != 0 {
		t.free = append(t.free, t.base)
	}
	for _, e := range t.free {
		s.call(fnEventDestroy, e)
	}
	t.free, t.measured, t.base = nil, nil, 0
}
