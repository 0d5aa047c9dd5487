package host

import (
	"fmt"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// opKind is what an operation does.
type opKind uint8

const (
	marker  opKind = iota // takes no time: a place for waits
	foreign               // ended by Complete
	copies
	kernel
)

// op is one operation of a stream. Records are reused with their slices.
//
// An operation begins when it is the head of its stream, and starts when it has begun and
// unmet is 0. A copy has ended when its cursor is at the end of spans and out is 0.
type op struct {
	kind     opKind
	stream   *stream
	seq      uint64
	label    string
	waits    []gpu.Ticket
	copies   []gpu.Copy
	reads    []gpu.Access
	writes   []gpu.Access
	run      func(gpu.PageBytes)
	begun    bool
	started  bool
	complete bool // of a foreign operation
	unmet    int  // waits that have not passed, since it has begun

	spans []inprocess.Span // of a copy that has started
	next  int              // cursor: the first span that no worker has taken to its end
	taken int              // bytes of that span which are taken
	out   int              // parts that workers have
	bytes int64

	submitted, start time.Duration
}

// String names the operation as errors do.
func (o *op) String() string {
	kind := [...]string{"wait", "ticket", "copy", "kernel"}[o.kind]
	return fmt.Sprintf("%s %q, operation %d", kind, o.label, o.seq)
}

// Uses finds a page that the operation uses.
func (o *op) Uses(t inprocess.Touching) (gpu.Slot, bool) {
	return t.Find(o.copies, o.reads, o.writes)
}

// Submit queues a batch. A batch that breaks a rule is refused as a whole; of an injected
// fault, a *gpu.CopyError, the copies before it are queued, and the ticket is theirs. The
// slices of the batch are copied.
func (d *Device) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Live(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checker.Batch(st.Name, b); err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.room(st, len(b.Copies)); err != nil {
		return gpu.Ticket{}, err
	}
	accepted, failed := d.failing.Accept("host", b)
	if failed != nil && accepted == 0 {
		return gpu.Ticket{}, failed
	}
	kind := copies
	if accepted == 0 {
		kind = marker
	}
	o := d.enqueue(st, kind, b.Label, b.Waits)
	o.copies = append(o.copies, b.Copies[:accepted]...)
	d.pending += accepted
	d.advance(st)
	return gpu.Ticket{Stream: s, Seq: st.Last}, failed
}

// room refuses an operation that would exceed the bound. One that is larger than the
// bound is taken when nothing else is queued.
func (d *Device) room(s *stream, copies int) error {
	if d.pending > 0 && d.pending+1+copies > d.config.MaxPending {
		return fmt.Errorf("stream %s: %d copies and operations, at most %d: %w",
			s.Name, d.pending, d.config.MaxPending, ErrFull)
	}
	return nil
}

// enqueue makes the next operation of a stream; advance starts it. What has passed
// already is not waited for.
func (d *Device) enqueue(st *stream, kind opKind, label string, waits []gpu.Ticket) *op {
	var o *op
	if n := len(d.free); n > 0 {
		o, d.free = d.free[n-1], d.free[:n-1]
	} else {
		o = &op{}
	}
	st.Last++
	*o = op{
		waits: o.waits[:0], copies: o.copies[:0], spans: o.spans[:0],
		reads: o.reads[:0], writes: o.writes[:0],
		kind: kind, label: label, stream: st, seq: st.Last,
	}
	if d.config.Trace != nil {
		o.submitted = d.Now()
	}
	for _, t := range waits {
		if !d.streams.Passed(t) {
			o.waits = append(o.waits, t)
		}
	}
	st.Queue.Push(o)
	d.pending++
	return o
}

// Launch queues a kernel. It runs in a goroutine of its own when its turn comes. Nanos has
// no effect here: a kernel lasts as long as it runs. The access lists are copied.
func (d *Device) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Live(s)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checkKernel(st, &k); err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.room(st, 0); err != nil {
		return gpu.Ticket{}, err
	}
	o := d.enqueue(st, kernel, k.Label, k.Waits)
	// Kept until the kernel has run, for Resize and DestroyPool.
	o.reads = append(o.reads, k.Reads...)
	o.writes = append(o.writes, k.Writes...)
	o.run = inprocess.Run(&k)
	d.advance(st)
	return gpu.Ticket{Stream: s, Seq: st.Last}, nil
}

// checkKernel refuses what no device would run, and pages that are not one piece.
func (d *Device) checkKernel(st *stream, k *gpu.Kernel) error {
	if err := d.checker.Kernel(st.Name, k); err != nil {
		return err
	}
	for _, set := range [][]gpu.Access{k.Reads, k.Writes} {
		for i := range set {
			if !d.pools[set[i].Slot.Pool].whole(set[i].Slot.Tier) {
				return fmt.Errorf(
					"kernel %q on stream %s: %s lies in several tensors: a kernel needs one piece",
					k.Label, st.Name, set[i].Slot)
			}
		}
	}
	return nil
}

// Wait makes what is queued on the stream later wait for the tickets. Work of the stream
// that was queued before is not held up.
func (d *Device) Wait(s gpu.Stream, tickets ...gpu.Ticket) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, err := d.streams.Waitable(s, "wait", tickets)
	if err != nil {
		return err
	}
	if err := d.room(st, 0); err != nil {
		return err
	}
	d.enqueue(st, marker, "wait", tickets)
	d.advance(st)
	return nil
}
