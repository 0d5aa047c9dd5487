package sim

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// Fail makes the next n pages of a direction fail when they are submitted. A run
// with one of them is refused as a whole and has cost none: who wants to know
// which page it was submits them one by one. Calls add up.
func (d *Device) Fail(kind gpu.Direction, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[kind] += n
}

// inject finds the first copy of a batch that is to fail; those before it are
// accepted.
func (d *Device) inject(b *gpu.Batch) (accepted int, failed error) {
	for i := range b.Copies {
		way, _ := b.Copies[i].Direction()
		if d.failing[way] == 0 {
			continue
		}
		if b.Copies[i].Pages <= 1 {
			d.failing[way]--
		}
		return i, &gpu.CopyError{Index: i, Copy: b.Copies[i],
			Err: fmt.Errorf("sim: injected fault in %s: %w", way, gpu.ErrCopyFailed)}
	}
	return len(b.Copies), nil
}
