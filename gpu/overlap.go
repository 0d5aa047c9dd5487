package gpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Overlaps finds copies of a batch that touch the same bytes although the
// copies of a batch have no order among themselves. It keeps its buffers, so
// that a device which checks each batch allocates nothing; the zero value is
// ready.
type Overlaps struct {
	spans []span
}

// span is one side of a copy of one page.
type span struct {
	slot   uint64 // Slot.key
	lo, hi int64  // bytes [lo, hi) of the page
	copy   int32  // index in the batch
	dst    bool   // it is written
}

// Find reports a destination that overlaps another destination or a source;
// nil when there is none. The error names both copies by their index and the bytes that each
// touches. It sorts both sides of all pages, so n pages cost O(n log n). Devices call it
// for each batch that is submitted.
func (o *Overlaps) Find(copies []Copy) error {
	o.spans = o.spans[:0]
	for i := range copies {
		if copies[i].Pages <= 1 {
			o.add(&copies[i], i)
			continue
		}
		for c := range copies[i].Each {
			o.add(&c, i)
		}
	}
	slices.SortFunc(o.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.lo, b.lo), cmp.Compare(a.copy, b.copy))
	})
	// Of the spans passed, the one that reaches furthest, and the furthest
	// destination: any overlap with the rest is an overlap with these.
	var far, farDst *span
	for i := range o.spans {
		s := &o.spans[i]
		if far == nil || s.slot != far.slot {
			far, farDst = s, nil
		} else if s.dst && s.lo < far.hi {
			return overlap(far, s)
		}
		if farDst != nil && s.lo < farDst.hi {
			return overlap(farDst, s)
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

// add lists both sides of a copy of one page; zeros have no source.
func (o *Overlaps) add(c *Copy, index int) {
	if !c.Zero {
		o.spans = append(o.spans, span{c.Src.key(), c.SrcOffset, c.SrcOffset + c.Bytes, int32(index),
			false})
	}
	o.spans = append(o.spans, span{c.Dst.key(), c.DstOffset, c.DstOffset + c.Bytes, int32(index),
		true})
}

// overlap states which copies share which bytes.
func overlap(a, b *span) error {
	slot := Slot{Pool: Pool(a.slot >> 33), Tier: messages.Tier(a.slot >> 32 & 1),
		Page: messages.PageID(a.slot)}
	return fmt.Errorf(
		"gpu: copies %d and %d of the batch overlap: %s bytes [%d, %d) as %s and [%d, %d) as %s",
		a.copy, b.copy, slot, a.lo, a.hi, a.side(), b.lo, b.hi, b.side())
}

// side names the side of the copy.
func (s *span) side() string {
	if s.dst {
		return "destination"
	}
	return "source"
}

// key packs a slot, so that slots sort and compare as numbers: the pool from bit 33 on, the tier in
// bit 32, the page below.
func (s Slot) key() uint64 {
	return uint64(uint32(s.Pool))<<33 | uint64(s.Tier)<<32 | uint64(uint32(s.Page))
}
