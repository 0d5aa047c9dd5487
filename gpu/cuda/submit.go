//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
)

// Submit queues a batch: the waits, one call for all copies, the ticket. A
// batch that breaks a rule is refused as a whole before the driver sees it.
//
// A thousand scattered pages are five driver calls: context, copies, counter,
// event, context. Each pending ticket in Waits is one more, as is what occupies the
// stream before small pieces, and each launch of the kernel.
// The copies of a batch run in any order, and each page is written by one of them at most.
func (d *Device) Submit(id gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	// The device's lock is held to the end: batches are on a stream in the order of their
	// tickets, and no pool changes its size between the check and the copies.
	s, st, err := d.lockWithStream(id)
	if err != nil {
		return gpu.Ticket{}, err
	}
	defer s.unlock()
	// All is checked before anything is queued, so a refused batch leaves no trace.
	if err := d.checker.Batch(st.name, b); err != nil {
		return gpu.Ticket{}, err
	}
	if err := s.notCapturing(st); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q: %w", b.Label, err)
	}
	// The lists are made before the waits: when memory for them is lacking, nothing is queued.
	if err := d.copies.prepare(d.pools, b.Copies); err != nil {
		return gpu.Ticket{}, err
	}
	if err := d.waitFor(s, st, b.Waits); err != nil {
		return gpu.Ticket{}, fmt.Errorf("batch %q: %w", b.Label, err)
	}
	// Batches that have ended give their events back before this one takes two.
	d.tellEnded(s)
	// Behind the waits on the stream, so that the time of the copies is without them.
	m, measured := d.trace.begin(s, st, b)
	queued, failed := d.copies.submit(s, st, d.pools, b)
	if measured {
		d.trace.end(s, st, &m, failed)
	}
	// Nothing is under way: a ticket would stand for the waits alone.
	if failed != nil && !queued {
		return gpu.Ticket{}, failed
	}
	// Also after a copy that failed: the ticket covers what was queued before it.
	ticket, err := d.ticket(s, st)
	if failed != nil {
		return ticket, failed
	}
	return ticket, err
}

// checkRange refuses bytes that are not in a page of a pool as it is now. The driver
// would not: address space behind the last page may be mapped.
// Page numbers come from the engine; the check costs a comparison for each and finds its
// bugs before they are bytes.
func (d *Device) checkRange(s gpu.Slot, offset, bytes int64) error {
	p, err := d.pool(s.Pool)
	if err != nil {
		return err
	}
	return inprocess.Shape{Name: p.spec.Name, PageBytes: p.spec.PageBytes,
		Pages: [2]int{p.spec.DevicePages, p.spec.HostPages}}.Within(s, offset, bytes)
}
