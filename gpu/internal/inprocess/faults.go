package inprocess

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// Faults counts by direction the pages that are still to fail.
type Faults [gpu.Directions]int

// Accept finds the first copy of a batch that is to fail; those before it are accepted.
// Faults are found at submission, as a driver refuses a copy that it is asked for. What
// was queued before the faulty copy stays queued. A run with a page that is to fail is
// refused as a whole and uses up none.
func (f *Faults) Accept(backend string, b *gpu.Batch) (accepted int, failed error) {
	for i := range b.Copies {
		way, _ := b.Copies[i].Direction()
		if f[way] == 0 {
			continue
		}
		// The single page is what the fault is for; it is used up.
		if b.Copies[i].Pages <= 1 {
			f[way]--
		}
		return i, &gpu.CopyError{Index: i, Copy: b.Copies[i],
			Err: fmt.Errorf("%s: injected fault in %s: %w", backend, way, gpu.ErrCopyFailed)}
	}
	return len(b.Copies), nil
}
