package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// Config describes a simulated device.
type Config struct {
	// MemoryBytes is the size of device memory; host memory has no limit.
	MemoryBytes int64
	// Profile names the timing; "" is DefaultProfile.
	Profile string
	// Measured is a profile that was read from a file; it goes before Profile.
	Measured *Profile
	// Seed picks the schedule; 0 is the one without delays.
	// Any other value delays and stretches operations, the same way in each run. It changes
	// when bytes move, never which bytes a program with all its waits gets.
	Seed   int64
	Poison Poison
	// MaxPending bounds the copies and operations that wait to be run;
	// 0 is DefaultMaxPending.
	MaxPending int
	// Trace is called with each operation when it has ended. It must not call
	// the device. Nil: no trace.
	Trace func(Operation)
}

// DefaultMaxPending is some 10 MB of queues.
const DefaultMaxPending = 1 << 17

// Poison says whether new memory and destinations of copies under way are filled
// with a byte that tests recognise.
type Poison uint8

// PoisonOn is the default. PoisonOff is for benchmarks: filling memory costs as
// much as the copies.
const (
	PoisonOn Poison = iota
	PoisonOff
)

func init() {
	gpu.Register("sim", func(s gpu.Spec) (gpu.Device, error) {
		const unasked = 64 << 20
		c := Config{MemoryBytes: cmp.Or(s.MemoryBytes, unasked), Profile: s.Profile, Seed: s.Seed}
		if s.Trace != nil {
			c.Trace = func(o Operation) {
				if o.Kind == copies.String() {
					s.Trace(gpu.Transfer{Stream: o.Stream, Label: o.Label, Copies: o.Copies, Bytes: o.Bytes,
						Submit: o.Submit, Start: o.Start, End: o.End})
				}
			}
		}
		return New(c)
	})
}

// Device is a simulated device.
// Its methods may be called by any number of goroutines. Virtual time moves only in those
// that wait: Sync, Advance, Drain, and a Submit or Launch that finds the queues full.
//
// Invariants: used memory ≤ memory; pending is the number of records in queues and of the
// copies in them; an engine has the operation of one stream's head, or none.
type Device struct {
	// run is a channel and not a mutex, since moveTime gives up with its context.
	// run is held, by a value in it, by the goroutine that moves time. It is
	// taken before mu; while a kernel runs or bytes are copied, run is held and mu is not.
	run chan struct{}
	// moving is held while bytes are copied. It is taken with mu held and mu is not taken
	// while it is held, so that fail can wait for it without mu.
	moving sync.Mutex
	spans  []inprocess.Span // of the operation whose bytes are copied; of the holder of run

	mu      sync.Mutex
	config  Config
	profile Profile
	now     int64 // virtual time in nanoseconds
	// now never goes back; callFree may be ahead of it, as calls are made without moving time.
	callFree int64 // when the processor has finished the calls made so far
	memory   memory
	streams  inprocess.Streams[*stream, *op] // Err is ErrClosed or ErrDeviceLost
	free     []*op                           // records that are not in use
	engines  [gpu.Directions]*op             // each moves the head of one stream; nil: idle
	order    uint64                          // operations queued so far
	pending  int                             // copies and operations queued or running
	// failing is how many pages of each direction are still to fail, see Fail.
	failing  inprocess.Faults
	counters Counters
	checker  inprocess.Checker
}

// New makes a device.
func New(c Config) (*Device, error) {
	if c.MemoryBytes <= 0 {
		return nil, fmt.Errorf("sim: device memory of %d bytes", c.MemoryBytes)
	}
	d := &Device{config: c, run: make(chan struct{}, 1), memory: memory{bytes: c.MemoryBytes}}
	d.streams.Backend = "sim"
	d.checker = inprocess.Checker{Known: d.streams.Known, Within: d.memory.checkRange}
	// Zero is the default; there is no device without a limit.
	if d.config.MaxPending <= 0 {
		d.config.MaxPending = DefaultMaxPending
	}
	var err error
	if c.Measured != nil {
		d.profile, err = *c.Measured, c.Measured.Validate()
	} else {
		d.profile, err = NamedProfile(cmp.Or(c.Profile, DefaultProfile))
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Info describes the device.
func (d *Device) Info() gpu.Info {
	return gpu.Info{Name: "simulated " + d.profile.Name, Backend: "sim", Link: d.profile.Name,
		Copies: "simulated", Completion: "simulated"}
}

// Profile is the timing in use.
func (d *Device) Profile() Profile { return d.profile }

// Now is the virtual time since the device was made.
func (d *Device) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.now)
}

// Sync moves time until the ticket has passed. The context is looked at now and
// then, and while another goroutine moves time.
// Events at the same time as the ticket may or may not have happened. The error is that
// of the context, gpu.ErrClosed, gpu.ErrDeviceLost, or names a ticket that no stream has
// issued.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	// Without taking run: a ticket that has passed needs no time.
	if passed, err := d.ask(t); passed || err != nil {
		return err
	}
	if err := d.moveTime(ctx); err != nil {
		return err
	}
	defer d.stopTime()
	const lookEvery = 64
	for n := 0; !d.streams.Passed(t); n++ {
		// The device may end between two steps, as a kernel may close it.
		if d.streams.Err != nil {
			return d.streams.Err
		}
		if n%lookEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !d.step(forever) {
			// Waits name tickets that exist already, so they form no cycle, and every operation
			// ends.
			panic(fmt.Sprintf("sim: ticket %d of stream %d cannot pass, though nothing is left to run",
				t.Seq, t.Stream))
		}
	}
	return nil
}

// ask tells whether a ticket has passed; unknown ones are errors.
func (d *Device) ask(t gpu.Ticket) (passed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err != nil {
		return false, d.streams.Err
	}
	if err := d.streams.Known(t); err != nil {
		return false, err
	}
	return d.streams.Passed(t), nil
}

// moveTime takes run and then mu; stopTime releases both.
func (d *Device) moveTime(ctx context.Context) error {
	select {
	case d.run <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	return nil
}

// stopTime releases what moveTime has taken, in the opposite order.
func (d *Device) stopTime() {
	d.mu.Unlock()
	<-d.run
}

// Advance moves time by t and runs what ends in it.
// An idle device advances as well: the time of a host that does something else.
func (d *Device) Advance(t time.Duration) {
	_ = d.moveTime(context.Background()) // which does not end
	defer d.stopTime()
	// Events at the limit itself still happen.
	limit := d.now + int64(t)
	for d.streams.Err == nil && d.step(limit) {
	}
	d.now = max(d.now, limit)
}

// Drain runs everything that is queued.
func (d *Device) Drain() {
	_ = d.moveTime(context.Background()) // which does not end
	defer d.stopTime()
	for d.streams.Err == nil && d.step(forever) {
	}
}

// Lose makes the device fail for good: every call answers gpu.ErrDeviceLost,
// no ticket passes any more. Host memory stays readable.
func (d *Device) Lose() { d.fail(gpu.ErrDeviceLost) }

// Fail makes the next n pages of a direction fail when they are submitted. A run
// with one of them is refused as a whole and uses up none of them: a caller that
// needs to know which page failed submits the pages one by one. Calls add up.
func (d *Device) Fail(kind gpu.Direction, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[kind] += n
}

// Close ends the device; what is queued is not run.
// It waits at most for the bytes that another goroutine is copying now: no copy writes to
// memory later, because bytes move only when time does.
func (d *Device) Close() error {
	d.fail(gpu.ErrClosed)
	return nil
}

// fail ends the device with the first reason given, and drops what is queued.
// A device that was lost can still be closed.
func (d *Device) fail(reason error) {
	d.end(reason)
	// Afterwards the application may free or read the memory that it has given.
	d.moving.Lock()
	defer d.moving.Unlock()
}

// end is the part of fail under mu.
func (d *Device) end(reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err == nil || errors.Is(reason, gpu.ErrClosed) {
		d.streams.Err = reason
	}
	for _, s := range d.streams.Table.All {
		s.Queue.Clear()
	}
	// Queued work is dropped and its tickets never pass, as on a lost device.
	d.engines, d.pending = [gpu.Directions]*op{}, 0
}
