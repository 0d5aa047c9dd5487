package gpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Overlaps finds copies of a batch that touch the same bytes although the
// copies of a batch have no order among themselves. It keeps its buffer, so
// that a device which checks each batch allocates nothing; the zero value is
// ready.
type Overlaps struct{ spans []span }

// span is one side of a copy.
type span struct {
	slot   uint64 // pool, tier, page packed: equal for equal slots
	lo, hi int64
	copy   int32
	dst    bool
}

// compare orders by slot, then by where the span begins.
func (s span) compare(b span) int {
	if s.slot != b.slot {
		return cmp.Compare(s.slot, b.slot)
	}
	if s.lo != b.lo {
		return cmp.Compare(s.lo, b.lo)
	}
	return cmp.Compare(s.copy, b.copy)
}

// Find reports a destination that overlaps another destination or a source;
// nil when there is none. It sorts: n log n for n copies.
func (o *Overlaps) Find(copies []Copy) error {
	o.spans = o.spans[:0]
	for i := range copies {
		for c := range copies[i].Each {
			if !c.Zero {
				o.spans = append(o.spans, span{c.Src.key(), c.SrcOffset, c.SrcOffset + c.Bytes, int32(i), false})
			}
			o.spans = append(o.spans, span{c.Dst.key(), c.DstOffset, c.DstOffset + c.Bytes, int32(i), true})
		}
	}
	slices.SortFunc(o.spans, span.compare)
	// Of the spans passed, the one that reaches furthest, and the furthest
	// destination: any overlap with the rest is an overlap with these.
	var far, farDst *span
	for i := range o.spans {
		s := &o.spans[i]
		if far == nil || far.slot != s.slot {
			far, farDst = s, nil
			if s.dst {
				farDst = s
			}
			continue
		}
		if s.dst && s.lo < far.hi {
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

func overlap(a, b *span) error {
	slot := Slot{Pool: Pool(a.slot >> 33), Tier: messages.Tier(a.slot >> 32 & 1), Page: messages.PageID(a.slot)}
	return fmt.Errorf("gpu: copies %d and %d of the batch overlap: %s bytes [%d, %d) as %s and [%d, %d) as %s",
		a.copy, b.copy, slot, a.lo, a.hi, a.side(), b.lo, b.hi, b.side())
}

func (s *span) side() string {
	if s.dst {
		return "destination"
	}
	return "source"
}

// key packs a slot so that spans sort and compare as numbers.
func (s Slot) key() uint64 {
	return uint64(uint32(s.Pool))<<33 | uint64(s.Tier)<<32 | uint64(uint32(s.Page))
}
