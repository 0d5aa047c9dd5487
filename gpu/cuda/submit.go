//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// batchCall is what the device knows of cuMemcpyBatchAsync.
type batchCall struct {
	usable bool
	// refusals counts refused calls in a row whose copies were then taken one by
	// one. The call is not tried again after maxRefusals: it would double the
	// work of each submission.
	refusals int
}

const maxRefusals = 8

// Submit queues a batch: the waits, one call for all copies, the ticket. A
// batch that breaks a rule is refused as a whole before the driver sees it.
//
// A thousand scattered pages are five driver calls: context, copies, counter,
// event, context; each pending ticket in Waits is one more.
func (d *Device) Submit(id gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	s, err := d.enter()
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer s.leave()
	st, err := d.stream(id)
	if err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.checkBatch(b); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q on stream %s: %w", b.Label, st.name, err)
	}
	if err := s.notCapturing(st); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q: %w", b.Label, err)
	}
	if err := d.describe(b.Copies); err != nil {
		return gpu.Ticket{}, err
	}
	d.lists.zeros = d.lists.zeros[:0]
	if d.batches.usable {
		d.mergeNeighbours()
	}
	if err := d.waitFor(s, st, b.Waits); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q: %w", b.Label, err)
	}
	queued, failed := d.queueCopies(s, st, b)
	if failed != nil && !queued {
		return gpu.Ticket{}, failed
	}
	ticket, err := d.ticket(s, st)
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

// checkRange refuses bytes that are not in a page of a pool as it is now. The driver
// would not: address space behind the last page may be mapped.
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

// queueCopies queues the descriptors in the lists. queued tells whether anything
// may be queued, so that a ticket must cover it.
//
// A refused batch call leaves open what is queued, and its descriptors are not in
// the order of the batch. So the copies are queued again in that order, one by
// one: done twice they give the same bytes, and the first that fails shows itself.
// Where there is no batch call they are in that order from the beginning.
//
// After a refusal because of a capture nothing is queued again: copies that are
// queued one by one on a capturing stream become part of the host's graph (the
// same mistake: rmm pull request 2518).
func (d *Device) queueCopies(s *session, st *stream, b *gpu.Batch) (queued bool, failed *gpu.CopyError) {
	l := &d.lists
	if len(b.Copies) == 0 {
		return false, nil
	}
	st.dirty = true
	if d.batches.usable && l.used > 1 {
		at, r := d.callBatch(s, st)
		if r.sticky() || r.capture() {
			return false, d.copyFailed(b, at, s.failure(fnMemcpyBatchAsync, r, d.page(b, at)))
		}
		if r != success {
			if failed = d.queueInOrder(s, st, b); failed == nil {
				d.batchRefused(r)
			}
			return true, failed
		}
		d.batches.refusals = 0
	} else {
		for i := range l.used {
			if f, r := s.queueOne(st, l.at(i)); r != success {
				return i > 0, d.copyFailed(b, i, s.failure(f, r, d.page(b, i)))
			}
		}
	}
	for _, e := range l.zeros {
		if _, r := s.queueOne(st, e); r != success {
			return true, d.queueInOrder(s, st, b)
		}
	}
	return true, nil
}

// callBatch queues all descriptors in one call. After a refusal at is the
// descriptor that the driver names, or the first.
func (d *Device) callBatch(s *session, st *stream) (at int, r result) {
	l := &d.lists
	s.out.attr = copyAttributes{srcAccessOrder: streamOrder}
	s.out.attrIdx, s.out.failIdx = 0, math.MaxUint64
	r = s.call(fnMemcpyBatchAsync, address(&l.dst[0]), address(&l.src[0]), address(&l.size[0]),
		uintptr(l.used), address(&s.out.attr), address(&s.out.attrIdx), 1, address(&s.out.failIdx), st.handle)
	if r != success && s.out.failIdx < uint64(l.used) {
		at = int(s.out.failIdx)
	}
	return at, r
}

// batchRefused notes that the driver refuses batches whose copies it takes.
func (d *Device) batchRefused(r result) {
	d.batches.refusals++
	if r == notSupported || d.batches.refusals >= maxRefusals {
		d.batches.usable = false
	}
}

// queueOne queues one descriptor and tells by which function.
func (s *session) queueOne(st *stream, e descriptor) (fn, result) {
	if e.src == 0 {
		return fnMemsetD8Async, s.call(fnMemsetD8Async, uintptr(e.dst), 0, uintptr(e.size), st.handle)
	}
	return fnMemcpyAsync, s.call(fnMemcpyAsync, uintptr(e.dst), uintptr(e.src), uintptr(e.size), st.handle)
}

// queueInOrder queues the copies of a batch one by one in its order. When one is
// refused it waits for the stream: what an earlier attempt may have queued of the
// copies after it has then passed, and no copy writes to their pages any more.
func (d *Device) queueInOrder(s *session, st *stream, b *gpu.Batch) *gpu.CopyError {
	if err := d.describe(b.Copies); err != nil {
		return d.copyFailed(b, 0, err)
	}
	for i := range d.lists.used {
		if f, r := s.queueOne(st, d.lists.at(i)); r != success {
			cause := s.failure(f, r, d.page(b, i))
			if r := s.call(fnStreamSynchronize, st.handle); r != success && !r.capture() {
				d.lose(s.failure(fnStreamSynchronize, r, st.String()))
			}
			return d.copyFailed(b, i, cause)
		}
	}
	return nil
}

// page says which pages descriptor i is about.
func (d *Device) page(b *gpu.Batch, i int) string {
	c := &b.Copies[d.lists.first[i]]
	return fmt.Sprintf("pool %s %s to pool %s %s, %s",
		d.pools[c.Src.Pool].spec.Name, c.Src.Tier, d.pools[c.Dst.Pool].spec.Name, c.Dst.Tier, c.Where())
}

// copyFailed makes the error of a refused descriptor: the first of its copies.
func (d *Device) copyFailed(b *gpu.Batch, descriptor int, cause error) *gpu.CopyError {
	i := int(d.lists.first[descriptor])
	return &gpu.CopyError{Index: i, Copy: b.Copies[i], Err: fmt.Errorf("%w: %w", gpu.ErrCopyFailed, cause)}
}
