package sim

import (
	"math"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// Operation tells a Trace about an operation that has ended.
// Direction, Copies and Bytes are those of copies; Bytes counts every page of a run once.
type Operation struct {
	Stream    string
	Label     string
	Kind      string // "copy", "kernel" or "wait"
	Direction gpu.Direction
	Copies    int
	Bytes     int64
	Timing
}

// step starts what can start now, moves time to the next event and ends what
// ends there: one operation. It tells whether there was an event up to limit.
// It is called with run and mu held, and may release mu while a kernel runs or bytes are
// copied: what was read of the device before may have changed afterwards.
func (d *Device) step(limit int64) bool {
	if d.start() {
		return true
	}
	// Nothing can start now, so time may move to the next event without missing one.
	next, op := d.next()
	if next > limit || next == forever {
		return false
	}
	// An operation may have ended in the past of a clock that Advance has moved.
	d.now = max(d.now, next)
	if op != nil {
		d.finish(op)
	}
	return true
}

// start makes the head of each stream ready when its waits are met, and runs
// ready ones: kernels at once, copies when their engine is free, in the order in
// which they became ready. A marker ends as it starts. The result tells whether a
// marker has ended, because operations that wait for it may be ready now.
func (d *Device) start() (ended bool) {
	var chosen [gpu.Directions]*op
	for _, s := range d.streams.Table.All {
		// Only the head of a stream may start: the order within a stream is what the engine relies on.
		if s.Queue.Empty() || s.stalled > d.now {
			continue
		}
		o := s.Queue.First()
		if o.state == queued && d.met(o) {
			d.becomeReady(o)
		}
		if o.state != ready || o.earliest > d.now {
			continue
		}
		switch o.kind {
		case marker:
			o.started, o.end = d.now, d.now
			// Finished here, so that streams that are visited later in this loop see the marker's ticket.
			d.finish(o)
			ended = true
		case kernel:
			// Kernels of several streams run at once: the model has no limit on them.
			o.state, o.started = running, d.now
			o.end = d.now + int64(math.Ceil(o.work))
		case copies:
			// An engine takes one operation; the others stay ready until it is free.
			if best := chosen[o.direction]; best == nil || d.before(o, best) {
				chosen[o.direction] = o
			}
		}
	}
	for e, o := range chosen {
		if o != nil && d.engines[e] == nil {
			d.begin(o)
		}
	}
	return ended
}

// met tells whether all waits of an operation have passed.
// Only waits that had not passed when the operation was queued are in the list.
func (d *Device) met(o *op) bool {
	for _, t := range o.waits {
		// One wait is enough to hold the operation back.
		if !d.streams.Passed(t) {
			return false
		}
	}
	return true
}

// becomeReady marks an operation that may start. Under a seed it may start later and
// take longer than the profile says, which is what other users of a link and of host
// memory do to a transfer. Markers take no time under any seed: they are no work.
func (d *Device) becomeReady(o *op) {
	o.state, o.readyAt = ready, d.now
	if d.config.Seed == 0 || o.kind == marker {
		return
	}
	// The chance is a function of the seed, the stream and the number, so a schedule repeats whatever
	// the order of the goroutines that submit.
	delay, stretch := newChance(d.config.Seed, int32(o.stream.ID), o.seq).schedule()
	o.earliest = max(o.earliest, d.now+delay)
	// Speed falls with the same factor: a transfer that is slowed down leaves more of the link
	// to the other direction.
	o.work *= stretch
	o.speed /= stretch
}

// before orders operations that wait for one engine: the one that became ready
// first goes first. Ties break by the order of submission, so that a schedule is a
// function of the calls and the seed.
func (d *Device) before(a, b *op) bool {
	if a.readyAt != b.readyAt {
		return a.readyAt < b.readyAt
	}
	return a.order < b.order
}

// begin starts a copy operation on its engine. From now on until it ends its
// destination holds poison: no other operation may read it.
func (d *Device) begin(o *op) {
	o.state, o.started, o.updated = running, d.now, d.now
	// Rounded up: an operation never ends before its bytes are through.
	o.end = d.now + int64(math.Ceil(o.work))
	d.engines[o.direction] = o
	if d.config.Poison == PoisonOn {
		for k := range o.copies {
			for c := range o.copies[k].Each {
				inprocess.Fill(d.memory.page(c.Dst)[c.DstOffset:c.DstOffset+c.Bytes], PoisonFlight)
			}
		}
	}
	if o.direction != gpu.Local {
		d.shareLink()
	}
}

// shareLink computes the speed of the two directions of the link whenever an
// operation starts or ends on one of them.
// The answer is exact, not an approximation by small steps: between two such events both
// rates are constant.
func (d *Device) shareLink() {
	down, up := d.engines[gpu.Offload], d.engines[gpu.Onboard]
	rate := func(own, other *op) {
		if own == nil {
			return
		}
		// What has been moved so far was moved at the old rate.
		// The conversion forbids a fused multiplication and subtraction, which some processors
		// have: a schedule is the same on all.
		own.work -= float64(float64(d.now-own.updated) * own.rate)
		own.updated, own.rate = d.now, 1
		if other != nil {
			own.rate = d.profile.share(own.speed, other.speed)
		}
		own.end = d.now + int64(math.Ceil(max(0, own.work)/own.rate))
	}
	rate(down, up)
	rate(up, down)
}

// next finds the next time at which something happens: an operation ends, or
// one that is ready may start. Of operations that end together the one that
// was queued first goes first.
// It looks at the head of each stream, so its cost is the number of streams. No heap is
// kept: engines have few streams, and the ends of copies change whenever the link is shared
// otherwise.
func (d *Device) next() (at int64, ending *op) {
	at = forever
	for _, s := range d.streams.Table.All {
		if s.Queue.Empty() {
			continue
		}
		o := s.Queue.First()
		switch {
		case o.state == running:
			// Ties break by order, so a schedule does not depend on the order of streams.
			if o.end < at || o.end == at && (ending == nil || o.order < ending.order) {
				at, ending = o.end, o
			}
		case s.stalled > d.now:
			if s.stalled < at {
				at, ending = s.stalled, nil
			}
		case o.state == ready && o.earliest > d.now && o.earliest < at:
			at, ending = o.earliest, nil
		}
	}
	return at, ending
}

// finish does what an operation is for, at its end, and takes it from its stream.
// Bytes come first, then the ticket passes: who sees the ticket sees the bytes.
func (d *Device) finish(o *op) {
	switch o.kind {
	case copies:
		if !d.moveBytes(o) {
			return
		}
		d.engines[o.direction] = nil
		d.counters.add(o)
		if o.direction != gpu.Local {
			d.shareLink()
		}
	case kernel:
		if !d.runKernel(o) {
			return
		}
		d.counters.Kernels++
	}
	d.retire(o)
}

// moveBytes copies the bytes of an operation at its end: whoever reads the destination
// earlier reads poison. It tells whether the device is still there afterwards.
//
// Memory is found under mu and copied without it, so that a Submit of another goroutine
// does not wait for megabytes. The operation stays the head of its stream meanwhile: no
// operation that is ordered behind it starts, its ticket has not passed, and Resize and
// DestroyPool refuse to take its pages away. run keeps other goroutines from moving time.
func (d *Device) moveBytes(o *op) bool {
	d.spans = d.spans[:0]
	for k := range o.copies {
		for c := range o.copies[k].Each {
			m := inprocess.Span{To: d.memory.page(c.Dst)[c.DstOffset : c.DstOffset+c.Bytes]}
			if !c.Zero {
				m.From = d.memory.page(c.Src)[c.SrcOffset:]
			}
			d.spans = append(d.spans, m)
		}
	}
	d.moving.Lock()
	d.mu.Unlock()
	inprocess.Move(d.spans)
	d.moving.Unlock()
	d.mu.Lock()
	return d.streams.Err == nil
}

// runKernel runs the function of a kernel without mu; it tells whether the
// device is still there afterwards. A kernel that panics has run.
// A kernel may close or lose the device, which drops all records, its own included.
func (d *Device) runKernel(o *op) bool {
	f := o.run
	// Records are reused: the function would keep alive what it refers to.
	o.run = nil
	if f != nil {
		d.unlocked(f)
	}
	return d.streams.Err == nil
}

// unlocked takes mu again also when the kernel panics: its caller has it then,
// as its deferred calls expect.
func (d *Device) unlocked(kernel func(gpu.PageBytes)) {
	d.mu.Unlock()
	defer d.mu.Lock()
	kernel(d.kernelBytes)
}

// kernelBytes is what kernels see of memory.
// A kernel that asks for a slot which is no page is a bug of the host, and panics in the
// goroutine that moves time. On a device that has ended nothing is checked.
func (d *Device) kernelBytes(s gpu.Slot) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err == nil {
		if err := d.memory.checkRange(s, 0, 0); err != nil {
			panic("sim: kernel: " + err.Error())
		}
	}
	return d.memory.page(s)
}

// retire takes an operation that has ended from its stream.
func (d *Device) retire(o *op) {
	s := o.stream
	s.Queue.Pop()
	// From here on the ticket has passed: the bytes are in place.
	s.Done = o.seq
	d.pending -= 1 + len(o.copies)
	t := Timing{Seq: o.seq, Submit: time.Duration(o.submitted), Start: time.Duration(o.started),
		End: time.Duration(d.now)}
	if s.past == nil {
		// Made when the first operation has ended: a stream that is never used needs none.
		s.past = make([]Timing, remembered)
	}
	s.past[o.seq%remembered] = t
	d.free = append(d.free, o)
	if d.config.Trace != nil {
		d.config.Trace(Operation{
			Stream: s.Name, Label: o.label, Kind: o.kind.String(), Direction: o.direction,
			Copies: len(o.copies), Bytes: o.bytes, Timing: t,
		})
	}
}
