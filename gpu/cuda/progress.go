//go:build linux && (amd64 || arm64)

package cuda

import (
	"sync/atomic"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// progress is what is known of the streams' progress without asking the driver: for each
// place of a stream a counter in host memory that the stream writes its tickets to, and what
// events have told. It is read without a lock, because Done is called for many tickets at
// each step of a host and may not wait for a submission.
type progress struct {
	memory   []byte // of counters; mapped until the process ends, for late calls of Done
	counters *[gpu.MaxStreams]uint64
	base     uintptr // device address of counters; 0: events tell of completion
	tracks   [gpu.MaxStreams]track
}

// track is what Done reads of a stream without a lock.
// Both fields are of the stream in this place now; id tells whether that is the one meant.
type track struct {
	id     atomic.Uint32 // of the live stream in this place, 0: none
	passed atomic.Uint64 // ticket known to have passed by an event
}

// reserve maps the memory of the counters outside of Go's heap: the device writes to it.
func (p *progress) reserve() error {
	memory, err := mapMemory(int64(unsafe.Sizeof(*p.counters)))
	if err != nil {
		return err
	}
	p.memory, p.counters = memory, (*[gpu.MaxStreams]uint64)(unsafe.Pointer(&memory[0]))
	return nil
}

// register makes the counters writable by streams. Where the driver refuses that,
// completion is found out by events.
// The host's flag for it is Info().Completion.
func (p *progress) register(s *session) {
	if s.call(fnMemHostRegister, address(&p.memory[0]), uintptr(len(p.memory)),
		portableMapped) != success {
		return
	}
	if s.call(fnMemHostGetDevicePointer, address(&s.out.number[0]), address(&p.memory[0]),
		0) != success {
		s.call(fnMemHostUnregister, address(&p.memory[0]))
		return
	}
	p.base = uintptr(s.out.number[0])
}

// unregister undoes register before the context goes.
func (p *progress) unregister(s *session) {
	if p.counted() {
		s.call(fnMemHostUnregister, address(&p.memory[0]))
	}
}

// counted tells whether streams write counters.
func (p *progress) counted() bool { return p.base != 0 }

// counter is the device address of the counter of a place.
// Counters are 8 bytes each, one behind the other.
func (p *progress) counter(place int) uintptr { return p.base + uintptr(place)*8 }

// begin gives a place to a stream that has issued no ticket. The number comes last: from
// then on Done trusts the others.
func (p *progress) begin(place int, id gpu.Stream) {
	atomic.StoreUint64(&p.counters[place], 0)
	p.tracks[place].passed.Store(0)
	p.tracks[place].id.Store(uint32(id))
}

// end takes a place from a stream that is destroyed.
func (p *progress) end(place int) { p.tracks[place].id.Store(0) }

// has tells whether a place belongs to a stream.
func (p *progress) has(place int, id gpu.Stream) bool {
	return p.tracks[place].id.Load() == uint32(id)
}

// note notes that a ticket of a stream has passed. The device's lock is held, so that the
// number only rises.
func (p *progress) note(place int, seq uint64) {
	t := &p.tracks[place].passed
	t.Store(max(t.Load(), seq))
}

// reached is the ticket up to which a stream has come, as far as it is known
// without asking the driver.
func (p *progress) reached(place int) uint64 {
	return max(atomic.LoadUint64(&p.counters[place]), p.tracks[place].passed.Load())
}
