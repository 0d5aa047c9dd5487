//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/tensors"
)

// adopt makes the host application's tensors the device memory of the pool. The
// pool neither frees nor fills them.
func (p *pool) adopt(s *session) error {
	layout, err := tensors.New(&p.spec)
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	for i, t := range p.spec.Tensors {
		if err := p.reachable(s, i, t); err != nil {
			return err
		}
		p.tensorRegions = append(p.tensorRegions, p.d.regions.Add(1))
	}
	switch {
	// The pool cannot grow: there is no memory behind the tensors that is its own.
	case p.spec.MaxDevicePages != p.spec.DevicePages:
		return fmt.Errorf("pool %s: at most %d device pages: %w and has room for %d",
			p.spec.Name, p.spec.MaxDevicePages, ErrAdopted, p.spec.DevicePages)
	case p.spec.Shared:
		return fmt.Errorf("pool %s: shared: %w, which can share it", p.spec.Name, ErrAdopted)
	}
	p.tensors = layout
	return nil
}

// reachable refuses a tensor whose first or last byte is not memory of this
// device: an address of another device or of the host would be copied from and
// to without an error.
func (p *pool) reachable(s *session, i int, t gpu.Tensor) error {
	if p.spec.DevicePages == 0 {
		return nil
	}
	// The first and the last byte are enough: an allocation is contiguous, and one that ended
	// between them could not hold both.
	last := t.Address + uint64(int64(p.spec.DevicePages-1)*t.Stride+t.PageBytes-1)
	for _, at := range []uint64{t.Address, last} {
		on := fmt.Sprintf("pool %s, tensor %d at %#x", p.spec.Name, i, at)
		if err := s.do(fnPointerGetAttribute, on, address(&s.out.small), pointerMemoryType,
			uintptr(at)); err != nil {
			return err
		}
		// The two answers share one word of memory, so the first is kept before the second call.
		kind := s.out.small
		if err := s.do(fnPointerGetAttribute, on, address(&s.out.small), pointerOrdinal,
			uintptr(at)); err != nil {
			return err
		}
		if kind != deviceMemory || s.out.small != p.d.ordinal {
			return fmt.Errorf("cuda: %s: not memory of device %d", on, p.d.ordinal)
		}
	}
	return nil
}

// tensorExtent is the memory of a device page from an offset on.
func (p *pool) tensorExtent(page, offset int64) extent {
	i, at, left := p.tensors.Find(page, offset)
	return extent{at, left, p.tensorRegions[i]}
}
