package sim

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// opKind is what an operation does.
// The kinds differ in what they need to start: see start.
type opKind uint8

const (
	marker opKind = iota // takes no time: a place for waits
	copies
	kernel
)

// String names the kind as traces and errors do.
func (k opKind) String() string { return [...]string{"wait", "copy", "kernel"}[k] }

// opState is how far an operation is: queued, ready when it has met its waits
// at the head of its stream, running from start to end.
// An operation that has ended has no state: its record is released at once.
type opState uint8

const (
	queued opState = iota
	ready
	running
)

// op is one operation of a stream. Records are reused with their slices.
//
// Times are virtual nanoseconds since the device was made: submitted ≤ readyAt ≤ started ≤
// end. reads and writes are those of a kernel, copies those of a copy operation.
type op struct {
	kind        opKind
	state       opState
	direction   gpu.Direction
	stream      *stream
	seq         uint64
	order       uint64 // over all streams: breaks ties between streams
	label       string
	waits       []gpu.Ticket
	copies      []gpu.Copy
	reads       []gpu.Access
	writes      []gpu.Access
	run         func(gpu.PageBytes)
	descriptors int64
	calls       int64 // 1 for the first operation of a submission in its direction

	submitted int64
	readyAt   int64
	earliest  int64 // by the cost of calls and the schedule
	started   int64
	end       int64   // known while running
	work      float64 // nanoseconds left at full speed, as of updated
	updated   int64
	speed     float64 // GB/s it would use alone
	rate      float64 // of full speed, in (0, 1]
	bytes     int64
}

// String names the operation as errors do.
func (o *op) String() string { return fmt.Sprintf("%s %q, operation %d", o.kind, o.label, o.seq) }

// Uses finds a page that the operation uses.
func (o *op) Uses(t inprocess.Touching) (gpu.Slot, bool) {
	return t.Find(o.copies, o.reads, o.writes)
}

// Submit queues a batch. A batch that breaks a rule is refused as a whole with
// an error that states the fact; an injected failure is a *gpu.CopyError.
// With a *gpu.CopyError the copies before the one that failed are queued, and the ticket is
// theirs; a zero ticket says that there are none. The slices of the batch are copied.
func (d *Device) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	// Before the lock: making room runs work, and work may be kernels that call the device.
	d.makeRoom(len(b.Copies))
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Live(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checker.Batch(st.Name, b); err != nil {
		return gpu.Ticket{}, err
	}
	// A batch that breaks a rule uses up no fault: it is refused before.
	accepted, failed := d.failing.Accept("sim", b)
	list := b.Copies[:accepted]
	if failed != nil && accepted == 0 {
		return gpu.Ticket{}, failed
	}
	// Submissions start one behind the other on the host's processor.
	d.callFree = max(d.callFree, d.now) + int64(d.profile.CallNanos)
	// An empty batch has a ticket too, after its waits.
	if len(list) == 0 {
		d.enqueue(st, marker, b.Label, b.Waits)
	}
	// An operation is on one engine, so each stretch of one direction is one. The order of the batch
	// is kept, as a stream is in order. The waits are on the first: the others follow it in the
	// stream.
	for waits := b.Waits; len(list) > 0; waits = nil {
		way, _ := list[0].Direction()
		n := slices.IndexFunc(list, func(c gpu.Copy) bool {
			other, _ := c.Direction()
			return other != way
		})
		if n < 0 {
			n = len(list)
		}
		o := d.enqueue(st, copies, b.Label, waits)
		o.direction = way
		o.copies = append(o.copies, list[:n]...)
		d.measure(o)
		list = list[n:]
	}
	d.pending += accepted
	if failed != nil {
		return gpu.Ticket{Stream: s, Seq: st.Last}, failed
	}
	return gpu.Ticket{Stream: s, Seq: st.Last}, nil
}

// makeRoom runs the oldest work while the queues are full. When another
// goroutine moves time already, or the caller is a kernel, it does nothing:
// that goroutine is making room.
// The queues may then be above the limit for a moment, by what such callers submit.
func (d *Device) makeRoom(copies int) {
	d.mu.Lock()
	// A batch larger than the limit is taken when nothing else is pending.
	full := d.pending > 0 && d.pending+copies > d.config.MaxPending
	d.mu.Unlock()
	if !full {
		return
	}
	select {
	case d.run <- struct{}{}:
	default:
		return
	}
	d.mu.Lock()
	defer d.stopTime()
	for d.streams.Err == nil && d.pending > 0 && d.pending+copies > d.config.MaxPending &&
		d.step(forever) {
	}
}

// enqueue makes the next operation of a stream. What has passed already is not
// waited for.
func (d *Device) enqueue(st *stream, kind opKind, label string, waits []gpu.Ticket) *op {
	var o *op
	if n := len(d.free); n > 0 {
		o, d.free = d.free[n-1], d.free[:n-1]
	} else {
		o = &op{}
	}
	// Numbers are given under the lock: a ticket's number is its place in the stream.
	st.Last++
	d.order++
	*o = op{
		waits: o.waits[:0], copies: o.copies[:0], reads: o.reads[:0], writes: o.writes[:0],
		kind: kind, label: label, stream: st, seq: st.Last, order: d.order,
		submitted: d.now, earliest: d.callFree, rate: 1,
	}
	// A marker costs no call of its own.
	if kind == marker {
		o.earliest = d.now
	}
	for _, t := range waits {
		// Fewer waits make the search for the next operation cheaper.
		if !d.streams.Passed(t) {
			o.waits = append(o.waits, t)
		}
	}
	st.Queue.Push(o)
	d.pending++
	return o
}

// measure computes what a copy operation costs: neighbours in memory go as one
// descriptor.
// A run of pages is one descriptor already, and its bytes are those of all its pages.
func (d *Device) measure(o *op) {
	descriptors, piece, cost := 0, int64(0), 0.0
	flush := func() {
		if piece > 0 {
			descriptors++
			cost += d.profile.descriptor(o.direction, piece)
		}
	}
	for i := range o.copies {
		c := &o.copies[i]
		o.bytes += c.Bytes
		// Only neighbours in the list are merged, as a driver would that looks at one pair at a time.
		if i > 0 && c.Follows(o.copies[i-1], d.memory.pageSizes(c)) {
			piece += c.Bytes
			continue
		}
		flush()
		piece = c.Bytes
	}
	flush()
	o.calls, o.descriptors = 1, int64(descriptors)
	o.work = d.profile.work(o.direction, cost, o.bytes)
	o.speed = float64(o.bytes) / o.work
	d.callFree += int64(float64(descriptors) * d.profile.DescriptorNanos)
	// The engine may begin when the processor has written all descriptors.
	o.earliest = d.callFree
}

// Launch queues a kernel. Its accesses are checked as those of copies are;
// memory beyond them it may not touch.
// Nanos below 0 counts as 0. The access lists are copied; Run is kept until it has run.
func (d *Device) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	d.makeRoom(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Live(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checker.Kernel(st.Name, &k); err != nil {
		return gpu.Ticket{}, err
	}
	d.callFree = max(d.callFree, d.now) + int64(d.profile.CallNanos)
	o := d.enqueue(st, kernel, k.Label, k.Waits)
	// Kept until the kernel has run, for Resize and DestroyPool.
	o.reads = append(o.reads, k.Reads...)
	o.writes = append(o.writes, k.Writes...)
	o.run = inprocess.Run(&k)
	o.work = float64(max(0, k.Nanos))
	return gpu.Ticket{Stream: s, Seq: st.Last}, nil
}

// Wait makes what is queued on the stream later wait for the tickets.
// It is a marker: work of the stream that was queued before is not held up.
func (d *Device) Wait(s gpu.Stream, tickets ...gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Waitable(s, "wait", tickets)
	if err != nil {
		return err
	}
	d.enqueue(st, marker, "wait", tickets)
	return nil
}
