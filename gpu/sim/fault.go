package sim

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
)

// Fail makes the next n copies of a direction fail when they are submitted.
// Calls add up.
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
		d.failing[way]--
		return i, &gpu.CopyError{Index: i, Copy: b.Copies[i],
			Err: fmt.Errorf("sim: injected fault in %s: %w", way, gpu.ErrCopyFailed)}
	}
	return len(b.Copies), nil
}
