//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// Options of a device.
type Options struct {
	Ordinal int // which of the machine's devices, from 0
}

func init() {
	gpu.Register("cuda", func(s gpu.Spec) (gpu.Device, error) { return Open(Options{Ordinal: s.Ordinal}) })
}

// Open opens a device; without a usable driver the error is gpu.ErrNoDriver.
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
type Device struct {
	driver  *driver
	ordinal int32
	handle  uintptr // the CUdevice
	context uintptr
	name    string
	numa    int32 // node of host memory near the device, -1: unknown

	mu       sync.Mutex
	err      error // gpu.ErrClosed or gpu.ErrDeviceLost, for good
	memory   []byte
	out      *outs   // in memory
	counters uintptr // device address of out.counters; 0: events tell of completion
	streams  streams.Table[*stream]
	pools    []*pool
	spare    map[int64][]uint64 // by size: chunks that pools have let go
	own      uintptr            // stream for filling new memory
	foreign  gpu.Stream         // waits for events of the host application; 0: not yet
	lists    lists
	overlaps gpu.Overlaps
	waiters  sync.WaitGroup // goroutines inside of the driver
}

// open makes a device of a table of functions.
func open(drv *driver, o Options) (*Device, error) {
	d := &Device{driver: drv, numa: -1, spare: map[int64][]uint64{}}
	memory, err := mapMemory(int64(unsafe.Sizeof(outs{})))
	if err != nil {
		return nil, err
	}
	d.memory, d.out = memory, (*outs)(unsafe.Pointer(&memory[0]))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.start(o.Ordinal); err != nil {
		d.stop()
		_ = syscall.Munmap(memory)
		return nil, err
	}
	return d, nil
}

func (d *Device) start(ordinal int) error {
	on := fmt.Sprintf("device %d", ordinal)
	do := func(f fn, args ...uintptr) error { return d.failure(f, d.driver.call(f, args...), on) }
	if err := do(fnInit, 0); err != nil {
		return err
	}
	if err := do(fnDeviceGetCount, address(&d.out.small)); err != nil {
		return err
	}
	if n := int(d.out.small); ordinal < 0 || ordinal >= n {
		return fmt.Errorf("cuda: no device %d, there are %d: %w", ordinal, n, gpu.ErrNoDriver)
	}
	if err := do(fnDeviceGet, address(&d.out.small), uintptr(ordinal)); err != nil {
		return err
	}
	d.ordinal, d.handle = int32(ordinal), uintptr(d.out.small)
	if err := do(fnDeviceGetName, address(&d.out.text[0]), uintptr(len(d.out.text)), d.handle); err != nil {
		return err
	}
	d.name = cString(d.out.text[:])
	if d.attribute(attributeVMM) == 0 {
		return fmt.Errorf("cuda: %s (%s) does not map memory by chunks", on, d.name)
	}
	d.numa = d.attribute(attributeHostNUMA)
	if err := do(fnPrimaryCtxRetain, address(&d.out.number[0]), d.handle); err != nil {
		return err
	}
	d.context = uintptr(d.out.number[0])
	if err := do(fnCtxSetCurrent, d.context); err != nil {
		return err
	}
	if err := do(fnStreamCreate, address(&d.out.number[0]), streamNonBlocking, 0); err != nil {
		return err
	}
	d.own = uintptr(d.out.number[0])
	d.registerCounters()
	return nil
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// attribute asks for a number of the device; what it does not know is -1.
func (d *Device) attribute(which uintptr) int32 {
	if d.driver.call(fnDeviceGetAttribute, address(&d.out.small), which, d.handle) != success {
		return -1
	}
	return d.out.small
}

// registerCounters lets streams write to counters in host memory. Where they
// cannot, events tell of completion.
func (d *Device) registerCounters() {
	if !d.driver.has(fnStreamWriteValue64) || d.attribute(attributeStreamMemOp) <= 0 {
		return
	}
	if d.driver.call(fnMemHostRegister, address(&d.memory[0]), uintptr(len(d.memory)), portableMapped) != success {
		return
	}
	at := &d.out.counters[0]
	if d.driver.call(fnMemHostGetDevicePointer, address(&d.out.number[0]), address(at), 0) == success {
		d.counters = uintptr(d.out.number[0])
	}
}

// enter locks the device and its context; leave lets go.
func (d *Device) enter() error {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return d.err
	}
	runtime.LockOSThread()
	if err := d.failure(fnCtxSetCurrent, d.driver.call(fnCtxSetCurrent, d.context), d.name); err != nil {
		d.leave()
		return err
	}
	return nil
}

func (d *Device) leave() {
	runtime.UnlockOSThread()
	d.mu.Unlock()
}

// Info describes the device.
func (d *Device) Info() gpu.Info { return gpu.Info{Name: d.name, Backend: "cuda", Link: "native"} }

// Memory asks the driver; other programs on the device count. Chunks that pools
// have let go for others to take are given back first.
func (d *Device) Memory() (gpu.Memory, error) {
	if err := d.enter(); err != nil {
		return gpu.Memory{}, err
	}
	defer d.leave()
	d.releaseSpare()
	r := d.driver.call(fnMemGetInfo, address(&d.out.number[0]), address(&d.out.number[1]))
	if err := d.failure(fnMemGetInfo, r, d.name); err != nil {
		return gpu.Memory{}, err
	}
	return gpu.Memory{Free: int64(d.out.number[0]), Total: int64(d.out.number[1])}, nil
}

// Close waits for the device's work, frees all pools and streams and lets the
// context go. The counters stay mapped, some kilobytes, for who asks Done.
func (d *Device) Close() error {
	d.mu.Lock()
	if errors.Is(d.err, gpu.ErrClosed) {
		d.mu.Unlock()
		return nil
	}
	lost := d.err != nil
	d.err = gpu.ErrClosed
	d.mu.Unlock()
	d.waiters.Wait() // they end when the streams do

	d.mu.Lock()
	runtime.LockOSThread()
	defer d.leave()
	if !lost {
		d.driver.call(fnCtxSetCurrent, d.context)
		d.drain()
		for i := range d.pools {
			d.destroy(i)
		}
		for _, s := range d.streams.All {
			d.endStream(s)
		}
	}
	d.stop()
	return nil
}

// stop gives back what start took, as far as it came.
func (d *Device) stop() {
	if d.own != 0 {
		d.driver.call(fnStreamDestroy, d.own)
	}
	if d.counters != 0 {
		d.driver.call(fnMemHostUnregister, address(&d.memory[0]))
	}
	if d.context != 0 {
		d.driver.call(fnPrimaryCtxRelease, d.handle)
	}
	d.lists.free()
}
