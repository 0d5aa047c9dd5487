//go:build linux && (amd64 || arm64)

package cuda

import (
	"cmp"
	"slices"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// lists are the arrays of a batch for the driver, outside of Go's heap, and what
// the device remembers of each descriptor beside them.
// dst, src and size are what cuMemcpyBatchAsync takes: addresses and bytes. Only the first
// used entries count.
type lists struct {
	memory         []byte
	dst, src, size []uint64
	first          []int32     // index of the descriptor's first copy in the batch
	within         [][2]uint32 // regions of source and destination
	way            []gpu.Direction
	used           int
	// zeros are the destinations to fill with zeros, which no batch call does.
	zeros  []descriptor
	copies []descriptor // scratch of merge
}

// descriptor is one entry of the lists. A src of 0 stands for zeros.
// No page has the address 0.
type descriptor struct {
	dst, src, size uint64
	first          int32
	within         [2]uint32
	way            gpu.Direction
}

// reserve makes room for one more descriptor.
// The memory is mapped and not Go's, because the driver gets its addresses.
func (l *lists) reserve() error {
	// The arrays grow to the largest batch and stay.
	if l.used < len(l.dst) {
		return nil
	}
	// 1024 descriptors are 24 KiB: most batches need no more.
	n := max(2*len(l.dst), 1024)
	memory, err := mapMemory(int64(n) * 3 * 8)
	if err != nil {
		return err
	}
	// One mapping holds the three arrays, so that one unmap frees them.
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), 3*n)
	dst, src, size := words[:n:n], words[n:2*n:2*n], words[2*n:]
	copy(dst, l.dst)
	copy(src, l.src)
	copy(size, l.size)
	// The old arrays are read above and unmapped only then.
	used := l.used
	l.free()
	l.memory, l.dst, l.src, l.size, l.used = memory, dst, src, size, used
	// As long as the mapped arrays: set writes to all six by one index.
	l.first = append(make([]int32, 0, n), l.first...)[:n]
	l.within = append(make([][2]uint32, 0, n), l.within...)[:n]
	l.way = append(make([]gpu.Direction, 0, n), l.way...)[:n]
	return nil
}

// free unmaps the arrays.
func (l *lists) free() {
	if l.memory != nil {
		_ = syscall.Munmap(l.memory)
		l.memory, l.dst, l.src, l.size = nil, nil, nil, nil
	}
}

// add appends a descriptor, or makes the last one longer when it ends where the
// new one begins on both sides.
func (l *lists) add(e descriptor) error {
	// Pages that were taken together are often neighbours on both sides. One long descriptor
	// moves at the speed of the link; for many short ones the copy engine's time for each counts.
	if i := l.used - 1; i >= 0 && e.follows(l.at(i)) {
		l.size[i] += e.size
		return nil
	}
	if err := l.reserve(); err != nil {
		return err
	}
	l.set(l.used, e)
	l.used++
	return nil
}

// at reads entry i of the arrays.
// first and within are kept in Go's heap, as the driver does not read them.
func (l *lists) at(i int) descriptor {
	return descriptor{l.dst[i], l.src[i], l.size[i], l.first[i], l.within[i], l.way[i]}
}

// set writes entry i of the arrays.
func (l *lists) set(i int, e descriptor) {
	l.dst[i], l.src[i], l.size[i], l.first[i], l.within[i], l.way[i] = e.dst, e.src, e.size, e.first,
		e.within, e.way
}

// follows tells whether e continues prev on both sides within the same pieces of
// memory: a descriptor must not cross two registered pieces, adjacent or not.
func (e descriptor) follows(prev descriptor) bool {
	if e.dst != prev.dst+prev.size || e.within != prev.within {
		return false
	}
	// Zeros follow zeros only; their source does not advance.
	if e.src == 0 || prev.src == 0 {
		return e.src == prev.src
	}
	return e.src == prev.src+prev.size
}

// describe fills the lists with the copies of a batch in its order. Each page is
// cut where a piece of memory ends on either side: pages of adopted pools are one
// piece in each tensor.
func (l *lists) describe(pools []*pool, copies []gpu.Copy) error {
	l.used, l.zeros = 0, l.zeros[:0]
	for i := range copies {
		// The usual copy is of one page, and the iterator would cost it a call.
		if copies[i].Pages <= 1 {
			if err := l.describePage(pools, &copies[i], i); err != nil {
				return err
			}
			continue
		}
		for c := range copies[i].Each {
			if err := l.describePage(pools, &c, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// describePage adds the descriptors of one page or part of a page. Ordinary pages
// are one piece on both sides, so the loop runs once.
func (l *lists) describePage(pools []*pool, c *gpu.Copy, index int) error {
	src, dst := pools[c.Src.Pool], pools[c.Dst.Pool]
	way, _ := c.Direction() // none goes from host to host: Checker
	for done := int64(0); done < c.Bytes; {
		from := src.extent(c.Src, c.SrcOffset+done)
		// The extent is that of the destination, so zeros are cut where memory ends as copies are.
		if c.Zero {
			from.address = 0
		}
		to := dst.extent(c.Dst, c.DstOffset+done)
		// The shorter side ends the piece.
		n := min(c.Bytes-done, from.left, to.left)
		err := l.add(descriptor{
			dst: to.address, src: from.address, size: uint64(n),
			first: int32(index), within: [2]uint32{from.region, to.region}, way: way,
		})
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// merge merges descriptors that adjoin on both sides wherever in the
// list they are: pages come from free lists in any order. It puts the list in
// the order of destinations, which are all different. The copies
// of a batch have no order among themselves, so this changes nothing else. Zeros
// go to a list of their own.
func (l *lists) merge() {
	l.copies = l.copies[:0]
	for i := range l.used {
		l.copies = append(l.copies, l.at(i))
	}
	slices.SortFunc(l.copies, func(a, b descriptor) int { return cmp.Compare(a.dst, b.dst) })
	// n is the last entry written; it never passes the one that is read, since those are in
	// copies.
	n := -1
	for i := range l.copies {
		e := &l.copies[i]
		if e.src == 0 {
			l.zeros = append(l.zeros, *e)
			continue
		}
		if n >= 0 && e.follows(l.at(n)) {
			l.size[n] += e.size
			// An error names the first copy of the batch that is in the descriptor.
			l.first[n] = min(l.first[n], e.first)
			continue
		}
		n++
		l.set(n, *e)
	}
	l.used = n + 1
}
