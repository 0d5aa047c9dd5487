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

// The driver launches a kernel for each piece that stays within the device: 3.6 µs each on an
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
		return strings.NewReplacer("NAME(", name+"(", "BYTES]", fmt.Sprint(kernelListHead+pieces*pieceSize, "]")).Replace(kernelBody)
	}
	return kernelHead + entry(shortEntry, shortPieces) + entry(longEntry, longPieces)
}

const (
	kernelThreads = 256
	kernelWarps   = kernelThreads / 32 // of a block
	segmentBytes  = 4096               // what a warp moves at a time
	// linkBlocks are enough to fill the link; more would take processors from the host's
	// kernels and gain nothing.
	linkBlocks = 16
)

// localBelow are the bytes from which on a piece within the device is worth a launch of its own.
const localBelow = 16 << 20

// fewestPieces is how many small pieces a batch must have: for fewer a launch costs as much.
const fewestPieces = 4

// kernel moves small pieces. It is used under the device's lock.
type kernel struct {
	usable      bool
	module      uintptr
	short, long uintptr                // functions
	processors  int                    // of the device
	below       [gpu.Directions]uint64 // bytes of pieces that it does not take
	fewest      int
	refusals    int // in a row

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

// load makes the kernel; linkBelow is Options.KernelBelow. A device or driver that does not take it has none, which Info tells.
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
	if s.call(fnModuleLoadData, address(&s.out.number[0]), address(&image[0])) != success {
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
	if s.call(fnModuleGetFunction, address(&s.out.number[0]), k.module, address(&s.out.text[0])) != success {
		return 0
	}
	return uintptr(s.out.number[0])
}

// unload gives the module back.
func (k *kernel) unload(s *session) {
	if k.module != 0 {
		s.call(fnModuleUnload, k.module)
	}
	k.module, k.usable = 0, false
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
	return l.size[i] < k.below[l.way[i]] && l.src[i] != 0
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

// launch queues the pieces on the list and empties it. The driver copies the list before the
// call returns.
func (k *kernel) launch(s *session, st *stream) result {
	defer k.clear()
	blocks := linkBlocks
	if k.local {
		blocks = max(blocks, k.processors)
	}
	// Few pieces are moved by several warps each, but none is cut below a segment.
	shift := 0
	for k.pieces<<(shift+1) <= blocks*kernelWarps && segmentBytes<<shift < int(k.most) {
		shift++
	}
	units := k.pieces << shift
	k.list.units, k.list.shift = uint32(units), uint32(shift)
	blocks = min(blocks, (units+kernelWarps-1)/kernelWarps)
	entry := k.short
	if k.pieces > shortPieces {
		entry = k.long
	}
	return s.call(fnLaunchKernel, entry, uintptr(blocks), 1, 1, kernelThreads, 1, 1, 0, st.handle, address(&k.params[0]), 0)
}

// refused notes that the driver refuses a launch whose copies it takes.
func (k *kernel) refused(r result) {
	k.refusals++
	if r == notSupported || k.refusals >= maxRefusals {
		k.usable = false
	}
}

// launchSmall takes the small pieces out of the lists and queues them as launches, if there
// are enough of them. The others keep their order. launched tells whether any launch is queued.
func (q *copyQueue) launchSmall(s *session, st *stream) (launched bool, r result) {
	l, k := &q.lists, &q.kernel
	if !k.usable || q.small < k.fewest {
		return false, success
	}
	kept := 0
	for i := range l.used {
		if !k.takes(l, i) {
			l.set(kept, l.at(i))
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
	if r := k.launch(s, st); r != success {
		return launched, r
	}
	k.refusals = 0
	return true, success
}

// countSmall counts the pieces for the kernel.
func (q *copyQueue) countSmall() (n int) {
	for i := range q.lists.used {
		if q.kernel.takes(&q.lists, i) {
			n++
		}
	}
	return n
}
