//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"runtime"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// block sits in the driver until an event has passed.
func (d *Device) block(event uintptr) result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := d.driver.call(fnCtxSetCurrent, d.context); r != success {
		return r
	}
	return d.driver.call(fnEventSynchronize, event)
}

// Submit queues a batch: the waits, one call for all copies, the ticket. A
// batch that breaks a rule is refused as a whole before the driver sees it.
func (d *Device) Submit(id gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	if err := d.enter(); err != nil {
		return gpu.Ticket{}, err
	}
	defer d.leave()
	s, err := d.stream(id)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checkBatch(b); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q on stream %s: %w", b.Label, s.name, err)
	}
	pages := 0
	for i := range b.Copies {
		pages += b.Copies[i].Count()
	}
	if err := d.lists.grow(pages); err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.waitFor(s, b.Waits); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q: %w", b.Label, err)
	}
	queued, failed := d.queueAll(s, b)
	if failed != nil && queued == 0 {
		return gpu.Ticket{}, failed
	}
	ticket, err := d.ticket(id, s)
	if failed != nil {
		return ticket, failed
	}
	return ticket, err
}

// checkBatch refuses what no device would do.
func (d *Device) checkBatch(b *gpu.Batch) error {
	for _, t := range b.Waits {
		if err := d.known(t); err != nil {
			return err
		}
	}
	for i := range b.Copies {
		if err := b.Copies[i].Check(d.checkRange); err != nil {
			return fmt.Errorf("copy %d: %w", i, err)
		}
	}
	return d.overlaps.Find(b.Copies)
}

func (d *Device) checkRange(s gpu.Slot, offset, bytes int64) error {
	p, err := d.pool(s.Pool)
	if err != nil {
		return err
	}
	pages := p.spec.DevicePages
	if s.Tier == messages.Secondary {
		pages = p.spec.HostPages
	}
	if s.Page < 0 || int(s.Page) >= pages {
		return fmt.Errorf("pool %s has no %s page %d: it has %d", p.spec.Name, s.Tier, s.Page, pages)
	}
	if offset < 0 || offset > p.spec.PageBytes-bytes {
		return fmt.Errorf("bytes [%d, %d) leave %s page %d of pool %s: it has %d bytes",
			offset, offset+bytes, s.Tier, s.Page, p.spec.Name, p.spec.PageBytes)
	}
	return nil
}

// queueAll queues a batch stretch by stretch: one call for each stretch of copies,
// one for each page of zeros. It returns how many descriptors are queued.
func (d *Device) queueAll(s *stream, b *gpu.Batch) (queued int, failed *gpu.CopyError) {
	for from, to := 0, 0; from < len(b.Copies); from = to {
		for to = from + 1; to < len(b.Copies) && b.Copies[to].Zero == b.Copies[from].Zero; to++ {
		}
		d.describe(b.Copies, from, to)
		queue := d.copyAll
		if b.Copies[from].Zero {
			queue = d.zeroAll
		}
		n, failed := queue(s, b)
		queued += n
		if failed != nil {
			return queued, failed
		}
	}
	return queued, nil
}

// zeroAll fills the destinations in the lists with zeros.
func (d *Device) zeroAll(s *stream, b *gpu.Batch) (queued int, failed *gpu.CopyError) {
	l := &d.lists
	s.dirty = true
	for i := range l.used {
		if r := d.driver.call(fnMemsetD8Async, uintptr(l.dst[i]), 0, uintptr(l.size[i]), s.handle); r != success {
			return i, d.copyFailed(b, i, d.failure(fnMemsetD8Async, r, d.page(b, i)))
		}
	}
	return l.used, nil
}

// describe fills the lists with the copies [from, to) of a batch, neighbours merged
// but for those that would cross two registered pieces of host memory.
func (d *Device) describe(copies []gpu.Copy, from, to int) {
	l := &d.lists
	l.used = 0
	var prev gpu.Copy
	for i := from; i < to; i++ {
		for c := range copies[i].Each {
			if n := l.used; n > 0 && d.mergeable(&c, &prev) {
				l.size[n-1] += uint64(c.Bytes)
				prev = c
				continue
			}
			l.dst[l.used] = d.addressOf(c.Dst, c.DstOffset)
			l.src[l.used] = d.addressOf(c.Src, c.SrcOffset)
			l.size[l.used] = uint64(c.Bytes)
			l.first[l.used] = int32(i)
			l.used++
			prev = c
		}
	}
}

func (d *Device) mergeable(c, prev *gpu.Copy) bool {
	src, dst := d.pools[c.Src.Pool], d.pools[c.Dst.Pool]
	return c.Follows(*prev, gpu.PageSizes{Src: src.spec.PageBytes, Dst: dst.spec.PageBytes}) &&
		src.piece(c.Src) == src.piece(prev.Src) && dst.piece(c.Dst) == dst.piece(prev.Dst)
}

// copyAll queues the copies in the lists and tells how many descriptors are
// queued. A refused batch call leaves open what it has queued, so the copies are
// queued again one by one: done twice they give the same bytes, and the one that
// fails shows itself.
func (d *Device) copyAll(s *stream, b *gpu.Batch) (queued int, failed *gpu.CopyError) {
	l := &d.lists
	if l.used == 0 {
		return 0, nil
	}
	s.dirty = true
	if l.used > 1 && d.driver.has(fnMemcpyBatchAsync) {
		d.out.attr = copyAttributes{srcAccessOrder: streamOrder}
		d.out.attrIdx, d.out.failIdx = 0, math.MaxUint64
		r := d.driver.call(fnMemcpyBatchAsync, address(&l.dst[0]), address(&l.src[0]), address(&l.size[0]),
			uintptr(l.used), address(&d.out.attr), address(&d.out.attrIdx), 1, address(&d.out.failIdx), s.handle)
		if r == success {
			return l.used, nil
		}
		if r.sticky() {
			at := 0
			if d.out.failIdx < uint64(l.used) {
				at = int(d.out.failIdx)
			}
			return at, d.copyFailed(b, at, d.failure(fnMemcpyBatchAsync, r, d.page(b, at)))
		}
	}
	for i := range l.used {
		r := d.driver.call(fnMemcpyAsync, uintptr(l.dst[i]), uintptr(l.src[i]), uintptr(l.size[i]), s.handle)
		if r != success {
			return i, d.copyFailed(b, i, d.failure(fnMemcpyAsync, r, d.page(b, i)))
		}
	}
	return l.used, nil
}

// page says which pages descriptor i is about.
func (d *Device) page(b *gpu.Batch, i int) string {
	c := &b.Copies[d.lists.first[i]]
	return fmt.Sprintf("pool %s %s to pool %s %s, %s",
		d.pools[c.Src.Pool].spec.Name, c.Src.Tier, d.pools[c.Dst.Pool].spec.Name, c.Dst.Tier, c.Where())
}

func (d *Device) copyFailed(b *gpu.Batch, descriptor int, cause error) *gpu.CopyError {
	i := int(d.lists.first[descriptor])
	return &gpu.CopyError{Index: i, Copy: b.Copies[i], Err: fmt.Errorf("%w: %w", gpu.ErrCopyFailed, cause)}
}
