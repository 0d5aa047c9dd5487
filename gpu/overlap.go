package gpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/gpu/internal/radix"
	"github.com/kvactor/kvactor/messages"
)

// Overlaps finds copies of a batch that touch the same bytes although the
// copies of a batch have no order among themselves. It keeps its buffers, so
// that a device which checks each batch allocates nothing; the zero value is
// ready.
type Overlaps struct {
	spans  []span
	slots  []uint64 // by span
	order  radix.Order
	sorted []span // those of one slot, in order of where they begin
}

// span is one side of a copy of one page.
type span struct {
	lo, hi int64
	copy   int32
	dst    bool
}

// Find reports a destination that overlaps another destination or a source;
// nil when there is none. It is linear in the number of pages; only several
// spans of one page are sorted.
func (o *Overlaps) Find(copies []Copy) error {
	o.spans, o.slots = o.spans[:0], o.slots[:0]
	for i := range copies {
		if copies[i].Pages <= 1 {
			o.add(&copies[i], i)
			continue
		}
		for c := range copies[i].Each {
			o.add(&c, i)
		}
	}
	order := o.order.By(o.slots)
	for len(order) > 0 {
		slot := o.slots[order[0]]
		n := 1
		for n < len(order) && o.slots[order[n]] == slot {
			n++
		}
		if n > 1 {
			if err := o.within(slot, order[:n]); err != nil {
				return err
			}
		}
		order = order[n:]
	}
	return nil
}

// add lists both sides of a copy of one page; zeros have no source.
func (o *Overlaps) add(c *Copy, index int) {
	if !c.Zero {
		o.spans = append(o.spans, span{c.SrcOffset, c.SrcOffset + c.Bytes, int32(index), false})
		o.slots = append(o.slots, c.Src.key())
	}
	o.spans = append(o.spans, span{c.DstOffset, c.DstOffset + c.Bytes, int32(index), true})
	o.slots = append(o.slots, c.Dst.key())
}

// within looks at the spans of one slot.
func (o *Overlaps) within(slot uint64, list []int32) error {
	o.sorted = o.sorted[:0]
	for _, i := range list {
		o.sorted = append(o.sorted, o.spans[i])
	}
	slices.SortFunc(o.sorted, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.copy, b.copy))
	})
	// Of the spans passed, the one that reaches furthest, and the furthest
	// destination: any overlap with the rest is an overlap with these.
	far := &o.sorted[0]
	farDst := far
	if !far.dst {
		farDst = nil
	}
	for i := 1; i < len(o.sorted); i++ {
		s := &o.sorted[i]
		switch {
		case s.dst && s.lo < far.hi:
			return overlap(slot, far, s)
		case farDst != nil && s.lo < farDst.hi:
			return overlap(slot, farDst, s)
		}
		if s.hi > far.hi {
			far = s
		}
		if s.dst && (farDst == nil || s.hi > farDst.hi) {
			farDst = s
		}
	}
	return nil
}

// overlap states which copies share which bytes.
func overlap(key uint64, a, b *span) error {
	slot := Slot{Pool: Pool(key >> 33), Tier: messages.Tier(key >> 32 & 1), Page: messages.PageID(key)}
	return fmt.Errorf("gpu: copies %d and %d of the batch overlap: %s bytes [%d, %d) as %s and [%d, %d) as %s",
		a.copy, b.copy, slot, a.lo, a.hi, a.side(), b.lo, b.hi, b.side())
}

// side names the side of the copy.
func (s *span) side() string {
	if s.dst {
		return "destination"
	}
	return "source"
}

// key packs a slot, so that slots sort and compare as numbers.
func (s Slot) key() uint64 {
	return uint64(uint32(s.Pool))<<33 | uint64(s.Tier)<<32 | uint64(uint32(s.Page))
}
