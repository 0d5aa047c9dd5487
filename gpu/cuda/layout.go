//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"syscall"
	"unsafe"
)

// The driver's structures, in its layout.
// Go lays out fields of these sizes as C does; a test compares sizes and offsets with those
// of the header.

// location is a CUmemLocation.
type location struct {
	kind int32 // 1: a device
	id   int32
}

const onDevice = 1

// allocationProp is a CUmemAllocationProp of 32 bytes.
type allocationProp struct {
	kind        int32 // 1: pinned
	handleTypes int32 // 1: a POSIX file descriptor can be had
	location    location
	win32       uint64
	compression uint8
	rdma        uint8
	usage       uint16
	_           [4]uint8
}

// posixFD is CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
const posixFD = 1

// accessDesc is a CUmemAccessDesc of 12 bytes.
type accessDesc struct {
	location location
	flags    int32 // 3: read and write
}

// copyAttributes is a CUmemcpyAttributes of 24 bytes.
// One of them serves all copies of a batch.
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
// By the numbers of CUdevice_attribute in cuda.h, which do not change.
const (
	attributeProcessors  = 16
	attributeVMM         = 102
	attributeHostNUMA    = 134
	attributeStreamMemOp = 122 // 64-bit values written by streams
	attributePosixFD     = 103
)

// attributes of a pointer
// By the numbers of CUpointer_attribute.
const (
	pointerMemoryType = 2 // 2: device memory
	pointerOrdinal    = 9
	deviceMemory      = 2
)

// address is what the driver gets for a pointer outside of Go's heap.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// mapMemory maps anonymous memory outside of Go's heap.
// It begins at a page of the system and is zero.
func mapMemory(bytes int64) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cuda: %d bytes of host memory: %w", bytes, err)
	}
	return b, nil
}

// roundUp is the least multiple of unit from n on.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// gcd is the greatest common divisor.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
