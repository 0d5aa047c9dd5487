//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/kvactor/kvactor/gpu"
)

// The driver's structures, in its layout.

// location is a CUmemLocation.
type location struct {
	kind int32 // 1: a device
	id   int32
}

const onDevice = 1

// allocationProp is a CUmemAllocationProp of 32 bytes.
type allocationProp struct {
	kind        int32 // 1: pinned
	handleTypes int32
	location    location
	win32       uint64
	compression uint8
	rdma        uint8
	usage       uint16
	_           [4]uint8
}

// accessDesc is a CUmemAccessDesc of 12 bytes.
type accessDesc struct {
	location location
	flags    int32 // 3: read and write
}

// copyAttributes is a CUmemcpyAttributes of 24 bytes.
type copyAttributes struct {
	srcAccessOrder   int32 // 1: in stream order
	srcHint, dstHint location
	flags            uint32
}

const (
	readWrite   = 3
	streamOrder = 1
)

// attributes of a device
const (
	attributeVMM         = 102
	attributeHostNUMA    = 134
	attributeStreamMemOp = 122 // 64-bit values written by streams
)

// outs is the memory that the driver writes answers to and reads structures
// from. It lies outside of Go's heap and is used under the device's lock.
type outs struct {
	number   [2]uint64
	small    int32
	name     *byte
	text     [256]byte
	prop     allocationProp
	access   accessDesc
	attr     copyAttributes
	attrIdx  uint64
	failIdx  uint64
	counters [gpu.MaxStreams]uint64 // by stream; written by the device itself
}

// address is what the driver gets for a pointer outside of Go's heap.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// mapMemory maps anonymous memory outside of Go's heap.
func mapMemory(bytes int64) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cuda: %d bytes of host memory: %w", bytes, err)
	}
	return b, nil
}

// lists are the arrays of a batch for the driver, outside of Go's heap.
type lists struct {
	memory         []byte
	dst, src, size []uint64
	first          []int32 // by descriptor, the index of its first copy
	used           int
}

// grow makes room for n descriptors.
func (l *lists) grow(n int) error {
	l.used = 0
	if n <= len(l.dst) {
		return nil
	}
	n = max(n, 2*len(l.dst), 1024)
	memory, err := mapMemory(int64(n) * 3 * 8)
	if err != nil {
		return err
	}
	l.free()
	l.memory = memory
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), 3*n)
	l.dst, l.src, l.size = words[:n:n], words[n:2*n:2*n], words[2*n:]
	l.first = make([]int32, n)
	return nil
}

func (l *lists) free() {
	if l.memory != nil {
		_ = syscall.Munmap(l.memory)
		l.memory, l.dst, l.src, l.size = nil, nil, nil, nil
	}
}
