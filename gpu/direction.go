package gpu

import (
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// Direction is the way a copy takes. Each direction has an engine of its own
// on a device: copies of one direction queue behind one another, copies of
// different directions overlap.
type Direction uint8

// The directions.
const (
	Offload    Direction = iota // device to host
	Onboard                     // host to device
	Local                       // device to device
	Directions                  // their number, for arrays by direction
)

var directionNames = [Directions]string{"offload", "onboard", "copy"}

// String names the direction: offload, onboard, copy.
func (d Direction) String() string {
	if d >= Directions {
		return fmt.Sprintf("direction(%d)", uint8(d))
	}
	return directionNames[d]
}

// ParseDirection is the inverse of String. The error lists the names that there are.
func ParseDirection(name string) (Direction, error) {
	for d, n := range directionNames {
		if n == name {
			return Direction(d), nil
		}
	}
	return 0, fmt.Errorf("gpu: no direction %q (there are offload, onboard, copy)", name)
}

// Direction tells which way a copy goes; ok is false for a copy from host
// memory to host memory, which devices refuse.
func (c Copy) Direction() (d Direction, ok bool) {
	switch {
	case c.Src.Tier == messages.Primary && c.Dst.Tier == messages.Secondary:
		return Offload, true
	case c.Src.Tier == messages.Secondary && c.Dst.Tier == messages.Primary:
		return Onboard, true
	case c.Src.Tier == messages.Primary && c.Dst.Tier == messages.Primary:
		return Local, true
	default:
		return 0, false
	}
}

// Follows tells whether c continues prev in memory on both sides, so that one
// descriptor can move both; pages of a pool and tier lie one behind the other.
// The sizes are those of the pages of c's source and destination pools.
func (c Copy) Follows(prev Copy, size PageSizes) bool {
	return c.Zero == prev.Zero && c.Src.Pool == prev.Src.Pool && c.Src.Tier == prev.Src.Tier &&
		c.Dst.Pool == prev.Dst.Pool && c.Dst.Tier == prev.Dst.Tier &&
		int64(c.Src.Page)*size.Src+c.SrcOffset == int64(prev.Src.Page)*size.Src+prev.SrcOffset+
			prev.Bytes &&
		int64(c.Dst.Page)*size.Dst+c.DstOffset == int64(prev.Dst.Page)*size.Dst+prev.DstOffset+prev.Bytes
}

// PageSizes are the page sizes of the two pools of a copy, in bytes.
type PageSizes struct{ Src, Dst int64 }

// Each yields the pages that a copy consists of: those of a run in ascending
// order, else the copy itself.
func (c Copy) Each(yield func(Copy) bool) {
	if c.Pages <= 1 {
		yield(c)
		return
	}
	page := Copy{Src: c.Src, Dst: c.Dst, Bytes: c.Bytes / int64(c.Pages), Zero: c.Zero}
	for range c.Pages {
		if !yield(page) {
			return
		}
		page.Src.Page++
		page.Dst.Page++
	}
}

// Count is the number of pages that a copy touches on each side.
func (c Copy) Count() int { return int(max(1, c.Pages)) }

// Where names the pages of a copy: those of a run as [first, end).
func (c Copy) Where() string {
	if c.Pages <= 1 {
		return fmt.Sprintf("page %d to page %d", c.Src.Page, c.Dst.Page)
	}
	n := messages.PageID(c.Pages)
	return fmt.Sprintf("pages [%d, %d) to pages [%d, %d)", c.Src.Page, c.Src.Page+n, c.Dst.Page,
		c.Dst.Page+n)
}

// String names the slot: pool, tier and page.
func (s Slot) String() string {
	return fmt.Sprintf("pool %d %s page %d", s.Pool, s.Tier, s.Page)
}

// Check refuses a copy that no device can do: one from host to host, one
// without bytes, one that leaves its pages, about which the device is asked, a
// run of anything but whole pages, zeros that have a source. Devices call it in
// Submit before anything is queued, and put the batch, the stream and the index of the copy before
// the error.
func (c Copy) Check(within func(s Slot, offset, bytes int64) error) error {
	if _, ok := c.Direction(); !ok {
		return fmt.Errorf("from %s to %s: devices do not copy from host to host", c.Src, c.Dst)
	}
	if c.Bytes <= 0 {
		return fmt.Errorf("from %s to %s: %d bytes", c.Src, c.Dst, c.Bytes)
	}
	if c.Zero && (c.Src != c.Dst || c.SrcOffset != c.DstOffset || c.Dst.Tier != messages.Primary) {
		return fmt.Errorf("from %s to %s: zeros are written to device memory and have no source", c.Src,
			c.Dst)
	}
	if c.Pages > 1 {
		return c.checkRun(within)
	}
	if err := within(c.Src, c.SrcOffset, c.Bytes); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if err := within(c.Dst, c.DstOffset, c.Bytes); err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	return nil
}

// checkRun refuses a run of anything but whole pages. Whether pages are whole is asked
// of the device: a page that takes one byte more than the run has of it is not.
func (c Copy) checkRun(within func(s Slot, offset, bytes int64) error) error {
	n := int64(c.Pages)
	if c.SrcOffset != 0 || c.DstOffset != 0 || c.Bytes%n != 0 {
		return fmt.Errorf("%s: a run of %d bytes at %d and %d is not of whole pages", c.Where(), c.Bytes,
			c.SrcOffset, c.DstOffset)
	}
	for _, first := range []Slot{c.Src, c.Dst} {
		last := first
		last.Page += messages.PageID(c.Pages) - 1
		for _, s := range []Slot{first, last} {
			if err := within(s, 0, c.Bytes/n); err != nil {
				return fmt.Errorf("%s: %w", c.Where(), err)
			}
		}
		if within(first, 0, c.Bytes/n+1) == nil {
			return fmt.Errorf("%s: a run of %d bytes of each page, which has more", c.Where(), c.Bytes/n)
		}
	}
	return nil
}
