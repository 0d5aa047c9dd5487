//go:build linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// session is a stretch of driver calls on one thread.
//
// A driver's context is current for a thread, goroutines change threads, and the
// thread may be one that the host application has locked for its own work on
// another device. So a session locks its goroutine to its thread, pushes the
// device's context onto the thread's stack of contexts and pops it at the end:
// the host finds its thread as it left it. LMCache had a bug of the first kind
// (its issue 5168); setting the context and leaving it set is the second.
//
// A thread starts in the global capture mode, in which calls that are not
// stream-ordered fail while any thread captures a graph, and end that capture. A
// session relaxes the mode before the first such call and restores it at the end.
type session struct {
	d   *Device
	out *outs
	// relaxed: the thread's capture mode is to be restored.
	relaxed bool
}

// outs is the memory that the driver writes answers to and reads structures
// from. It lies outside of Go's heap; each session has one.
// The driver writes while the goroutine is in C, where the collector cannot see the pointer.
type outs struct {
	// number and small take what a call answers; the next call overwrites them.
	number [2]uint64
	small  int32
	millis float32 // between two events
	mode   int32   // capture mode to set, then the one there was
	// popped is the context that a pop answers with, which no one needs.
	popped uintptr
	name   *byte
	text   [256]byte
	prop   allocationProp
	access accessDesc
	attr   copyAttributes
	// attrIdx and failIdx belong to batch copies: which copy attr is for, and which one failed.
	attrIdx uint64
	failIdx uint64
	event   eventHandle
}

// captureRelaxed is CU_STREAM_CAPTURE_MODE_RELAXED.
// It allows calls that are unsafe in a capture, on this thread only.
const captureRelaxed = 2

// begin starts a session; end ends it. Sessions do not nest on a goroutine
// without need: each costs a push and a pop, some tens of nanoseconds.
func (d *Device) begin() (*session, error) {
	// A device that ends after this look fails in the driver, which is an error like others.
	if err := d.ending(); err != nil {
		return nil, err
	}
	return d.beginAnyway()
}

// beginAnyway starts a session also on a device that has ended, to release what
// it had.
func (d *Device) beginAnyway() (*session, error) {
	s, err := d.sessions.take(d)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	// The thread is locked first: between a push and a pop the goroutine may not move.
	if r := d.driver.call(fnCtxPushCurrent, d.context); r != success {
		err := s.failure(fnCtxPushCurrent, r, d.name)
		runtime.UnlockOSThread()
		d.sessions.put(s)
		return nil, err
	}
	return s, nil
}

// end restores the thread: capture mode, context, scheduling of the goroutine.
// The mode goes first, since the exchange needs no context and the pop may fail.
func (s *session) end() {
	s.restoreMode()
	if r := s.call(fnCtxPopCurrent, address(&s.out.popped)); r != success {
		_ = s.failure(fnCtxPopCurrent, r, s.d.name) // notes a lost device
	}
	runtime.UnlockOSThread()
	s.d.sessions.put(s)
}

// lock locks the device and starts a session; unlock ends both.
func (d *Device) lock() (*session, error) {
	d.mu.Lock()
	s, err := d.begin()
	if err != nil {
		d.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// lockWithStream is lock for a call about one stream that exists.
func (d *Device) lockWithStream(id gpu.Stream) (*session, *stream, error) {
	s, err := d.lock()
	if err != nil {
		return nil, nil, err
	}
	st, err := d.stream(id)
	if err != nil {
		s.unlock()
		return nil, nil, err
	}
	return s, st, nil
}

// unlock ends the session and releases the device's lock.
func (s *session) unlock() {
	s.end()
	s.d.mu.Unlock()
}

// beginUnlocked starts a session without the device's lock, for what takes long;
// endUnlocked ends it. Close waits for it.
// Calls that change a pool's memory are of this kind.
func (d *Device) beginUnlocked() (*session, error) {
	// Close waits for busy before it frees anything.
	if err := d.register(); err != nil {
		return nil, err
	}
	s, err := d.begin()
	if err != nil {
		d.busy.Done()
		return nil, err
	}
	return s, nil
}

// endUnlocked ends a session that beginUnlocked started.
func (s *session) endUnlocked() {
	s.end()
	s.d.busy.Done()
}

// call calls a function of the driver, in relaxed capture mode if it needs that.
func (s *session) call(f fn, args ...uintptr) result {
	// Most sessions make stream-ordered calls only and never touch the mode.
	if !functionTable[f].streamOrdered {
		s.relaxMode()
	}
	return s.d.driver.call(f, args...)
}

// do is call with the error that belongs to the result.
func (s *session) do(f fn, on string, args ...uintptr) error {
	return s.failure(f, s.call(f, args...), on)
}

// relaxMode makes calls that no stream orders permitted on this thread while a host
// captures a graph. The driver answers with the mode that the thread had.
func (s *session) relaxMode() {
	// Once for each session: the exchange is itself a call.
	if s.relaxed {
		return
	}
	s.out.mode = captureRelaxed
	// s.out.mode has the thread's own mode from here on.
	s.relaxed = s.d.driver.call(fnExchangeCaptureMode, address(&s.out.mode)) == success
}

// restoreMode gives the thread the mode that it had: it may be one of the host's,
// which relies on being stopped from unsafe calls during its own capture.
func (s *session) restoreMode() {
	if s.relaxed {
		s.d.driver.call(fnExchangeCaptureMode, address(&s.out.mode))
		s.relaxed = false
	}
}

// sessionPool keeps the sessions that are not in use, with their memory. It has a lock of its
// own, because sessions begin and end without the device's.
type sessionPool struct {
	mu     sync.Mutex
	free   []*session
	memory [][]byte // of all sessions
}

// take returns a session whose memory is not in use. There are as many as goroutines were
// inside of the driver at one time.
func (p *sessionPool) take(d *Device) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s, nil
	}
	// A mapping takes a whole page of the system; there are few sessions.
	memory, err := mapMemory(int64(unsafe.Sizeof(outs{})))
	if err != nil {
		return nil, err
	}
	p.memory = append(p.memory, memory)
	return &session{d: d, out: (*outs)(unsafe.Pointer(&memory[0]))}, nil
}

// put makes the memory of a session free for the next.
func (p *sessionPool) put(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// unmap gives the memory of all sessions back; none may be in use.
// A session that is put later would be a bug: Close has waited for all.
func (p *sessionPool) unmap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, memory := range p.memory {
		_ = syscall.Munmap(memory)
	}
	p.memory, p.free = nil, nil
}
