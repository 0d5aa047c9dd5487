//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"sort"

	"github.com/kvactor/kvactor/gpu"
)

// tensor is a gpu.Tensor with its place in a page.
// The pieces of a page in all tensors, in their order, make up the page: begin of a tensor
// is the sum of PageBytes of those before it.
type tensor struct {
	gpu.Tensor
	begin  int64 // of its piece within a page
	region uint32
}

// adopt makes the host application's tensors the device memory of the pool. The
// pool neither frees nor fills them.
func (p *pool) adopt(s *session) error {
	at := int64(0)
	for i, t := range p.spec.Tensors {
		// A stride below the piece would make neighbouring pages overlap.
		if t.PageBytes <= 0 || t.Stride < t.PageBytes || t.Address == 0 {
			return fmt.Errorf("cuda: pool %s: tensor %d at %#x: %d bytes of each page, %d from one page to the next",
				p.spec.Name, i, t.Address, t.PageBytes, t.Stride)
		}
		if err := p.reachable(s, i, t); err != nil {
			return err
		}
		p.tensors = append(p.tensors, tensor{Tensor: t, begin: at, region: p.d.regions.Add(1)})
		at += t.PageBytes
	}
	switch {
	// Host pages have all pieces one behind the other, so the sizes must agree.
	case at != p.spec.PageBytes:
		return fmt.Errorf("cuda: pool %s: its tensors hold %d bytes of each page, which has %d", p.spec.Name, at, p.spec.PageBytes)
	// The pool cannot grow: there is no memory behind the tensors that is its own.
	case p.spec.MaxDevicePages != p.spec.DevicePages:
		return fmt.Errorf("pool %s: at most %d device pages: %w and has room for %d",
			p.spec.Name, p.spec.MaxDevicePages, ErrAdopted, p.spec.DevicePages)
	case p.spec.Shared:
		return fmt.Errorf("pool %s: shared: %w, which can share it", p.spec.Name, ErrAdopted)
	}
	return p.disjoint()
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
		if err := s.do(fnPointerGetAttribute, on, address(&s.out.small), pointerMemoryType, uintptr(at)); err != nil {
			return err
		}
		// The two answers share one word of memory, so the first is kept before the second call.
		kind := s.out.small
		if err := s.do(fnPointerGetAttribute, on, address(&s.out.small), pointerOrdinal, uintptr(at)); err != nil {
			return err
		}
		if kind != deviceMemory || s.out.small != p.d.ordinal {
			return fmt.Errorf("cuda: %s: not memory of device %d", on, p.d.ordinal)
		}
	}
	return nil
}

// disjoint refuses pieces of pages that share bytes. Two tensors may lie between
// one another's pages, as K and V of a layer do; then both have the same stride,
// and their pieces differ within it.
// The check is for mistakes in addresses: nothing else would report that two layers write
// to the same bytes.
func (p *pool) disjoint() error {
	// A pool has as many tensors as layers, or twice that: every pair is looked at.
	for i := range p.tensors {
		for j := range i {
			if p.tensors[i].meets(&p.tensors[j], p.spec.DevicePages) {
				return fmt.Errorf("cuda: pool %s: tensors %d and %d overlap", p.spec.Name, j, i)
			}
		}
	}
	return nil
}

// meets tells whether pieces of two tensors share bytes, or might: tensors with
// different strides whose extents meet are taken for overlapping.
func (t *tensor) meets(u *tensor, pages int) bool {
	if pages == 0 {
		return false
	}
	if t.Address > u.Address {
		// From here on t begins first.
		t, u = u, t
	}
	end := t.Address + uint64(int64(pages-1)*t.Stride+t.PageBytes)
	if u.Address >= end {
		return false
	}
	// Whether they meet would depend on every page; a host has no reason to make such tensors.
	if t.Stride != u.Stride {
		return true
	}
	// The place of u's piece within t's stride: behind t's piece, and not reaching into t's
	// next one.
	between := int64(u.Address-t.Address) % t.Stride
	return between < t.PageBytes || between+u.PageBytes > t.Stride
}

// tensorExtent is the memory of a device page from an offset on.
// It ends with the piece: the next bytes of the page are in another tensor.
func (p *pool) tensorExtent(page, offset int64) extent {
	i := sort.Search(len(p.tensors), func(i int) bool { return p.tensors[i].begin > offset }) - 1
	t := &p.tensors[i]
	within := offset - t.begin
	return extent{t.Address + uint64(page*t.Stride+within), t.PageBytes - within, t.region}
}
