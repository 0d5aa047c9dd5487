//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// EventHandle names an event for other processes. It resolves only where both
// processes have the same /dev/shm.
// Two containers of one machine share it only if they are started so.
type EventHandle [64]byte

// SharedEvent is an event that other processes can wait for. Its users agree
// between them what it says: a process that waits before it was recorded again
// waits for the earlier recording.
// A waiting side that was told of a recording over another channel waits for that one.
type SharedEvent struct {
	d      *Device
	event  uintptr
	Handle EventHandle
}

// NewSharedEvent makes an event for other processes.
// It has passed until it is recorded for the first time.
func (d *Device) NewSharedEvent() (*SharedEvent, error) {
	s, err := d.beginUnlocked()
	if err != nil {
		return nil, err
	}
	defer s.endUnlocked()
	const on = "shared event"
	// The driver makes interprocess events without timing only.
	if err := s.do(fnEventCreate, on, address(&s.out.number[0]),
		eventDisableTiming|eventInterprocess); err != nil {
		return nil, err
	}
	e := &SharedEvent{d: d, event: uintptr(s.out.number[0])}
	if err := s.do(fnIpcGetEventHandle, on, address(&s.out.event), e.event); err != nil {
		s.call(fnEventDestroy, e.event)
		return nil, err
	}
	e.Handle = s.out.event.bytes
	return e, nil
}

// OpenSharedEvent opens an event of another process.
func (d *Device) OpenSharedEvent(h EventHandle) (*SharedEvent, error) {
	s, err := d.beginUnlocked()
	if err != nil {
		return nil, err
	}
	defer s.endUnlocked()
	// This call does not go through session.call, which would relax the mode.
	s.relaxMode()
	r := d.driver.openEventHandle(address(&s.out.number[0]), eventHandle{h})
	if err := s.failure(fnIpcOpenEventHandle, r, "shared event"); err != nil {
		return nil, err
	}
	return &SharedEvent{d: d, event: uintptr(s.out.number[0]), Handle: h}, nil
}

// Record makes the event pass when all that was queued on the stream so far has.
// It makes no ticket: Fence does that for users within the process.
func (e *SharedEvent) Record(id gpu.Stream) error {
	s, st, err := e.d.lockWithStream(id)
	if err != nil {
		return err
	}
	defer s.unlock()
	// An event that is recorded during a capture is part of the graph: nothing passes it now.
	if err := s.notCapturing(st); err != nil {
		return err
	}
	return s.do(fnEventRecord, fmt.Sprintf("shared event on %s", st), e.event, st.handle)
}

// Ticket passes when the event has passed as it was recorded last.
func (e *SharedEvent) Ticket() (gpu.Ticket, error) { return e.d.ExternalEvent(e.event) }

// Close destroys the event on this side.
// The process that made the event closes it last: what others do with it after that is
// undefined.
func (e *SharedEvent) Close() error {
	s, err := e.d.beginUnlocked()
	if err != nil {
		return err
	}
	defer s.endUnlocked()
	return s.do(fnEventDestroy, "shared event", e.event)
}
