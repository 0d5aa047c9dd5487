//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/hostmemory"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// Options of a device. UUID, as nvidia-smi prints it, goes before Ordinal.
type Options struct {
	Ordinal int // which of the devices that the process sees, from 0
	UUID    string
	// A kernel moves the pieces of fewer than KernelBelow bytes that go between host memory and
	// the device, where a batch has four or more; 0 leaves them to the copy engines. The kernel
	// moves pieces of 4 KiB nearly four times as fast as the engines, but it runs on 16 of the
	// device's processors: what the host computes meanwhile can take several times as long, and
	// the copies wait for processors that are busy. It is for hosts that copy while they do not
	// compute. gpu.Open cannot set it, nor NoKernel.
	KernelBelow int64
	// NoKernel leaves pieces to the driver that stay within the device, too. Otherwise a kernel
	// moves those of less than 16 MiB, where a batch has four or more: the driver has no engine
	// for them, and launches a kernel for each piece.
	NoKernel bool
	// Trace is told of each batch of copies after it has ended, by a later Submit or Fence
	// on any stream and at the latest by Close; nil: nothing is measured. It is called with the
	// device locked: it must neither call the device nor block. A batch that is measured costs
	// two records of events and, when it has ended, two questions for their times. Batches
	// whose copies were refused, and those beyond 256 under way, are not told of.
	Trace func(gpu.Transfer)
}

// init makes gpu.Open know "cuda" in every program that imports the package.
func init() {
	gpu.Register("cuda", func(s gpu.Spec) (gpu.Device, error) {
		return Open(Options{Ordinal: s.Ordinal, UUID: s.UUID, Trace: s.Trace})
	})
}

// Open opens a device; without a usable driver the error is gpu.ErrNoDriver.
// The process may have other users of the device: the context is the one that they share.
func Open(o Options) (gpu.Device, error) {
	drv, err := load()
	if err != nil {
		return nil, err
	}
	d, err := open(drv, o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Device is an NVIDIA device.
//
// Its mutex covers bookkeeping and calls that queue work; nothing that waits for
// the device, for the operating system or for memory happens under it. Changes of
// a pool's memory are serialized by the pool's own mutex, taken first.
type Device struct {
	driver  *driver
	ordinal int32
	handle  uintptr // the CUdevice
	// The primary context, retained once; each session pushes it onto its thread.
	context uintptr
	name    string
	uuid    [16]byte
	// uuid is what identifies the device between processes.
	numa       int32   // node of host memory near the device, -1: unknown
	systemPage int64   // bytes of a page of the operating system
	own        uintptr // stream that fills new memory
	options    Options

	// end is gpu.ErrClosed or gpu.ErrDeviceLost and does not change back; nil while the device
	// can be used. Only Close replaces one by the other.
	end      atomic.Pointer[error]
	busy     sync.WaitGroup // waits and changes of memory that Close waits for
	sessions sessionPool
	spare    spareChunks
	progress progress

	mu sync.Mutex
	// streams has the numbers of destroyed streams as well: their tickets have passed.
	streams streams.Table[*stream]
	// The fields from mu on are used under mu; regions is counted by pools that are made without it.
	events   []uintptr     // of streams that were destroyed
	pools    []*pool       // by gpu.Pool; nil: destroyed, or not ready yet
	regions  atomic.Uint32 // numbers given to pieces of memory
	external gpu.Stream    // waits for events of the host application; 0: not yet
	probe    uintptr       // stream that finds out whether an event is one of a capture; 0: not yet
	checker  inprocess.Checker
	copies   copyQueue
	trace    trace
}

// open makes a device of a table of functions.
func open(drv *driver, o Options) (*Device, error) {
	d := &Device{driver: drv, options: o, numa: -1, systemPage: int64(os.Getpagesize()),
		trace: trace{tell: o.Trace}}
	d.checker = inprocess.Checker{Known: d.issued, Within: d.checkRange}
	if err := d.progress.reserve(); err != nil {
		return nil, err
	}
	s, err := d.sessions.take(d)
	if err != nil {
		return nil, err
	}
	// The capture mode that findDevice relaxes belongs to the thread: it must be restored on
	// the same one.
	runtime.LockOSThread()
	err = d.findDevice(s, o)
	runtime.UnlockOSThread()
	d.sessions.put(s)
	if err == nil {
		err = d.start()
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// findDevice picks the device and retains its primary context, which is the one
// that a host's PyTorch or CUDA runtime uses. It needs no current context.
// A context of its own could not share memory and events with the host's kernels.
func (d *Device) findDevice(s *session, o Options) error {
	defer s.restoreMode()
	on := fmt.Sprintf("device %d", o.Ordinal)
	if err := s.do(fnInit, on, 0); err != nil {
		return err
	}
	if err := s.do(fnDeviceGetCount, on, address(&s.out.small)); err != nil {
		return err
	}
	n := int(s.out.small)
	// CUDA_VISIBLE_DEVICES hides and orders devices, so an ordinal means something to this
	// process only.
	for ordinal := range n {
		if o.UUID == "" && ordinal != o.Ordinal {
			continue
		}
		if err := d.look(s, ordinal); err != nil {
			return err
		}
		// Every device is looked at: ordinals say nothing about UUIDs.
		if o.UUID != "" && !sameUUID(o.UUID, d.uuid) {
			d.handle = 0
			continue
		}
		return d.retain(s)
	}
	if o.UUID != "" {
		return fmt.Errorf("cuda: none of %d devices has the UUID %s: %w", n, o.UUID, gpu.ErrNoDriver)
	}
	return fmt.Errorf("cuda: no device %d, there are %d: %w", o.Ordinal, n, gpu.ErrNoDriver)
}

// look reads what identifies a device.
func (d *Device) look(s *session, ordinal int) error {
	on := fmt.Sprintf("device %d", ordinal)
	if err := s.do(fnDeviceGet, on, address(&s.out.small), uintptr(ordinal)); err != nil {
		return err
	}
	d.ordinal, d.handle = int32(ordinal), uintptr(s.out.small)
	if err := s.do(fnDeviceGetName, on, address(&s.out.text[0]), uintptr(len(s.out.text)),
		d.handle); err != nil {
		return err
	}
	// The driver ends the name with a zero byte, and the memory behind it holds older text.
	d.name, _, _ = strings.Cut(string(s.out.text[:]), "\x00")
	if err := s.do(fnDeviceGetUUID, on, address(&s.out.text[0]), d.handle); err != nil {
		return err
	}
	// The driver writes sixteen bytes and no end.
	copy(d.uuid[:], s.out.text[:])
	return nil
}

// sameUUID compares as nvidia-smi prints: GPU-8-4-4-4-12 hexadecimal digits.
// Case, dashes and the prefix do not matter.
func sameUUID(text string, uuid [16]byte) bool {
	digits := strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(text), "gpu-"), "-", "")
	return digits == hex.EncodeToString(uuid[:])
}

// retain checks what the package cannot do without, and retains the context.
func (d *Device) retain(s *session) error {
	on := fmt.Sprintf("device %d", d.ordinal)
	// Without mapping by chunks a pool could not grow in place, and its addresses would change.
	if d.attribute(s, attributeVMM) == 0 {
		return fmt.Errorf("cuda: %s (%s) does not map memory by chunks", on, d.name)
	}
	d.numa = d.attribute(s, attributeHostNUMA)
	// Counted by the driver: the context lives until each user has released it, so neither the
	// host nor this package can end it under the other.
	if err := s.do(fnPrimaryCtxRetain, on, address(&s.out.number[0]), d.handle); err != nil {
		return err
	}
	d.context = uintptr(s.out.number[0])
	return nil
}

// release undoes retain. It needs no current context.
// The primary context ends when its last user has released it.
func (d *Device) release() {
	s, err := d.sessions.take(d)
	if err != nil {
		return
	}
	runtime.LockOSThread()
	s.call(fnPrimaryCtxRelease, d.handle)
	s.restoreMode()
	runtime.UnlockOSThread()
	d.sessions.put(s)
}

// attribute asks for a number of the device; what it does not know is -1.
func (d *Device) attribute(s *session, which uintptr) int32 {
	if s.call(fnDeviceGetAttribute, address(&s.out.small), which, d.handle) != success {
		return -1
	}
	return s.out.small
}

// start makes what the device needs in its context.
// A device that cannot write counters is slower to ask, and otherwise the same.
func (d *Device) start() error {
	s, err := d.begin()
	if err != nil {
		return err
	}
	defer s.end()
	// Non-blocking: work on the legacy default stream, which a host may use, would otherwise
	// wait for this stream and this stream for it.
	if err := s.do(fnStreamCreate, "stream of the device", address(&s.out.number[0]),
		streamNonBlocking, 0); err != nil {
		return err
	}
	d.own = uintptr(s.out.number[0])
	d.copies.batches.usable = d.driver.has(fnMemcpyBatchAsync)
	if !d.options.NoKernel {
		d.copies.kernel.load(s, d.options.KernelBelow)
	}
	// Some devices have the function and not the ability, so both are asked for.
	if d.driver.has(fnStreamWriteValue64) && d.attribute(s, attributeStreamMemOp) > 0 {
		d.progress.register(s)
	}
	return nil
}

// ending is the reason why the device cannot be used any more, nil while it can.
// It is read without a lock, because every call begins with it.
func (d *Device) ending() error {
	if e := d.end.Load(); e != nil {
		return *e
	}
	return nil
}

// markLost ends a device after an error that poisons its context.
// Calls that are in the driver at the time get errors of their own.
func (d *Device) markLost(cause error) {
	err := fmt.Errorf("%w: %w", gpu.ErrDeviceLost, cause)
	// The first cause stays: later errors are consequences of it.
	d.end.CompareAndSwap(nil, &err)
}

// register counts a call in the driver that Close waits for. The lock orders it
// with Close: after Close has begun nothing is added.
func (d *Device) register() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ending(); err != nil {
		return err
	}
	// Wait must not begin before an Add that it is to see; that is what the lock is for.
	d.busy.Add(1)
	return nil
}

// Info describes the device and the paths that are in use on it.
// Copies may change from batch to loop while the device runs, see batchCall.
func (d *Device) Info() gpu.Info {
	i := gpu.Info{Name: d.name, Backend: "cuda", Link: "native", Copies: "loop", Completion: "events"}
	// A submission clears usable under the lock when the driver refuses batches for good.
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.copies.batches.usable {
		i.Copies = "batch"
	}
	if d.copies.kernel.usable {
		i.Local = "kernel"
	}
	if d.progress.counted() {
		i.Completion = "counters"
	}
	return i
}

// UUID is the device's UUID as nvidia-smi prints it. Processes that share memory
// find the same device by it: ordinals differ between processes.
func (d *Device) UUID() string { return formatUUID(d.uuid) }

// formatUUID prints a UUID as nvidia-smi does.
func formatUUID(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Memory asks the driver; other programs on the device count. Chunks that pools
// have returned for other pools are given back first.
func (d *Device) Memory() (gpu.Memory, error) {
	s, err := d.beginUnlocked()
	if err != nil {
		return gpu.Memory{}, err
	}
	defer s.endUnlocked()
	// Spare chunks are free memory in the eyes of the caller.
	d.spare.release(s)
	if err := s.do(fnMemGetInfo, d.name, address(&s.out.number[0]),
		address(&s.out.number[1])); err != nil {
		return gpu.Memory{}, err
	}
	return gpu.Memory{Free: int64(s.out.number[0]), Total: int64(s.out.number[1]),
		HostFree: hostmemory.Free()}, nil
}

// Close waits for the device's work, frees all pools and streams and releases
// the context. The counters stay mapped, some kilobytes, for later calls of Done.
func (d *Device) Close() error {
	d.mu.Lock()
	// A device that was lost is closed, too: what can be given back is.
	before := d.ending()
	if errors.Is(before, gpu.ErrClosed) {
		d.mu.Unlock()
		return nil
	}
	// From here on no call begins; those that have begun are counted in busy.
	// A lost device answers gpu.ErrClosed from here on: the host has seen the loss.
	closed := gpu.ErrClosed
	d.end.Store(&closed)
	d.mu.Unlock()
	d.busy.Wait() // waits end when their streams do
	// On a lost context every call fails; its memory goes with the process.
	if before == nil {
		d.releaseAll()
	}
	d.stop()
	return nil
}

// releaseAll frees pools and streams. Nothing else is inside of the device.
// Errors are not returned: there is nothing that a caller could do about them.
func (d *Device) releaseAll() {
	s, err := d.beginAnyway()
	if err != nil {
		return
	}
	defer s.end()
	// All streams before any pool: a copy of one stream may use pages of every pool.
	for id, st := range d.streams.All {
		// Of a stream of the host only what this device queued there counts, and the host may
		// have destroyed it.
		if st.external {
			if !d.passed(s, gpu.Ticket{Stream: id, Seq: st.last}) {
				_ = s.await([]uintptr{st.event(st.last)})
			}
			continue
		}
		_ = s.do(fnStreamSynchronize, "stream "+st.name, st.handle)
	}
	for i, p := range d.pools {
		if d.pools[i] = nil; p != nil {
			_ = p.free(s) // notes a lost device
		}
	}
	// Before the streams are destroyed: their tickets tell which batches have ended.
	d.spare.release(s)
	d.tellEnded(s)
	d.trace.close(s)
	for _, st := range d.streams.All {
		d.endStream(s, st)
	}
	for _, e := range d.events {
		s.call(fnEventDestroy, e)
	}
	d.events = nil
}

// stop releases what open has acquired, as far as it came.
func (d *Device) stop() {
	if d.context != 0 {
		if s, err := d.beginAnyway(); err == nil {
			for _, stream := range []uintptr{d.own, d.probe} {
				if stream != 0 {
					s.call(fnStreamDestroy, stream)
				}
			}
			d.copies.kernel.unload(s)
			d.progress.unregister(s)
			s.end()
		}
		d.release()
	}
	// Memory of the process goes last: nothing calls the driver from here on.
	d.copies.free()
	d.sessions.unmap()
}
