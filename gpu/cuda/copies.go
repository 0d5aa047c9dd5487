//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"

	"github.com/kvactor/kvactor/gpu"
)

// attempts is what the device knows of a call that moves many copies, which it can also do one
// by one.
type attempts struct {
	usable bool
	// refusals counts refused calls in a row whose copies were then taken one by
	// one. The call is not tried again after maxRefusals: it would double the
	// work of each submission.
	refusals int
}

// maxRefusals: a few in a row are chance; a driver that refuses eight has a reason that
// stays.
const maxRefusals = 8

// copyQueue queues the copies of one batch at a time, under the device's lock.
type copyQueue struct {
	lists   lists
	batches attempts // of cuMemcpyBatchAsync: thousands of copies in one call of the driver
	kernel  kernel
	listed  int // pieces in the lists that the kernel takes
}

// prepare describes the copies of a batch. Where there is a batch call, neighbours are merged,
// unless all pieces stay within the device and the kernel takes them: for it a long one is no
// better than short ones.
func (q *copyQueue) prepare(pools []*pool, copies []gpu.Copy) error {
	if err := q.lists.describe(pools, copies); err != nil {
		return err
	}
	local := q.countListed()
	if q.batches.usable && (local < q.lists.used || local < q.kernel.fewest) {
		q.lists.merge()
		q.countListed()
	}
	return nil
}

// free gives the memory of the lists back.
func (q *copyQueue) free() {
	q.lists.free()
	q.kernel.free()
}

// submit queues the descriptors in the lists. queued tells whether anything
// may be queued, so that a ticket must cover it.
//
// A refused batch call leaves open what is queued, and its descriptors are not in
// the order of the batch. So the copies are queued again in that order, one by
// one: done twice they give the same bytes, and the first that fails shows itself.
// Where there is no batch call they are in that order from the beginning.
//
// The kernel's pieces go first: the copies of a batch have no order among themselves.
//
// After a refusal because of a capture nothing is queued again: copies that are
// queued one by one on a capturing stream become part of the host's graph (the
// same mistake: rmm pull request 2518).
func (q *copyQueue) submit(
	s *session, st *stream, pools []*pool, b *gpu.Batch,
) (queued bool, failed *gpu.CopyError) {
	l := &q.lists
	if len(b.Copies) == 0 {
		return false, nil
	}
	st.dirty = true
	launched, r := q.launchListed(s, st)
	if r.sticky() || r.capture() {
		return launched, q.failed(b, 0, s.failure(fnLaunchKernel, r, q.page(pools, b, 0)))
	}
	if r != success {
		if failed = q.inOrder(s, st, pools, b); failed == nil {
			q.kernel.refused(r)
		}
		return true, failed
	}
	begun := launched || q.occupy(s, st)
	// A single copy gains nothing from a batch call.
	if q.batches.usable && l.used > 1 {
		at, r := q.callBatch(s, st)
		if r.sticky() || r.capture() {
			return begun, q.failed(b, at, s.failure(fnMemcpyBatchAsync, r, q.page(pools, b, at)))
		}
		if r != success {
			if failed = q.inOrder(s, st, pools, b); failed == nil {
				q.batches.refused(r)
			}
			return true, failed
		}
		// Refusals count in a row.
		q.batches.refusals = 0
	} else {
		for i := range l.used {
			f, r := s.queueOne(st, l.at(i))
			if r == success {
				continue
			}
			// Pieces of copies behind the refused one may be in a launch.
			if launched && !r.sticky() && !r.capture() {
				return true, q.inOrder(s, st, pools, b)
			}
			// The descriptors are in the order of the batch here, so those before i are queued.
			return begun || i > 0, q.failed(b, i, s.failure(f, r, q.page(pools, b, i)))
		}
	}
	for _, e := range l.zeros {
		if _, r := s.queueOne(st, e); r != success {
			return true, q.inOrder(s, st, pools, b)
		}
	}
	return true, nil
}

// byProcessor is the size below which the driver moves a piece to the device by the processor,
// if the stream has nothing to do: it writes the bytes itself, at 3 to 5 GB/s, and so the stream
// has nothing to do when it comes to the next piece either (measured with driver 580; others
// have published the boundary).
const byProcessor = 28 << 10

// occupy gives the stream something to do before small pieces, so that they go by the copy
// engine: with pieces of 24 KiB that is five times as fast, and takes a tenth of the processor's
// time. It writes the value that the stream's counter has when everything before has passed, so
// that nothing changes. A single piece is best left to the processor. queued tells whether a
// ticket must cover the write.
func (q *copyQueue) occupy(s *session, st *stream) (queued bool) {
	progress, l := &s.d.progress, &q.lists
	if !progress.counted() || l.used < 2 {
		return false
	}
	for i := range l.used {
		if l.way[i] == gpu.Onboard && l.size[i] < byProcessor {
			// A refusal that matters is met again by the copies.
			at := progress.counter(st.place)
			return s.call(fnStreamWriteValue64, st.handle, at, uintptr(st.last), 0) == success
		}
	}
	return false
}

// callBatch queues all descriptors in one call. After a refusal at is the
// descriptor that the driver names, or the first.
// The lists are not read by the driver after the call has returned.
func (q *copyQueue) callBatch(s *session, st *stream) (at int, r result) {
	l := &q.lists
	// Sources are read in the order of the stream: later work of the stream may overwrite them.
	s.out.attr = copyAttributes{srcAccessOrder: streamOrder}
	// One set of attributes, from copy 0 on. The driver leaves failIdx as it is for an error
	// that is of no single copy.
	s.out.attrIdx, s.out.failIdx = 0, math.MaxUint64
	r = s.call(fnMemcpyBatchAsync, address(&l.dst[0]), address(&l.src[0]), address(&l.size[0]),
		uintptr(l.used), address(&s.out.attr), address(&s.out.attrIdx), 1, address(&s.out.failIdx),
		st.handle)
	if r != success && s.out.failIdx < uint64(l.used) {
		at = int(s.out.failIdx)
	}
	return at, r
}

// refused notes that the driver refuses a call whose copies it takes.
// A function that is not supported will not be supported later.
func (c *attempts) refused(r result) {
	c.refusals++
	if r == notSupported || c.refusals >= maxRefusals {
		c.usable = false
	}
}

// queueOne queues one descriptor and tells by which function.
func (s *session) queueOne(st *stream, e descriptor) (fn, result) {
	// Zeros are no copy: no memory of zeros has to be read.
	if e.src == 0 {
		return fnMemsetD8Async, s.call(fnMemsetD8Async, uintptr(e.dst), 0, uintptr(e.size), st.handle)
	}
	return fnMemcpyAsync, s.call(fnMemcpyAsync, uintptr(e.dst), uintptr(e.src), uintptr(e.size),
		st.handle)
}

// inOrder queues the copies of a batch one by one in its order. When one is
// refused it waits for the stream: what an earlier attempt may have queued of the
// copies after it has then passed, and no copy writes to their pages any more.
// The wait is for this rare case alone.
func (q *copyQueue) inOrder(s *session, st *stream, pools []*pool, b *gpu.Batch) *gpu.CopyError {
	if err := q.lists.describe(pools, b.Copies); err != nil {
		return q.failed(b, 0, err)
	}
	for i := range q.lists.used {
		if f, r := s.queueOne(st, q.lists.at(i)); r != success {
			cause := s.failure(f, r, q.page(pools, b, i))
			if r := s.call(fnStreamSynchronize, st.handle); r != success && !r.capture() {
				s.d.markLost(s.failure(fnStreamSynchronize, r, st.String()))
			}
			return q.failed(b, i, cause)
		}
	}
	return nil
}

// page says which pages descriptor i is about.
// It is for the text of errors.
func (q *copyQueue) page(pools []*pool, b *gpu.Batch, i int) string {
	c := &b.Copies[q.lists.first[i]]
	return fmt.Sprintf("pool %s %s to pool %s %s, %s",
		pools[c.Src.Pool].spec.Name, c.Src.Tier, pools[c.Dst.Pool].spec.Name, c.Dst.Tier, c.Where())
}

// failed makes the error of a refused descriptor: the first of its copies.
func (q *copyQueue) failed(b *gpu.Batch, descriptor int, cause error) *gpu.CopyError {
	// After a merge the descriptor may stand for several copies; the first is named.
	i := int(q.lists.first[descriptor])
	return &gpu.CopyError{Index: i, Copy: b.Copies[i], Err: fmt.Errorf("%w: %w", gpu.ErrCopyFailed,
		cause)}
}
