// Package transfer has the fields of a copy between pages, which is said twice on its way:
// the offloader plans it between the pools of an engine, and a device makes it between the
// pools that it has given handles of. The two name pools by types of their own, so that one
// is never taken for the other, and add their own methods to these types.
package transfer

import "github.com/kvactor/kvactor/messages"

// Slot is the memory of one page. What a slot's bytes mean changes with its owners;
// ordering is a matter of slots, never of contents.
type Slot[Pool ~int32] struct {
	Pool Pool
	Tier messages.Tier
	Page messages.PageID
}

// Copy moves Bytes from one slot to another. It may not leave either page, unless it is a
// run.
type Copy[Slot comparable] struct {
	Src, Dst             Slot
	SrcOffset, DstOffset int64
	Bytes                int64 // of all pages
	// Pages above 1 make it a run: so many whole pages, from Src on to those from
	// Dst on, which lie one behind the other on both sides, in one descriptor.
	Pages int32
	// Zero writes zero bytes to Dst and reads nothing. Src is then the same as Dst,
	// a device page, and so are the offsets.
	Zero bool
}
