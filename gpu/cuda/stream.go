//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// ring is how many tickets of a stream have an event of their own; older ones
// are waited for by the oldest of these, which comes later on the stream.
// A wait that is late by some tickets is right and may be longer; 64 is more than the engine
// has in flight on a stream.
const ring = 64

// Flags of the driver.
// By their values in cuda.h.
const (
	streamNonBlocking  = 1
	eventBlockingSync  = 1
	eventDisableTiming = 2
	eventInterprocess  = 4
	portableMapped     = 1 | 2
)

// Handles that name default streams: the one that a thread's default is (0), the
// legacy one and the one of each thread.
const (
	nullStream      = 0
	legacyStream    = 1
	perThreadStream = 2
)

// stream is a stream with its tickets 1 … last. All of it is used under the
// device's lock.
// A stream is never used by two calls at a time, as the order of its work would be chance.
type stream struct {
	id   gpu.Stream
	name string
	// place is the stream's index in progress; a later stream may have the same.
	place  int
	handle uintptr
	// Ticket n is recorded in events[n%ring], if n > last − ring.
	last   uint64
	events [ring]uintptr
	// dirty: something was queued since the last ticket.
	dirty bool
	// external: the host application queues work on it that we do not see, may
	// capture it, and destroys it.
	external bool
}

// String names the stream in errors.
func (st *stream) String() string { return "stream " + st.name }

// NewStream makes a stream.
// Its priority, 0, is the default one.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	s, err := d.lock()
	if err != nil {
		return 0, err
	}
	defer s.unlock()
	return d.newStream(s, name)
}

// newStream is NewStream under the lock.
func (d *Device) newStream(s *session, name string) (gpu.Stream, error) {
	if err := s.do(fnStreamCreate, "stream "+name, address(&s.out.number[0]), streamNonBlocking,
		0); err != nil {
		return 0, err
	}
	return d.addStream(s, &stream{name: name, handle: uintptr(s.out.number[0])})
}

// External takes in a stream of the host application, a CUstream of the same
// process and of the device's primary context. Its tickets come from Fence, and
// Wait and Submit queue on it. Default streams are refused: ErrDefaultStream.
//
// While the host captures the stream into a graph, Fence, Wait and Submit on it
// answer ErrCapturing and queue nothing. The host must not begin a capture on it
// while such a call is under way.
//
// DestroyStream makes the device forget the stream; the host may have destroyed
// it before that.
func (d *Device) External(name string, handle uintptr) (gpu.Stream, error) {
	s, err := d.lock()
	if err != nil {
		return 0, err
	}
	defer s.unlock()
	// Handles are addresses, so no stream that was created has one of these.
	if handle <= perThreadStream {
		which := [...]string{nullStream: "the NULL stream", legacyStream: "CU_STREAM_LEGACY",
			perThreadStream: "CU_STREAM_PER_THREAD"}
		return 0, fmt.Errorf("stream %s: %s is %w; pass a stream that was created", name, which[handle],
			ErrDefaultStream)
	}
	st := &stream{name: name, handle: handle, external: true}
	if err := s.do(fnStreamGetCtx, st.String(), handle, address(&s.out.number[0])); err != nil {
		return 0, err
	}
	// A stream of another context may be one of another device.
	if uintptr(s.out.number[0]) != d.context {
		return 0, fmt.Errorf("cuda: stream %s belongs to another context than the device's primary one",
			name)
	}
	if err := s.notCapturing(st); err != nil {
		return 0, err
	}
	return d.addStream(s, st)
}

// notCapturing refuses a stream of the host that is being captured. It is asked
// before each use: a host captures its graphs when the engine has long been
// running.
// The driver's answer is 0 for no capture, 1 for one under way, 2 for one that has failed.
func (s *session) notCapturing(st *stream) error {
	if !st.external {
		return nil
	}
	if err := s.do(fnStreamIsCapturing, st.String(), st.handle, address(&s.out.small)); err != nil {
		return err
	}
	if s.out.small != 0 {
		return fmt.Errorf("stream %s: %w", st.name, ErrCapturing)
	}
	return nil
}

// ExternalEvent returns a ticket that passes when an event of the host application
// has: a CUevent of the same process and context, recorded before. It waits on a
// stream of its own, in the order of the calls: a ticket passes after those of
// earlier events. An event that was recorded during a capture is refused with
// ErrCapturing: a stream that waits for it joins the capture. The capture goes on.
func (d *Device) ExternalEvent(event uintptr) (gpu.Ticket, error) {
	s, err := d.lock()
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer s.unlock()
	const on = "event of the host"
	if err := s.notCaptured(event, on); err != nil {
		return gpu.Ticket{}, err
	}
	// One stream serves all events of hosts: it does nothing but wait.
	if d.external == 0 {
		if d.external, err = d.newStream(s, "external events"); err != nil {
			return gpu.Ticket{}, err
		}
	}
	st, err := d.stream(d.external)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := s.do(fnStreamWaitEvent, on, st.handle, event, 0); err != nil {
		return gpu.Ticket{}, err
	}
	st.dirty = true
	return d.ticket(s, st)
}

// notCaptured refuses an event of a capture. The driver cannot be asked for that: a question
// about the event itself breaks the capture (seen with driver 580). So a stream that does
// nothing else waits for the event, and is asked whether it has joined a capture. It leaves no
// trace in the graph. A stream that has joined cannot wait for other events, so it is destroyed.
func (s *session) notCaptured(event uintptr, on string) error {
	d := s.d
	if d.probe == 0 {
		if err := s.do(fnStreamCreate, on, address(&s.out.number[0]), streamNonBlocking, 0); err != nil {
			return err
		}
		d.probe = uintptr(s.out.number[0])
	}
	if err := s.do(fnStreamWaitEvent, on, d.probe, event, 0); err != nil {
		return err
	}
	err := s.do(fnStreamIsCapturing, on, d.probe, address(&s.out.small))
	if err == nil && s.out.small == 0 {
		return nil
	}
	joined := d.probe
	d.probe = 0
	if err := errors.Join(err, s.do(fnStreamDestroy, on, joined)); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", on, ErrCapturing)
}

// addStream gives a stream its events and its place.
// The events are made at once, so that no submission has to.
func (d *Device) addStream(s *session, st *stream) (gpu.Stream, error) {
	id, ok := d.streams.Add(st)
	if !ok {
		d.endStream(s, st)
		return 0, fmt.Errorf("cuda: stream %s: there are %d streams already", st.name, gpu.MaxStreams)
	}
	for i := range st.events {
		e, err := d.newEvent(s, st)
		if err != nil {
			d.streams.Remove(id)
			d.endStream(s, st)
			return 0, err
		}
		st.events[i] = e
	}
	st.id, st.place = id, streams.IndexOf(id)
	// Last: from here on Done answers for the stream.
	d.progress.begin(st.place, id)
	return id, nil
}

// newEvent returns an event that no stream uses. Events of destroyed streams are
// used again instead of destroyed: a goroutine of a Sync whose context has ended
// may still be waiting for one of them.
// Recording such an event again does not disturb that wait.
func (d *Device) newEvent(s *session, st *stream) (uintptr, error) {
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	err := s.do(fnEventCreate, st.String(), address(&s.out.number[0]),
		eventBlockingSync|eventDisableTiming)
	return uintptr(s.out.number[0]), err
}

// DestroyStream gives a stream back when everything queued on it has passed. A
// stream of the host application is only forgotten: it is not touched.
func (d *Device) DestroyStream(id gpu.Stream) error {
	s, st, err := d.lockWithStream(id)
	if err != nil {
		return err
	}
	defer s.unlock()
	if !d.passed(s, gpu.Ticket{Stream: id, Seq: st.last}) {
		return fmt.Errorf("cuda: stream %s: destroyed before ticket %d has passed: %w", st.name, st.last,
			gpu.ErrInUse)
	}
	if st.dirty && !st.external {
		// Work behind the last ticket has no event to look at.
		r := s.call(fnStreamQuery, st.handle)
		if r == notReady {
			return fmt.Errorf("cuda: stream %s: destroyed while it waits: %w", st.name, gpu.ErrInUse)
		}
		if err := s.failure(fnStreamQuery, r, st.String()); err != nil {
			return err
		}
	}
	d.streams.Remove(id)
	d.progress.end(st.place)
	d.endStream(s, st)
	// The next event of a host makes another.
	if id == d.external {
		d.external = 0
	}
	return nil
}

// endStream keeps the events of a stream for others and destroys the stream
// itself, if it is not the host's.
func (d *Device) endStream(s *session, st *stream) {
	for i, e := range st.events {
		if e != 0 {
			d.events = append(d.events, e)
			st.events[i] = 0
		}
	}
	if !st.external {
		_ = s.do(fnStreamDestroy, st.String(), st.handle) // notes a lost device
	}
}

// stream finds a live stream under the device's lock.
func (d *Device) stream(id gpu.Stream) (*stream, error) {
	st, err := d.streams.Find(id)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return st, nil
}

// quiesce lists an event for each stream that has work queued which may use the
// device's memory: memory must not be unmapped before they have passed. It runs
// under the lock, and the events are waited for outside of it. Of a stream of the
// host only what this device queued there counts; the host sees to the rest.
// The engine quiesces by tickets first, so mostly nothing is left to wait for.
func (d *Device) quiesce(s *session) (events []uintptr, err error) {
	for id, st := range d.streams.All {
		if st.dirty && !st.external {
			if _, err := d.ticket(s, st); err != nil {
				return nil, err
			}
		}
		// The last ticket of a stream comes after all of its work.
		if t := (gpu.Ticket{Stream: id, Seq: st.last}); !d.passed(s, t) {
			events = append(events, st.event(t.Seq))
		}
	}
	return events, nil
}

// await waits for events outside of the device's lock.
// The thread sleeps: the events were made with blocking synchronization.
func (s *session) await(events []uintptr) error {
	for _, e := range events {
		if err := s.do(fnEventSynchronize, "streams of the device", e); err != nil {
			return err
		}
	}
	return nil
}
