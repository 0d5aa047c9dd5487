package offloader

import (
	"fmt"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// itemKind is the reason for a transfer.
type itemKind uint8

const (
	offloading itemKind = iota
	copying
	onboarding
	copyingAhead
	saving
)

// item is one transfer: a page, or the leading tokens of one.
type item struct {
	kind     itemKind
	lane     Lane
	failed   bool // the device refused it, or a copy to its source
	alone    bool // not to be part of a run: the device refused a run that it was part of
	zero     bool // fills dst with zeros; src is the same
	pool     messages.PoolID
	index    int32 // in Victims, Copies or Onboards of the pool's move
	tokens   int32 // leading ones; 0: the whole page
	src, dst Slot
}

// plan orders the transfers that follow the offloads: copies, then onboards.
//
// Within one direction the order of the list is the order of the stream. Copies on the device
// are before the copies from host memory because they belong to another lane, and each
// change of lane ends a submission.
func (o *Offloader) plan() {
	in := o.inbound()
	for i := range o.move.Pools {
		o.planCopies(messages.PoolID(i), o.move.Pools[i].Copies, in)
	}
	o.items = append(o.items, o.deferred...)
	o.deferred = o.deferred[:0]
	for i := range o.move.Pools {
		for j := range o.move.Pools[i].Onboards {
			on, pool := &o.move.Pools[i].Onboards[j], messages.PoolID(i)
			o.items = append(o.items, item{
				kind: onboarding, lane: in, pool: pool, index: int32(j),
				src: Slot{pool, messages.Secondary, o.hosts[pool].find(on.Block)},
				dst: Slot{pool, messages.Primary, on.To},
			})
		}
	}
	// Pages are checked before the first submission, since the ledger indexes by them.
	for i := range o.items {
		o.ledger.mustHold(o.items[i].src)
		o.ledger.mustHold(o.items[i].dst)
	}
}

// inbound is the lane for the onboards of the Move: Bulk for more than a slice.
//
// All onboards of a Move go to one lane: divided between two streams they would share the
// link and end no earlier.
func (o *Offloader) inbound() Lane {
	bytes := int64(0)
	for i := range o.move.Pools {
		bytes += int64(len(o.move.Pools[i].Onboards)) * o.shapes[i].pageBytes
	}
	if bytes > o.cfg.SliceBytes {
		return Bulk
	}
	return Onboard
}

// planCopies plans the copies of a pool in their order, except that copies from host
// memory are deferred until after the copies on the device, so that they share a
// submission with the onboards. A copy whose pages a later copy touches is not
// deferred beyond that one.
//
// batchNo marks the destinations of deferred copies here, not batches: collect counts on with
// it before the first batch, so the two uses never meet.
func (o *Offloader) planCopies(pool messages.PoolID, copies []protocol.PageCopy, in Lane) {
	o.batchNo++
	for i := range copies {
		c := &copies[i]
		if c.Zero {
			to := Slot{pool, messages.Primary, c.To}
			o.items = append(o.items, item{kind: copying, lane: Duplicate, pool: pool, index: int32(i),
				zero: true, src: to, dst: to})
			continue
		}
		if c.Tokens <= 0 || c.Tokens > o.shapes[pool].tokens {
			panic(fmt.Sprintf("offloader: pool %s: copy of %d tokens to page %d",
				o.hosts[pool].name, c.Tokens, c.To))
		}
		page, tier, _ := c.From.Page()
		it := item{
			kind: copying, lane: Duplicate, pool: pool, index: int32(i), tokens: int32(c.Tokens),
			src: Slot{pool, tier, page}, dst: Slot{pool, messages.Primary, c.To},
		}
		o.ledger.mustHold(it.src)
		o.ledger.mustHold(it.dst)
		src, dst := o.ledger.slot(it.src), o.ledger.slot(it.dst)
		// The lane of the onboards, so that both can be in one submission.
		if tier == messages.Secondary {
			it.lane, dst.writeBatch = in, o.batchNo
			o.deferred = append(o.deferred, it)
			continue
		}
		// This copy reads or writes what a deferred copy writes, so the deferred copies go
		// first, in the order that the Move gives.
		if src.writeBatch == o.batchNo || dst.writeBatch == o.batchNo {
			o.items = append(o.items, o.deferred...)
			o.deferred = o.deferred[:0]
			o.batchNo++
		}
		o.items = append(o.items, it)
	}
}
