// Package tensors lays pages over memory of the host application: a page is one piece in
// each tensor.
package tensors

import (
	"fmt"
	"sort"

	"github.com/kvactor/kvactor/gpu"
)

// Tensor is a gpu.Tensor with its place in a page.
// The pieces of a page in all tensors, in their order, make up the page: Begin of a tensor
// is the sum of PageBytes of those before it.
type Tensor struct {
	gpu.Tensor
	Begin int64 // of its piece within a page
}

// Layout is the memory of a pool. Begin ascends.
type Layout []Tensor

// New lays the pages of a pool over its tensors. It refuses tensors that do not hold whole
// pages, and pieces of pages that share bytes.
func New(spec *gpu.PoolSpec) (Layout, error) {
	var l Layout
	at := int64(0)
	for i, t := range spec.Tensors {
		// A stride below the piece would make neighbouring pages overlap.
		if t.PageBytes <= 0 || t.Stride < t.PageBytes || t.Address == 0 {
			return nil,
				fmt.Errorf("pool %s: tensor %d at %#x: %d bytes of each page, %d from one page to the next",
					spec.Name, i, t.Address, t.PageBytes, t.Stride)
		}
		l = append(l, Tensor{Tensor: t, Begin: at})
		at += t.PageBytes
	}
	// Host pages have all pieces one behind the other, so the sizes must agree.
	if at != spec.PageBytes {
		return nil, fmt.Errorf("pool %s: its tensors hold %d bytes of each page, which has %d", spec.Name,
			at, spec.PageBytes)
	}
	return l, l.disjoint(spec)
}

// disjoint refuses pieces of pages that share bytes. Two tensors may lie between
// one another's pages, as K and V of a layer do; then both have the same stride,
// and their pieces differ within it.
// The check is for mistakes in addresses: nothing else would report that two layers write
// to the same bytes.
func (l Layout) disjoint(spec *gpu.PoolSpec) error {
	// A pool has as many tensors as layers, or twice that: every pair is looked at.
	for i := range l {
		for j := range i {
			if l[i].meets(&l[j], spec.DevicePages) {
				return fmt.Errorf("pool %s: tensors %d and %d overlap", spec.Name, j, i)
			}
		}
	}
	return nil
}

// meets tells whether pieces of two tensors share bytes, or might: tensors with
// different strides whose extents meet are taken for overlapping.
func (t *Tensor) meets(u *Tensor, pages int) bool {
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

// Find gives the tensor that holds a byte of a page, the byte's address, and how many
// bytes lie there until the piece ends: the next bytes of the page are in another tensor.
func (l Layout) Find(page, offset int64) (tensor int, address uint64, left int64) {
	tensor = sort.Search(len(l), func(i int) bool { return l[i].Begin > offset }) - 1
	t := &l[tensor]
	within := offset - t.Begin
	return tensor, t.Address + uint64(page*t.Stride+within), t.PageBytes - within
}
