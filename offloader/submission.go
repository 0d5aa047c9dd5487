package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/transfer"
)

// Lane is one of the copy streams. One stream for each direction fills the link. There
// are two from host to device, because sequences wait for these copies: a Move with
// more than a slice of onboards uses the second, so that a later Move with a page or
// two waits for at most one slice.
type Lane uint8

// The lanes.
const (
	Offload   Lane = iota // device to host
	Onboard               // host to device
	Duplicate             // device to device
	Bulk                  // host to device, much at once
	lanes
)

var laneNames = [lanes]string{"offload", "onboard", "copy", "bulk"}

// String names the lane.
func (l Lane) String() string { return laneNames[l] }

// Slot is the memory of one page of a pool of the engine.
type Slot transfer.Slot[messages.PoolID]

// String gives tier and number.
func (s Slot) String() string { return fmt.Sprintf("%d/%s %d", s.Pool, s.Tier, s.Page) }

// Copy moves bytes from one slot to another, or whole pages of a run that begins there.
type Copy transfer.Copy[Slot]

// extend adds a whole page to either end of a run, and tells whether it could: the page
// must adjoin the run in the same direction at source and destination.
//
// Both ends are tried, as sequences release their pages from the last on, so that victims
// often come in descending order. A page that adjoins at one end only cannot be added.
func (c *Copy) extend(src, dst Slot, pageBytes int64) bool {
	n := messages.PageID(max(1, c.Pages))
	switch {
	case src.Pool != c.Src.Pool || src.Tier != c.Src.Tier || dst.Tier != c.Dst.Tier:
		return false
	case src.Page == c.Src.Page+n && dst.Page == c.Dst.Page+n:
	case src.Page == c.Src.Page-1 && dst.Page == c.Dst.Page-1:
		c.Src, c.Dst = src, dst
	default:
		return false
	}
	c.Pages = int32(n) + 1
	c.Bytes += pageBytes
	return true
}

// Submission is a batch of copies for one lane, to be queued after all Waits. No
// destination overlaps another destination or a source, so the order of the copies does
// not matter. It belongs to the offloader and is valid until the next call.
//
// Without an order between the copies, the device may use several copy engines or one call
// for all of them.
//
// Waits may name the lane's own stream, for which a device does not wait.
type Submission struct {
	Lane   Lane
	Waits  []messages.Ticket
	Copies []Copy
}

// Next returns the next submission of the current work, or nil when everything is
// submitted. Submitted must be called before the next Next.
//
// A batch may be empty, if the copies to all of its sources have failed.
func (o *Offloader) Next() *Submission {
	o.expect(planned, "Next")
	for o.cursor < len(o.items) {
		o.collect()
		if len(o.sub.Copies) > 0 {
			o.sub.Waits = o.ledger.withoutPassed(o.sub.Waits)
			o.phase = submitted
			return &o.sub
		}
		o.cursor = o.resume
	}
	return nil
}

// Submitted reports what the device did with the last submission. With failed < 0 all
// copies are queued and done at ticket. Otherwise the device refused the copy with this
// index, the copies before it are queued and done at ticket, and the copies after it
// are submitted again. If the refused copy is a run, its pages are submitted again one
// by one, so that only the pages fail that cannot be copied; the device may have queued
// some of them already, which are then done at ticket.
func (o *Offloader) Submitted(ticket messages.Ticket, failed int) {
	o.expect(submitted, "Submitted")
	o.phase = planned
	if failed >= len(o.sub.Copies) {
		panic(fmt.Sprintf("offloader: copy %d of %d failed", failed, len(o.sub.Copies)))
	}
	if ticket.IsZero() && failed != 0 {
		panic(fmt.Sprintf("offloader: copies on lane %s are queued without a ticket", o.sub.Lane))
	}
	o.cursor = o.resume
	queued := len(o.batch)
	if failed >= 0 {
		queued = int(o.owners[failed])
		o.refused(failed, ticket)
	}
	for _, index := range o.batch[:queued] {
		o.record(&o.items[index], ticket)
	}
	o.mustCheck()
}

// refused makes the work go on behind a copy that the device has refused, or, if that is a run,
// with its pages, one by one. The ticket is recorded for every page that the device may have
// queued: waiting for a page that was not copied is harmless, not waiting for one that was is not.
func (o *Offloader) refused(failed int, ticket messages.Ticket) {
	first := int(o.owners[failed])
	it := &o.items[o.batch[first]]
	o.cursor = int(o.batch[first])
	pages := int(o.sub.Copies[failed].Pages)
	if pages <= 1 {
		it.failed = true
		o.cursor++
		if failed > 0 && int(o.owners[failed-1]) == first { // pieces before it are queued
			o.record(it, ticket)
		}
		o.ledger.slot(it.dst).failed = o.number
		return
	}
	for _, index := range o.batch[first : first+pages] {
		it := &o.items[index]
		it.alone = true
		if !ticket.IsZero() {
			o.record(it, ticket)
		}
	}
}

// record adds a queued transfer to the ledger.
//
// The write replaces the reads before it, for which wait has made the submission wait. A
// destination that failed before in this work holds defined bytes again.
func (o *Offloader) record(it *item, ticket messages.Ticket) {
	o.ledger.read(it.src, ticket)
	o.ledger.write(it.dst, ticket)
	o.ledger.slot(it.dst).failed = 0
}

// collect fills sub with the next items of one lane. The submission ends before an item
// of another lane, at a full slice, and before an item that conflicts with the batch:
// one that touches a page that the batch writes, or writes a page that it reads.
//
// The batch marks in the records make each test for a conflict O(1). Without it a
// submission could read bytes that it writes.
func (o *Offloader) collect() {
	o.batchNo++
	lane := o.items[o.cursor].lane
	o.sub.Lane = lane
	o.sub.Waits, o.sub.Copies = o.sub.Waits[:0], o.sub.Copies[:0]
	o.batch, o.owners = o.batch[:0], o.owners[:0]
	var bytes int64
	o.resume = o.cursor
	for ; o.resume < len(o.items); o.resume++ {
		it := &o.items[o.resume]
		src, dst := o.ledger.slot(it.src), o.ledger.slot(it.dst)
		size := o.cfg.Pools[it.pool].bytes(it.tokens)
		if it.lane != lane || src.writeBatch == o.batchNo || dst.writeBatch == o.batchNo ||
			dst.readBatch == o.batchNo {
			return
		}
		if bytes > 0 && bytes+size > o.cfg.SliceBytes {
			return
		}
		if src.failed == o.number {
			// A copy to its source failed, so its bytes would be undefined.
			it.failed = true
			dst.failed = o.number
			continue
		}
		// Marked before the next item is looked at, so that items of one batch are compared.
		src.readBatch, dst.writeBatch = o.batchNo, o.batchNo
		bytes += size
		o.wait(it, src, dst)
		o.batch = append(o.batch, int32(o.resume))
		if o.extendRun(it, size) {
			continue
		}
		o.sub.Copies = o.cfg.Pools[it.pool].cut(o.sub.Copies, it)
		for len(o.owners) < len(o.sub.Copies) {
			o.owners = append(o.owners, int32(len(o.batch))-1)
		}
	}
}

// extendRun adds a whole page to the run of the item before it, if they adjoin.
//
// Only the last copy is tried. A search of all would find few more runs, since pages are
// released, taken and sorted in order.
func (o *Offloader) extendRun(it *item, pageBytes int64) bool {
	if len(o.batch) < 2 || it.alone || !o.cfg.Pools[it.pool].whole(it.tokens) {
		return false
	}
	last := &o.items[o.batch[len(o.batch)-2]]
	if last.zero != it.zero || last.alone || !o.cfg.Pools[last.pool].whole(last.tokens) {
		return false
	}
	return o.sub.Copies[len(o.sub.Copies)-1].extend(it.src, it.dst, pageBytes)
}
