//go:build linux && (amd64 || arm64)

package cuda

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// fill writes one byte value everywhere.
var fill = inprocess.Fill

// fake is a driver in Go behind the C calling convention: its functions are
// called through the same table as the real ones. It can be wrong in the ways in
// which a device can:
//
//   - Streams are queues. A seeded scheduler runs their work later, one half of a
//     copy at a time, and fills destinations with poison in between.
//   - Each thread has a stack of contexts and a capture mode; calls without the
//     device's context, or not permitted during a capture, fail.
//   - The device's addresses differ from the host's, for both tiers.
//   - Work on a stream that is being captured does not run; a stream that waits
//     for an event of a capture joins the capture, and leaves it with its end. To ask
//     for such an event, or to wait for it, breaks the capture.
//   - Copies of memory that is gone by the time they run end the context: every
//     later call answers the same error.
type fake struct {
	mu        sync.Mutex
	rng       *rand.Rand
	calls     map[fn]int
	fail      map[fn]result // by function: refuse from now on
	failAfter map[fn]int    // calls that succeed before fail
	failCopy  [gpu.Directions]int
	spare     [gpu.Directions]int // copies that succeed before failCopy
	budget    int64
	used      int64
	next      uint64
	chunks    map[uint64]*fakeChunk
	reserved  map[uintptr][]byte  // by device address: the memory behind it
	mapped    map[uintptr]mapping // by device address
	allocated map[uintptr][]byte  // of the host, by device address
	pinned    map[uintptr]uintptr // registered host memory: address to length
	// hostAllocated is what of it the driver has allocated for the host.
	hostAllocated map[uintptr][]byte
	streams       map[uintptr]*fakeStream
	events        map[uintptr]*fakeEvent
	threads       map[int]*fakeThread
	captures      map[*fakeCapture]bool
	lost          result          // a sticky error
	held          chan struct{}   // not nil: nothing runs until it is closed
	waits         int             // calls that found the device held, or pinning
	pinning       chan struct{}   // not nil: registration of host memory waits for it
	wrong         []string        // arguments that no driver would take
	forgotten     bool            // nothing is noted as wrong any more
	idle          bool            // calls do nothing and succeed
	lazy          bool            // work runs only when something waits for it
	entries       map[uintptr]int // functions of modules: bytes of their parameter
	private       bool            // memory cannot be given to other processes
	retained      int             // of the primary context
	clock         int             // milliseconds: one for each copy that has ended
}

type fakeChunk struct {
	bytes  int64
	shared bool
}

type mapping struct {
	bytes      int64
	handle     uint64
	accessible bool
}

// fakeThread is what the driver keeps for a thread.
type fakeThread struct {
	contexts []uintptr
	mode     int32
}

type fakeStream struct {
	context   uintptr
	queue     []fakeOp
	capturing *fakeCapture
	worked    bool // it has work in the capture
}

type fakeEvent struct {
	recorded, passed uint64 // numbers of recordings
	timed            bool
	at               int // of the clock, when it passed
	captured         *fakeCapture
}

// fakeCapture is a capture of a graph, in global mode.
type fakeCapture struct {
	nodes  int
	broken bool
}

const (
	fakeContext     = 0xC0 // of the first device; that of the second is one more
	fakeGranularity = 2 << 20
	// deviceShift and hostShift are between the address of memory in this process
	// and its address for the device.
	deviceShift = 1 << 48
	hostShift   = 1 << 49

	invalidContext result = 201
	invalidHandle  result = 400
	illegalAddress result = 700
	unknown        result = 999
)

var (
	current   atomic.Pointer[fake]
	callbacks = sync.OnceValue(makeCallbacks)
)

// newFake makes a driver and the table that leads to it. One at a time: C
// functions have no receiver.
func newFake(seed uint64, without ...fn) (*fake, *driver) {
	f := &fake{
		rng: rand.New(rand.NewPCG(seed, 1)), calls: map[fn]int{}, fail: map[fn]result{},
		failAfter: map[fn]int{},
		budget:    64 << 20, next: 0x1000,
		chunks: map[uint64]*fakeChunk{}, reserved: map[uintptr][]byte{}, mapped: map[uintptr]mapping{},
		allocated: map[uintptr][]byte{}, pinned: map[uintptr]uintptr{},
		hostAllocated: map[uintptr][]byte{},
		streams:       map[uintptr]*fakeStream{}, entries: map[uintptr]int{},
		events: map[uintptr]*fakeEvent{}, threads: map[int]*fakeThread{},
		captures: map[*fakeCapture]bool{},
	}
	current.Store(f)
	table := *callbacks()
	for _, w := range without {
		table[w] = 0
	}
	return f, &table
}

// pointer turns an address that came through C into a pointer.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

func put[T any](at uintptr, v T) { *(*T)(pointer(at)) = v }

// isContext tells whether a context is that of one of the two devices.
func isContext(c uintptr) bool { return c == fakeContext || c == fakeContext+1 }

// context is the current one of the thread; 0: none.
func (k *fake) context() uintptr {
	c := k.thread().contexts
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1]
}

// ordinal is the number of the device whose context is current.
func (k *fake) ordinal() int32 { return int32(k.context()) - fakeContext }

func (k *fake) thread() *fakeThread {
	id := syscall.Gettid()
	if k.threads[id] == nil {
		k.threads[id] = &fakeThread{}
	}
	return k.threads[id]
}

// anyContext are the functions that need no current context.
var anyContext = map[fn]bool{
	fnInit: true, fnGetErrorName: true, fnDeviceGetCount: true, fnDeviceGet: true,
	fnDeviceGetName: true,
	fnDeviceGetUUID: true, fnDeviceGetAttribute: true, fnPrimaryCtxRetain: true,
	fnPrimaryCtxRelease: true,
	fnCtxPushCurrent:    true, fnCtxPopCurrent: true, fnExchangeCaptureMode: true,
	fnMemGetAllocationGranularity: true,
}

// unsafeInCapture are the functions that a thread in global mode may not call
// while another thread captures: no stream orders them.
var unsafeInCapture = map[fn]bool{
	fnMemAddressReserve: true, fnMemAddressFree: true, fnMemCreate: true, fnMemRelease: true,
	fnMemMap:   true,
	fnMemUnmap: true, fnMemSetAccess: true, fnMemHostRegister: true, fnMemHostUnregister: true,
	fnStreamSynchronize: true, fnStreamQuery: true, fnStreamCreate: true, fnStreamDestroy: true,
	fnEventQuery: true, fnEventSynchronize: true, fnEventCreate: true, fnEventDestroy: true,
	fnEventElapsedTime: true, fnMemExport: true, fnMemImport: true,
	fnPrimaryCtxRetain: true, fnPrimaryCtxRelease: true, fnModuleLoadData: true, fnModuleUnload: true,
	fnModuleGetFunction: true,
}

// on counts a call, runs some of the device's work, and refuses the call when it
// is to fail.
func on(f fn, do func(*fake) result) uintptr {
	k := current.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[f]++
	if k.idle {
		return 0
	}
	if r := k.refuse(f); r != success {
		return uintptr(r)
	}
	if k.held == nil && !k.lazy {
		for range k.rng.IntN(4) {
			k.step()
		}
	}
	return uintptr(do(k))
}

func (k *fake) refuse(f fn) result {
	if r, fails := k.fail[f]; fails {
		if k.failAfter[f] == 0 {
			return r
		}
		k.failAfter[f]--
	}
	if k.lost != success && f != fnGetErrorName && f != fnCtxPushCurrent && f != fnCtxPopCurrent {
		return k.lost
	}
	t := k.thread()
	if !anyContext[f] && (len(t.contexts) == 0 || !isContext(t.contexts[len(t.contexts)-1])) {
		return invalidContext
	}
	if unsafeInCapture[f] && len(k.captures) > 0 && t.mode != captureRelaxed {
		for c := range k.captures {
			c.broken = true
		}
		return firstCapture
	}
	return success
}

func (k *fake) expect(ok bool, what string) {
	if !ok && !k.forgotten {
		k.wrong = append(k.wrong, what)
	}
}

func (k *fake) handle() uint64 {
	k.next += 0x10
	return k.next
}

var errorNames = map[result][]byte{
	1: []byte("CUDA_ERROR_INVALID_VALUE\x00"), 2: []byte("CUDA_ERROR_OUT_OF_MEMORY\x00"),
	34: []byte("CUDA_ERROR_STUB_LIBRARY\x00"), 100: []byte("CUDA_ERROR_NO_DEVICE\x00"),
	700: []byte("CUDA_ERROR_ILLEGAL_ADDRESS\x00"), 801: []byte("CUDA_ERROR_NOT_SUPPORTED\x00"),
}

func makeCallbacks() *driver {
	var d driver
	set := func(f fn, g any) { d[f] = purego.NewCallback(g) }
	setStart(set)
	setContexts(set)
	setMemory(set)
	setChunks(set)
	setHost(set)
	setStreams(set)
	setCompletion(set)
	setTimes(set)
	setCopies(set)
	setKernels(set)
	return &d
}

// fakeOp is work of a stream.
type fakeOp struct {
	kind     opKind
	dst, src uintptr
	n        uintptr
	value    uint64
	event    *fakeEvent
	number   uint64 // of the recording
	launched bool   // a copy by a kernel
	begun    bool
}

type opKind uint8

const (
	opCopy opKind = iota
	opFill
	opWrite
	opRecord
	opWait
)

// queue puts work behind that of a stream, or into the graph that captures it.
func (k *fake) queue(handle uintptr, o fakeOp) result {
	st := k.streams[handle]
	if st == nil {
		k.expect(false, "work for a stream that does not exist")
		return invalidHandle
	}
	if o.kind == opWait && o.event.captured != nil {
		st.capturing = o.event.captured // it joins
	}
	if c := st.capturing; c != nil {
		switch o.kind {
		case opRecord:
			o.event.captured = c
		case opWait: // an edge of the graph
		default:
			c.nodes++
			st.worked = true
		}
		return success
	}
	switch o.kind {
	case opRecord:
		o.event.recorded++
		o.event.captured = nil
		o.number = o.event.recorded
	case opWait:
		k.expect(o.event.recorded > 0, "a wait for an event that was never recorded")
		o.number = o.event.recorded
	}
	st.queue = append(st.queue, o)
	return success
}

// step runs some of the work of a stream that the seed picks; it tells whether
// any stream could go on.
func (k *fake) step() bool {
	var ready []*fakeStream
	for _, h := range sortedKeys(k.streams) {
		st := k.streams[h]
		if len(st.queue) > 0 && (st.queue[0].kind != opWait ||
			st.queue[0].event.passed >= st.queue[0].number) {
			ready = append(ready, st)
		}
	}
	if len(ready) == 0 || k.lost != success {
		return false
	}
	st := ready[k.rng.IntN(len(ready))]
	if k.run(&st.queue[0]) {
		st.queue = st.queue[1:]
	}
	return true
}

// run does an operation, or the first half of it.
func (k *fake) run(o *fakeOp) (over bool) {
	switch o.kind {
	case opCopy:
		dst, ok1 := k.memory(o.dst, o.n)
		src, ok2 := k.memory(o.src, o.n)
		if !ok1 || !ok2 {
			k.lost = illegalAddress
			return true
		}
		if !o.begun {
			fill(dst, 0xDB)
			o.begun = true
			return false
		}
		copy(dst, src)
		k.clock++
	case opFill:
		dst, ok := k.memory(o.dst, o.n)
		if !ok {
			k.lost = illegalAddress
			return true
		}
		fill(dst, byte(o.value))
	case opWrite:
		k.expect(o.value >= atomic.LoadUint64((*uint64)(pointer(o.dst-hostShift))),
			"a counter that goes back")
		atomic.StoreUint64((*uint64)(pointer(o.dst-hostShift)), o.value)
	case opRecord:
		o.event.passed, o.event.at = max(o.event.passed, o.number), k.clock
	}
	return true
}

// finish runs work until a condition holds; false when it never will.
func (k *fake) finish(until func() bool) bool {
	for !until() && k.lost == success {
		if !k.step() {
			return until()
		}
	}
	return true
}

// release runs everything that is queued.
func (k *fake) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.held)
	k.held = nil
	for k.step() {
	}
}

// memory is what lies behind a device address. A range may cross chunks that
// adjoin, but no two registered pieces. An address of the host is not one of the
// device.
func (k *fake) memory(at, n uintptr) ([]byte, bool) {
	for base, size := range k.pinned {
		if at >= base+hostShift && at+n <= base+hostShift+size {
			return unsafe.Slice((*byte)(pointer(at-hostShift)), n), true
		}
	}
	for _, known := range []map[uintptr][]byte{k.allocated, k.reserved} {
		for base, b := range known {
			if at >= base && at+n <= base+uintptr(len(b)) {
				return b[at-base:][:n], k.allocated[base] != nil || k.accessible(at, n)
			}
		}
	}
	return nil, false
}

func (k *fake) accessible(at, n uintptr) bool {
	for n > 0 {
		moved := false
		for base, m := range k.mapped {
			if m.accessible && at >= base && at < base+uintptr(m.bytes) {
				step := min(n, base+uintptr(m.bytes)-at)
				at, n, moved = at+step, n-step, true
			}
		}
		if !moved {
			return false
		}
	}
	return true
}
