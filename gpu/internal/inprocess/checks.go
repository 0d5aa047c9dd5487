package inprocess

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// Checker refuses work that no device can do. Its functions are those of the device.
type Checker struct {
	// Known refuses a ticket that no stream has issued.
	Known func(gpu.Ticket) error
	// Within refuses bytes that are not in a page.
	Within   func(s gpu.Slot, offset, bytes int64) error
	overlaps gpu.Overlaps
}

// Batch refuses a batch on the named stream.
func (c *Checker) Batch(stream string, b *gpu.Batch) error {
	for _, t := range b.Waits {
		if err := c.Known(t); err != nil {
			return fmt.Errorf("batch %q on stream %s: %w", b.Label, stream, err)
		}
	}
	for i := range b.Copies {
		if err := b.Copies[i].Check(c.Within); err != nil {
			return fmt.Errorf("batch %q on stream %s: copy %d: %w", b.Label, stream, i, err)
		}
	}
	if err := c.overlaps.Find(b.Copies); err != nil {
		return fmt.Errorf("batch %q on stream %s: %w", b.Label, stream, err)
	}
	return nil
}

// Kernel refuses a kernel that waits for a ticket that was never issued, or that
// touches what is not in a page.
func (c *Checker) Kernel(stream string, k *gpu.Kernel) error {
	for _, t := range k.Waits {
		if err := c.Known(t); err != nil {
			return fmt.Errorf("kernel %q on stream %s: %w", k.Label, stream, err)
		}
	}
	for _, set := range [][]gpu.Access{k.Reads, k.Writes} {
		for i := range set {
			if err := c.Within(set[i].Slot, set[i].Offset, set[i].Bytes); err != nil {
				return fmt.Errorf("kernel %q on stream %s: %w", k.Label, stream, err)
			}
		}
	}
	return nil
}

// Shape is the size of a pool as it is now.
type Shape struct {
	Name      string
	PageBytes int64
	Pages     [2]int // by messages.Tier
}

// Within refuses bytes that are not in a page of the pool: a page that a Resize has
// taken away is no page, whatever its memory holds.
// The end of the range is compared by a difference, since the sum could overflow.
func (p Shape) Within(s gpu.Slot, offset, bytes int64) error {
	if int(s.Tier) >= len(p.Pages) {
		return fmt.Errorf("pool %s has no tier %d", p.Name, s.Tier)
	}
	if pages := p.Pages[s.Tier]; s.Page < 0 || int(s.Page) >= pages {
		return fmt.Errorf("pool %s has no %s page %d: it has %d", p.Name, s.Tier, s.Page, pages)
	}
	if offset < 0 || bytes < 0 || offset > p.PageBytes-bytes {
		return fmt.Errorf("bytes [%d, %d) leave %s page %d of pool %s: it has %d bytes",
			offset, offset+bytes, s.Tier, s.Page, p.Name, p.PageBytes)
	}
	return nil
}

// Touching names pages of a pool and tier from one on.
type Touching struct {
	Pool gpu.Pool
	Tier messages.Tier
	From messages.PageID
}

// slot tells whether a slot is among the pages.
func (t Touching) slot(s gpu.Slot) bool {
	return s.Pool == t.Pool && s.Tier == t.Tier && s.Page >= t.From
}

// side is the last page of one side of a copy, the likeliest to be among t.
func side(s gpu.Slot, c *gpu.Copy) gpu.Slot {
	// Pages that go are at the end, so the last page of a run is compared.
	s.Page += messages.PageID(c.Count()) - 1
	return s
}

// Find finds a page of t that copies and accesses use. Copies tell their pages
// themselves. Of kernels the declared accesses count: a kernel is a Go function, and
// what it touches cannot be seen.
func (t Touching) Find(copies []gpu.Copy, accesses ...[]gpu.Access) (gpu.Slot, bool) {
	for i := range copies {
		c := &copies[i]
		for _, s := range [...]gpu.Slot{side(c.Src, c), side(c.Dst, c)} {
			if t.slot(s) {
				return s, true
			}
		}
	}
	for _, set := range accesses {
		for i := range set {
			if t.slot(set[i].Slot) {
				return set[i].Slot, true
			}
		}
	}
	return gpu.Slot{}, false
}
