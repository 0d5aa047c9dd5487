//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/ebitengine/purego"

	"github.com/kvactor/kvactor/gpu"
)

// fn is one function of the driver.
type fn int

// The functions in use; names has them as the library exports them.
const (
	fnInit fn = iota
	fnGetErrorName
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceGetAttribute
	fnPrimaryCtxRetain
	fnPrimaryCtxRelease
	fnCtxSetCurrent
	fnMemGetInfo
	fnMemGetAllocationGranularity
	fnMemAddressReserve
	fnMemAddressFree
	fnMemCreate
	fnMemRelease
	fnMemMap
	fnMemUnmap
	fnMemSetAccess
	fnMemHostRegister
	fnMemHostUnregister
	fnMemHostGetDevicePointer
	fnMemsetD8Async
	fnStreamCreate
	fnStreamDestroy
	fnStreamSynchronize
	fnStreamQuery
	fnStreamWaitEvent
	fnStreamGetCtx
	fnStreamIsCapturing
	fnEventCreate
	fnEventRecord
	fnEventQuery
	fnEventSynchronize
	fnEventDestroy
	fnMemcpyAsync
	fnMemcpyBatchAsync   // from driver 12.8 on; 0 where missing
	fnStreamWriteValue64 // 0 where missing
	functions
)

// optional are the functions that an old driver may lack.
const optional = fnMemcpyBatchAsync

var names = [functions]string{
	"cuInit", "cuGetErrorName", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuMemGetInfo_v2",
	"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
	"cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemHostRegister_v2", "cuMemHostUnregister",
	"cuMemHostGetDevicePointer_v2", "cuMemsetD8Async", "cuStreamCreateWithPriority", "cuStreamDestroy_v2",
	"cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent", "cuStreamGetCtx", "cuStreamIsCapturing", "cuEventCreate",
	"cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2", "cuMemcpyAsync",
	// The plain name is the form with failIdx on every driver that has it; the
	// headers of CUDA 13 mean another function by it.
	"cuMemcpyBatchAsync", "cuStreamWriteValue64_v2",
}

// String is the exported name.
func (f fn) String() string { return names[f] }

// driver is the table of functions: addresses that obey the C calling
// convention. Tests fill it with functions of their own.
type driver [functions]uintptr

// load finds the driver library and its functions.
func load() (*driver, error) {
	const library = "libcuda.so.1"
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: %w", gpu.ErrNoDriver, err)
	}
	var d driver
	for f := range functions {
		address, err := purego.Dlsym(lib, names[f])
		if err != nil && f < optional {
			return nil, fmt.Errorf("cuda: %s lacks %s: %w", library, names[f], gpu.ErrNoDriver)
		}
		d[f] = address
	}
	return &d, nil
}

func (d *driver) has(f fn) bool { return d[f] != 0 }

// call calls a function of the driver. Addresses among the arguments must lie
// outside of Go's heap.
func (d *driver) call(f fn, args ...uintptr) result {
	r, _, _ := purego.SyscallN(d[f], args...)
	return result(int32(r))
}
