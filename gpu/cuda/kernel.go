//go:build linux && (amd64 || arm64)

package cuda

import (
	_ "embed"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// The driver launches a kernel for each piece that stays within the device: 3.5 µs each on an
// H200 with driver 580, whatever its size. One kernel that has all pieces as a list takes as
// long for hundreds of them. docs/gpu.md has the figures.

//go:embed kernel.ptx
var kernelBody string

// kernelHead is what the text for the driver begins with. Version 8.1 is the first with
// parameters of more than 4 KiB, which drivers from CUDA 12.1 on take.
const kernelHead = ".version 8.1\n.target sm_70\n.address_size 64\n"

// The entries of the module: pieces that fit into their parameter. The limits of the driver
// are 4096 and 32764 bytes.
const (
	shortPieces = (4096 - kernelListHead) / pieceSize
	longPieces  = (32764 - kernelListHead) / pieceSize

	kernelListHead = 8
	pieceSize      = 24
)

const (
	shortEntry = "kvactor_copy_short"
	longEntry  = "kvactor_copy_long"
)

// kernelText is the module as the driver takes it.
func kernelText() string {
	entry := func(name string, pieces int) string {
		return strings.NewReplacer("NAME(", name+"(", "BYTES]",
			fmt.Sprint(kernelListHead+pieces*pieceSize, "]")).Replace(kernelBody)
	}
	return kernelHead + entry(shortEntry, shortPieces) + entry(longEntry, longPieces)
}

const (
	kernelThreads = 256
	kernelWarps   = kernelThreads / 32 // of a block
	segmentBytes  = 4096               // what a warp moves at a time
	// linkBlocks is how many blocks move pieces between the tiers. They reach 38 GB/s of 55 with
	// pieces of 8 KiB, two batches in flight; more would take processors from the host's kernels.
	linkBlocks = 16
)

const (
	// localBelow are the bytes from which on a piece within the device is worth a launch of its
	// own: at 1.5 TB/s it takes three times as long as the launch.
	localBelow = 16 << 20
	// unalignedBelow are the same for a piece that is moved byte by byte.
	unalignedBelow = 64 << 10
)

// fewestPieces is how many pieces for the kernel a batch must have: for fewer a launch costs as
// much as the driver's own calls.
const fewestPieces = 4

// kernel moves many pieces in one launch. It is used under the device's lock.
type kernel struct {
	attempts
	module      uintptr
	short, long uintptr                // functions
	processors  int                    // of the device
	below       [gpu.Directions]uint64 // pieces of so many bytes or more are not for the kernel
	// pieces that a batch must have: fewestPieces; a test of times sets 1
	fewest int

	memory []byte // of the launch's parameters, outside of Go's heap
	params *[1]uintptr
	list   *kernelList
	pieces int
	most   uint64 // bytes of the largest piece
	local  bool   // a piece stays within the device
}

// kernelList is the parameter of the kernel, as kernel.ptx describes it.
type kernelList struct {
	units, shift uint32
	pieces       [longPieces]struct{ dst, src, size uint64 }
}

// load makes the kernel; linkBelow is Options.KernelBelow. Where the device or the driver
// refuses it there is none, as Info tells.
func (k *kernel) load(s *session, linkBelow int64) {
	for _, f := range []fn{fnModuleLoadData, fnModuleGetFunction, fnModuleUnload, fnLaunchKernel} {
		if !s.d.driver.has(f) {
			return
		}
	}
	text := kernelText()
	image, err := mapMemory(int64(len(text)) + 1) // it ends with a zero byte
	if err != nil {
		return
	}
	defer func() { _ = syscall.Munmap(image) }()
	copy(image, text)
	if s.do(fnModuleLoadData, "kernel", address(&s.out.number[0]), address(&image[0])) != nil {
		return
	}
	k.module = uintptr(s.out.number[0])
	k.short, k.long = k.function(s, shortEntry), k.function(s, longEntry)
	if k.short == 0 || k.long == 0 {
		return
	}
	const paramBytes = 16
	if k.memory, err = mapMemory(paramBytes + int64(unsafe.Sizeof(kernelList{}))); err != nil {
		return
	}
	k.params = (*[1]uintptr)(unsafe.Pointer(&k.memory[0]))
	k.list = (*kernelList)(unsafe.Pointer(&k.memory[paramBytes]))
	k.params[0] = address(k.list)
	k.processors = int(max(1, s.d.attribute(s, attributeProcessors)))
	link := uint64(max(0, linkBelow))
	k.below = [gpu.Directions]uint64{gpu.Offload: link, gpu.Onboard: link, gpu.Local: localBelow}
	k.fewest = fewestPieces
	k.usable = true
}

// function finds an entry of the module; 0: there is none.
func (k *kernel) function(s *session, name string) uintptr {
	copy(s.out.text[:], name+"\x00")
	if s.do(fnModuleGetFunction, name, address(&s.out.number[0]), k.module,
		address(&s.out.text[0])) != nil {
		return 0
	}
	return uintptr(s.out.number[0])
}

// unload gives the module back.
func (k *kernel) unload(s *session) {
	if k.module != 0 {
		s.call(fnModuleUnload, k.module)
	}
	k.module = 0
}

// free unmaps the memory of the parameters.
func (k *kernel) free() {
	if k.memory != nil {
		_ = syscall.Munmap(k.memory)
		k.memory, k.params, k.list = nil, nil, nil
	}
}

// takes tells whether a descriptor is one for the kernel. Zeros have no source to read.
func (k *kernel) takes(l *lists, i int) bool {
	const unaligned = 15
	return l.size[i] < k.below[l.way[i]] && l.src[i] != 0 &&
		(l.size[i] < unalignedBelow || (l.dst[i]|l.src[i]|l.size[i])&unaligned == 0)
}

// add puts a piece on the list.
func (k *kernel) add(l *lists, i int) {
	p := &k.list.pieces[k.pieces]
	p.dst, p.src, p.size = l.dst[i], l.src[i], l.size[i]
	k.pieces++
	k.most = max(k.most, l.size[i])
	k.local = k.local || l.way[i] == gpu.Local
}

// clear empties the list.
func (k *kernel) clear() { k.pieces, k.most, k.local = 0, 0, false }

// launch queues the pieces on the list, if there are any, and empties it. The driver copies the
// list before the call returns.
func (k *kernel) launch(s *session, st *stream) result {
	if k.pieces == 0 {
		return success
	}
	defer k.clear()
	blocks, shift := k.grid()
	k.list.units, k.list.shift = uint32(k.pieces<<shift), uint32(shift)
	entry := k.short
	if k.pieces > shortPieces {
		entry = k.long
	}
	return s.call(fnLaunchKernel, entry, uintptr(blocks), 1, 1, kernelThreads, 1, 1, 0, st.handle,
		address(&k.params[0]), 0)
}

// grid is how many blocks move the list, and the logarithm of the parts that each piece has.
// Few pieces are moved by several warps each, but none is cut below a segment.
func (k *kernel) grid() (blocks, shift int) {
	blocks = linkBlocks
	if k.local {
		blocks = max(blocks, k.processors)
	}
	for k.pieces<<(shift+1) <= blocks*kernelWarps && segmentBytes<<shift < int(k.most) {
		shift++
	}
	return min(blocks, (k.pieces<<shift+kernelWarps-1)/kernelWarps), shift
}

// launchListed takes the kernel's pieces out of the lists and queues them, if there are enough
// of them: a launch for each longPieces, those within the device apart from the others, which
// have fewer blocks. The other pieces keep their order. launched tells whether a launch is queued.
func (q *copyQueue) launchListed(s *session, st *stream) (launched bool, r result) {
	l, k := &q.lists, &q.kernel
	if q.listed < k.fewest || q.listed == 0 {
		return false, success
	}
	for _, local := range []bool{true, false} {
		kept := 0
		for i := range l.used {
			if (l.way[i] == gpu.Local) != local || !k.takes(l, i) {
				if kept < i {
					l.set(kept, l.at(i))
				}
				kept++
				continue
			}
			if k.pieces == longPieces {
				if r := k.launch(s, st); r != success {
					return launched, r
				}
				launched = true
			}
			k.add(l, i)
		}
		l.used = kept
		pending := k.pieces > 0
		if r := k.launch(s, st); r != success {
			return launched, r
		}
		launched = launched || pending
	}
	k.refusals = 0
	return true, success
}

// countListed counts the pieces for the kernel, and returns how many of them are within the device.
func (q *copyQueue) countListed() (local int) {
	q.listed = 0
	if !q.kernel.usable {
		return 0
	}
	for i := range q.lists.used {
		if q.kernel.takes(&q.lists, i) {
			q.listed++
			if q.lists.way[i] == gpu.Local {
				local++
			}
		}
	}
	return local
}
