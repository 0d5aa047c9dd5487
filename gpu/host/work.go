package host

import (
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// partBytes is how much a worker copies at a time: enough that taking a part costs nothing
// beside it, and few enough that a batch of a megabyte has work for four. Measured on two
// cores, parts of 64 KiB to 1 MiB are equally fast.
const partBytes = 256 << 10

// The caller of the functions in this file holds Device.mu, except for work, runKernel and
// kernelBytes, which run in goroutines of their own. Bytes are copied without mu.

// advance starts what may start on a stream, and on streams that waited for it.
func (d *Device) advance(first *stream) {
	// A list instead of a recursion: a chain of markers may be as long as there are streams.
	list := [8]*stream{first}
	streams := list[:1]
	for len(streams) > 0 {
		st := streams[len(streams)-1]
		streams = streams[:len(streams)-1]
		for !st.Queue.Empty() && d.start(st.Queue.First()) {
			streams = d.finish(st, streams)
		}
	}
}

// start begins or starts the head of a stream; it tells whether the operation has ended.
func (d *Device) start(o *op) (ended bool) {
	if !o.begun {
		o.begun = true
		for _, t := range o.waits {
			if !d.streams.Passed(t) {
				d.await(t, waiter{op: o})
				o.unmet++
			}
		}
	}
	switch {
	case o.unmet > 0:
		return false
	case o.kind == marker:
		return true
	case o.kind == foreign:
		return o.complete
	case o.started:
		return false
	}
	o.started = true
	if d.config.Trace != nil {
		o.start = d.Now()
	}
	if o.kind == kernel {
		d.workers.Go(func() { d.runKernel(o) })
		return false
	}
	d.lay(o)
	d.ready.Push(o)
	if o.bytes <= partBytes {
		d.wake.Signal()
	} else {
		d.wake.Broadcast()
	}
	return false
}

// lay finds the memory of a copy operation, in the order of its copies. A copy is one span, or
// several where a page lies in several tensors.
func (d *Device) lay(o *op) {
	for i := range o.copies {
		c := &o.copies[i]
		o.bytes += c.Bytes
		src, dst := d.pools[c.Src.Pool], d.pools[c.Dst.Pool]
		from := int64(c.Src.Page)*src.spec.PageBytes + c.SrcOffset
		to := int64(c.Dst.Page)*dst.spec.PageBytes + c.DstOffset
		for left := c.Bytes; left > 0; {
			m := inprocess.Span{To: dst.at(c.Dst.Tier, to, left)}
			if !c.Zero {
				m.From = src.at(c.Src.Tier, from, int64(len(m.To)))
				m.To = m.To[:len(m.From)]
			}
			o.spans = append(o.spans, m)
			n := int64(len(m.To))
			from, to, left = from+n, to+n, left-n
		}
	}
}

// take moves the cursor of a copy over the next part, of at most partBytes, which is appended to
// part; more tells whether there is another one. Each part counts in o.out until its worker is
// done.
func (o *op) take(part []inprocess.Span) (_ []inprocess.Span, more bool) {
	for room := partBytes; room > 0 && o.next < len(o.spans); {
		m := o.spans[o.next]
		end := min(o.taken+room, len(m.To))
		piece := inprocess.Span{To: m.To[o.taken:end]}
		if m.From != nil {
			piece.From = m.From[o.taken:end]
		}
		part = append(part, piece)
		room -= end - o.taken
		o.taken = end
		if end == len(m.To) {
			o.next, o.taken = o.next+1, 0
		}
	}
	o.out++
	return part, o.next < len(o.spans)
}

// work is a worker: it copies parts until the device ends. Operations take turns, so that
// a large batch does not hold up a small one.
func (d *Device) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var part []inprocess.Span
	for {
		for d.ready.Empty() && d.streams.Err == nil {
			d.wake.Wait()
		}
		if d.streams.Err != nil {
			return
		}
		o := d.ready.Pop()
		var more bool
		if part, more = o.take(part[:0]); more {
			d.ready.Push(o)
		}
		d.mu.Unlock()
		inprocess.Move(part)
		d.mu.Lock()
		o.out--
		d.ended(o)
	}
}

// ended ends a copy operation when its last part is done: every worker calls it after its part, and
// only one of them finds nothing left.
func (d *Device) ended(o *op) {
	if d.streams.Err != nil || o.out > 0 || o.next < len(o.spans) {
		return
	}
	if d.config.Trace != nil {
		t := gpu.Transfer{
			Stream: o.stream.Name, Label: o.label, Copies: len(o.copies), Bytes: o.bytes,
			Submit: o.submitted, Start: o.start, End: d.Now(),
		}
		d.config.Trace(t)
	}
	d.pass(o.stream)
}

// pass ends the head of a stream and goes on with what is behind it.
func (d *Device) pass(st *stream) {
	var list [8]*stream
	for _, next := range append(d.finish(st, list[:0]), st) {
		d.advance(next)
	}
}

// runKernel runs the function of a kernel without mu. A kernel that panics ends the
// process, as any goroutine.
func (d *Device) runKernel(o *op) {
	if o.run != nil {
		o.run(d.kernelBytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams.Err == nil {
		d.pass(o.stream)
	}
}

// kernelBytes is what kernels see of memory.
// A kernel that asks for a slot which is no page, or not one piece, is a bug of the host.
func (d *Device) kernelBytes(s gpu.Slot) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.within(s, 0, 0); err != nil {
		panic("host: kernel: " + err.Error())
	}
	p := d.pools[s.Pool]
	if !p.whole(s.Tier) {
		panic("host: kernel: " + s.String() + " lies in several tensors")
	}
	return p.page(s.Tier, s.Page)
}

// finish takes the head of a stream that has ended: its ticket has passed. Streams whose
// head has waited for it are appended to streams.
func (d *Device) finish(st *stream, streams []*stream) []*stream {
	o := st.Queue.Pop()
	st.Done = o.seq
	d.pending -= 1 + len(o.copies)
	// Records are reused: they would keep alive what they refer to.
	clear(o.spans)
	o.run = nil
	d.free = append(d.free, o)
	kept := st.waiters[:0]
	for _, w := range st.waiters {
		switch {
		case w.seq > st.Done:
			kept = append(kept, w)
		case w.sleeper != nil:
			delete(d.syncs, w.sleeper)
			close(w.sleeper.passed)
		default:
			if w.op.unmet--; w.op.unmet == 0 {
				streams = append(streams, w.op.stream)
			}
		}
	}
	clear(st.waiters[len(kept):])
	st.waiters = kept
	return streams
}
