package offloader

import (
	"fmt"

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

// plan orders the transfers that follow the offloads: copies in the order of the Move, then
// onboards.
func (o *Offloader) plan() {
	in := o.inbound()
	for i := range o.move.Pools {
		for j := range o.move.Pools[i].Copies {
			o.planCopy(messages.PoolID(i), j, in)
		}
	}
	for i := range o.move.Pools {
		for j := range o.move.Pools[i].Onboards {
			on, pool := &o.move.Pools[i].Onboards[j], messages.PoolID(i)
			o.add(item{
				kind: onboarding, lane: in, pool: pool, index: int32(j),
				src: Slot{pool, messages.Secondary, o.hosts[pool].find(on.Block)},
				dst: Slot{pool, messages.Primary, on.To},
			})
		}
	}
}

// add plans a transfer. It panics if one of its pages is none; the device refuses pages that it
// does not have.
func (o *Offloader) add(it item) {
	if it.src.Page < 0 || it.dst.Page < 0 {
		panic(fmt.Sprintf("offloader: copy of page %v to %v", it.src, it.dst))
	}
	o.items = append(o.items, it)
}

// inbound is the lane for the onboards of the Move: Bulk for more than a slice.
//
// All onboards of a Move go to one lane: divided between two streams they would share the
// link and end no earlier.
func (o *Offloader) inbound() Lane {
	bytes := int64(0)
	for i := range o.move.Pools {
		bytes += int64(len(o.move.Pools[i].Onboards)) * o.cfg.Pools[i].PageBytes
	}
	if bytes > o.cfg.SliceBytes {
		return Bulk
	}
	return Onboard
}

// planCopy plans a copy. One from host memory is on the lane of the onboards, so that both can be
// in one submission.
func (o *Offloader) planCopy(pool messages.PoolID, index int, in Lane) {
	c := &o.move.Pools[pool].Copies[index]
	it := item{kind: copying, lane: Duplicate, pool: pool, index: int32(index), zero: c.Zero,
		dst: Slot{pool, messages.Primary, c.To}}
	if c.Zero {
		it.src = it.dst
	} else {
		if c.Tokens <= 0 || c.Tokens > o.cfg.Pools[pool].TokensPerBlock {
			panic(fmt.Sprintf("offloader: pool %s: copy of %d tokens to page %d",
				o.hosts[pool].name, c.Tokens, c.To))
		}
		page, tier, _ := c.From.Page()
		it.src, it.tokens = Slot{pool, tier, page}, int32(c.Tokens)
		if tier == messages.Secondary {
			it.lane = in
		}
	}
	o.add(it)
}
