package host

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/hostmemory"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// Config describes a device.
type Config struct {
	// MemoryBytes bounds the device tiers of all pools, without given memory; 0: half of the
	// machine's memory. Host tiers have no bound.
	MemoryBytes int64
	// Workers is the number of goroutines that copy; 0: one for each processor, at most 8.
	Workers int
	// MaxPending bounds the copies and operations that are queued; 0: DefaultMaxPending.
	// A submission over it is refused with ErrFull: the device cannot make room, since
	// what is queued may wait for the caller.
	MaxPending int
	// Poison fills new pages with PoisonNew, so that tests see reads of what nobody has written.
	// It touches all memory of a pool.
	Poison bool
	// Trace is told of each batch of copies when it has ended. It must not call the
	// device. Nil: nothing is told.
	Trace func(gpu.Transfer)
}

const (
	// DefaultMaxPending is some 10 MB of queues.
	DefaultMaxPending = 1 << 17
	// PoisonNew is what a new page holds if Config.Poison is set.
	PoisonNew = 0xDD
	// defaultWorkers bounds the workers of a device by default: a few processors
	// reach the bandwidth of the memory.
	defaultWorkers = 8
	// machineMemory stands for the machine's memory where the system does not tell it.
	machineMemory = 8 << 30
)

// Errors of this device.
var (
	// ErrFull is answered when Config.MaxPending is reached.
	ErrFull = errors.New("host: too much is queued")
	// ErrAdopted is answered when a pool over given memory is to change.
	ErrAdopted = errors.New("host: the memory is the host application's")
	// ErrImported is answered when a pool of another process is to change.
	ErrImported = errors.New("host: the pool is another process's")
	// ErrNotShared is answered when a pool that is not shared is exported, or the system
	// cannot share memory.
	ErrNotShared = errors.New("host: the memory is not shared")
)

// Device is the machine's memory as a device. Its methods may be called by any number of
// goroutines.
//
// Invariants: the head of a stream is the only operation of it that has begun; pending is
// the number of operations in queues and of the copies in them; ready holds the copy
// operations that have begun and have parts left to take.
type Device struct {
	config Config
	opened time.Time

	// change is held while pools are made, resized, destroyed or exported, and is taken
	// before mu: memory is mapped, filled and given back under change alone.
	change sync.Mutex

	mu       sync.Mutex
	used     int64 // bytes of device tiers
	pools    []*pool
	streams  inprocess.Streams[*stream, *op] // Err is ErrClosed or ErrDeviceLost
	pending  int
	ready    inprocess.FIFO[*op]
	wake     *sync.Cond // of workers: ready has changed, or the device has ended
	free     []*op      // records that are not in use
	failing  inprocess.Faults
	checker  inprocess.Checker
	syncs    map[*sleeper]struct{} // goroutines in Sync
	workers  sync.WaitGroup        // the workers and the kernels that are running
	released bool                  // Close has given the memory back; under change
}

func init() {
	gpu.Register("host", func(s gpu.Spec) (gpu.Device, error) {
		return New(Config{MemoryBytes: s.MemoryBytes, Trace: s.Trace})
	})
}

// New makes a device. Close ends its workers.
func New(c Config) (*Device, error) {
	if c.MemoryBytes < 0 || c.Workers < 0 || c.MaxPending < 0 {
		return nil, fmt.Errorf("host: memory of %d bytes, %d workers, %d pending",
			c.MemoryBytes, c.Workers, c.MaxPending)
	}
	if c.MemoryBytes == 0 {
		c.MemoryBytes = systemMemory() / 2
	}
	if c.Workers == 0 {
		c.Workers = min(runtime.GOMAXPROCS(0), defaultWorkers)
	}
	if c.MaxPending == 0 {
		c.MaxPending = DefaultMaxPending
	}
	d := &Device{config: c, opened: time.Now(), syncs: map[*sleeper]struct{}{}}
	d.wake, d.streams.Backend = sync.NewCond(&d.mu), "host"
	d.checker = inprocess.Checker{Known: d.streams.Known, Within: d.within}
	for range c.Workers {
		d.workers.Go(d.work)
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() gpu.Info {
	return gpu.Info{
		Name: "host memory", Backend: "host", Link: "memory", Copies: "batch", Completion: "counters",
	}
}

// Memory is what pools have left of Config.MemoryBytes.
func (d *Device) Memory() (gpu.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return gpu.Memory{}, d.streams.Err
	}
	return gpu.Memory{Free: d.config.MemoryBytes - d.used, Total: d.config.MemoryBytes,
		HostFree: hostmemory.Free()}, nil
}

// Now is the time since the device was made: the clock of Config.Trace.
func (d *Device) Now() time.Duration { return time.Since(d.opened) }

// Fail makes the next n pages of a direction fail when they are submitted, for tests of
// hosts. A run with one of them is refused as a whole and uses up none. Calls add up.
func (d *Device) Fail(way gpu.Direction, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[way] += n
}

// Lose makes the device fail for good, for tests of hosts: every call answers
// gpu.ErrDeviceLost, and no ticket passes any more. Host memory stays readable until Close.
func (d *Device) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(gpu.ErrDeviceLost)
}

// Close ends the device and drops what is queued. It waits for what is being copied and for
// kernels that are running, and then gives the memory back.
func (d *Device) Close() error {
	d.mu.Lock()
	d.end(gpu.ErrClosed)
	d.mu.Unlock()
	d.workers.Wait()
	d.change.Lock()
	defer d.change.Unlock()
	if d.released {
		return nil
	}
	d.released = true
	var problems []error
	for _, p := range d.pools {
		if p != nil {
			problems = append(problems, p.release())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = nil
	return errors.Join(problems...)
}

// end stops the device with the first reason given, and drops what is queued. A device
// that was lost can still be closed.
func (d *Device) end(reason error) {
	if d.streams.Err == nil || errors.Is(reason, gpu.ErrClosed) {
		d.streams.Err = reason
	}
	for _, s := range d.streams.Table.All {
		s.Queue.Clear()
		s.waiters = nil
	}
	d.ready.Clear()
	d.pending = 0
	for w := range d.syncs {
		close(w.passed)
	}
	clear(d.syncs)
	d.wake.Broadcast()
}
