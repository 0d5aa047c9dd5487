package check

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// Options of a checker.
type Options struct {
	// OnProblem is called with each problem, while the device is locked: it
	// must not call the device. Nil: problems are only collected.
	OnProblem func(string)
	// IgnoreUnwritten is for hosts that never write their pages.
	// Without it every read of their pages would be a problem, and hide the others.
	IgnoreUnwritten bool
}

// maxProblems bounds the problems that are kept; all are counted.
// A hundred show the pattern; more would only fill the memory of a long run.
const maxProblems = 100

// Device is a device that is watched.
//
// Each call goes to the inner device first and is then entered into the histories of the
// pages that it touches, under one lock: the histories are in the order in which the device
// has taken the calls. Nothing is waited for and no byte is looked at, so a hazard is found
// also when the schedule at hand happened to give the right bytes.
type Device struct {
	inner   gpu.Device
	options Options

	// mu is held during calls of the inner device that queue work: the checker must see operations
	// in the order in which the device numbers them.
	mu       sync.Mutex
	actors   []actor // by actorID; 0 is the host
	ids      map[gpu.Stream]actorID
	free     []actorID // of streams that were destroyed
	pools    []*pool   // by gpu.Pool; nil: destroyed
	overlaps gpu.Overlaps
	open     []uint64 // numbers of host accesses that have not ended
	hostSeq  uint64   // of the last host access
	now      access   // the operation at hand
	blanks   []int    // its copies of what nothing has written

	problems []string
	count    int
	// count may exceed len(problems), which maxProblems bounds.
	pairs map[pair]struct{} // reported already
}

// Wrap makes a checker around a device. Streams and pools that the device had
// before are unknown to it.
func Wrap(dev gpu.Device, o Options) *Device {
	return &Device{
		inner: dev, options: o,
		actors: []actor{{name: "host"}},
		ids:    map[gpu.Stream]actorID{},
		pairs:  map[pair]struct{}{},
	}
}

// Unwrap gives the device inside.
func (d *Device) Unwrap() gpu.Device { return d.inner }

// Problems are the problems found so far, the first hundred.
func (d *Device) Problems() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A copy: the caller may read it while other goroutines go on.
	return append([]string(nil), d.problems...)
}

// Count is the number of problems found so far.
func (d *Device) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Info describes the device inside.
func (d *Device) Info() gpu.Info { return d.inner.Info() }

// Memory is that of the device inside.
func (d *Device) Memory() (gpu.Memory, error) { return d.inner.Memory() }

// HostBytes is that of the device inside; the access itself is watched by
// HostRead and HostWrite.
func (d *Device) HostBytes(p gpu.Pool, page messages.PageID) []byte {
	return d.inner.HostBytes(p, page)
}

// HostShare is that of the device inside.
func (d *Device) HostShare(rank int, p gpu.Pool, page messages.PageID) []byte {
	return gpu.HostShare(d.inner, rank, p, page)
}

// Close closes the device inside.
func (d *Device) Close() error { return d.inner.Close() }

// NewStream makes a stream and with it an actor.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.inner.NewStream(name)
	if err != nil {
		return s, err
	}
	// A stream is an actor: its operations are in order, and nothing else is unless a ticket says so.
	d.ids[s] = d.newActor(name)
	return s, nil
}

// DestroyStream gives a stream back. The device inside has found that all work
// of the stream has passed, so the host comes after it from now on.
func (d *Device) DestroyStream(s gpu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.inner.DestroyStream(s); err != nil {
		return err
	}
	if id, ok := d.ids[s]; ok {
		// Its tickets are unknown from now on, which learnOne takes for passed.
		delete(d.ids, s)
		d.freeActor(id)
	}
	return nil
}

// Submit queues a batch: all its reads and writes are one operation of the stream.
func (d *Device) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.inner.Submit(s, b)
	// A refused copy has done nothing; those before it are queued and count.
	accepted := len(b.Copies)
	if err != nil {
		if accepted = acceptedOf(err); accepted == 0 || t.IsZero() {
			return t, err
		}
	}
	// Checked after the device: a refusal of the device is the better message.
	// A device that took what has no order leaves the bytes to chance.
	if err := d.overlaps.Find(b.Copies[:accepted]); err != nil {
		d.report(fmt.Sprintf("batch %q on %s: %v", b.Label, d.streamName(s), err))
	}
	// A stream that was there before Wrap is unknown: what it does cannot be ordered.
	if id, ok := d.ids[s]; ok {
		d.begin(id, t, b.Waits)
		d.now.label, d.now.what = b.Label, copying
		d.copies(b.Copies[:accepted])
		d.end(id, d.number(t))
	}
	return t, err
}

// Launch queues a kernel on a device that runs kernels.
func (d *Device) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	// The CUDA device has no Launch: hosts launch their kernels themselves.
	l, ok := d.inner.(gpu.Launcher)
	if !ok {
		return gpu.Ticket{}, fmt.Errorf("check: %s device does not run kernels", d.inner.Info().Backend)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := l.Launch(s, k)
	if err != nil {
		return t, err
	}
	if id, ok := d.ids[s]; ok {
		d.begin(id, t, k.Waits)
		d.now.label, d.now.what = k.Label, computing
		d.kernel(&k)
		d.end(id, d.number(t))
	}
	return t, nil
}

// Fence gives the point after all that was queued on the stream so far.
func (d *Device) Fence(s gpu.Stream) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.inner.Fence(s)
	// A fence closes an operation without accesses: its ticket covers what the stream knows now.
	if id, ok := d.ids[s]; ok && err == nil {
		d.end(id, d.number(t))
	}
	return t, err
}

// Wait makes what is queued on the stream later wait for the tickets.
func (d *Device) Wait(s gpu.Stream, tickets ...gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A wait that the device refused orders nothing.
	if err := d.inner.Wait(s, tickets...); err != nil {
		return err
	}
	if id, ok := d.ids[s]; ok {
		d.learn(id, tickets)
	}
	return nil
}

// Done tells whether a ticket has passed; when it has, the host knows it.
func (d *Device) Done(t gpu.Ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Not done is no knowledge: the host may not act on it.
	if !d.inner.Done(t) {
		return false
	}
	d.learnOne(host, t)
	return true
}

// Known refuses tickets that the device inside does not know.
func (d *Device) Known(t gpu.Ticket) error { return gpu.Known(d.inner, t) }

// Sync blocks until the ticket has passed; then the host knows it.
func (d *Device) Sync(ctx context.Context, t gpu.Ticket) error {
	// Without the lock: a Sync may last, and the work that it waits for may be submitted meanwhile.
	if err := d.inner.Sync(ctx, t); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.learnOne(host, t)
	return nil
}

// HostRead opens a scope in which the host reads a host page; end closes it.
// What is submitted to write the page before end is not ordered after it.
func (d *Device) HostRead(s gpu.Slot) (end func()) {
	return d.hostAccess(s, (*Device).use, gpu.HostRead)
}

// HostWrite opens a scope in which the host writes a host page; end closes it.
func (d *Device) HostWrite(s gpu.Slot) (end func()) {
	return d.hostAccess(s, (*Device).write, gpu.HostWrite)
}

// hostAccess opens a scope and does its access at once: a stream that has not been
// waited for by now is in conflict with it, whenever the scope ends.
func (d *Device) hostAccess(
	s gpu.Slot, do func(*Device, gpu.Access), open func(gpu.Device, gpu.Slot) (end func()),
) (end func()) {
	inner := open(d.inner, s) // a group of checked devices watches as well
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hostSeq++
	seq := d.hostSeq
	// The scope counts as one operation of the host, numbered when it opens.
	d.open = append(d.open, seq)
	// The host has no stream: it is ordered by what it has seen pass, and by its open scopes.
	d.now = access{actor: host, seq: seq, what: hosting}
	do(d, gpu.Access{Slot: s})
	return func() {
		d.endHost(seq)
		inner()
	}
}

// endHost ends a scope: streams that are given work from now on come after all
// host accesses before the oldest scope that is still open.
func (d *Device) endHost(seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// end may be called twice, as a deferred call after an explicit one is.
	if i := slices.Index(d.open, seq); i >= 0 {
		d.open = slices.Delete(d.open, i, i+1)
	}
	d.actors[host].clock.raise(host, d.hostEnded())
}

// hostEnded is the number of the last host access before which all have ended. A
// scope that is still open keeps later ones from being ordered before a submission,
// because clocks have one number for the host.
func (d *Device) hostEnded() uint64 {
	// No scope is open: all accesses of the host have ended.
	if len(d.open) == 0 {
		return d.hostSeq
	}
	// Scopes are few: a host opens one for each page that it reads or fills at this moment.
	return slices.Min(d.open) - 1
}
