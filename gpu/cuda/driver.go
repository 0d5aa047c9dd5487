//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/ebitengine/purego"

	"github.com/kvactor/kvactor/gpu"
)

// fn is one function of the driver.
// Functions are named by numbers, so that a test replaces one by writing to the table.
type fn int

// The functions in use; functionTable has the names that the library exports.
const (
	fnInit fn = iota
	fnGetErrorName
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceGetUUID
	fnDeviceGetAttribute
	fnPrimaryCtxRetain
	fnPrimaryCtxRelease
	fnCtxPushCurrent
	fnCtxPopCurrent
	fnExchangeCaptureMode
	fnMemGetInfo
	fnMemGetAllocationGranularity
	fnMemAddressReserve
	fnMemAddressFree
	fnMemCreate
	fnMemRelease
	fnMemMap
	fnMemUnmap
	fnMemSetAccess
	fnMemExport
	fnMemImport
	fnMemHostRegister
	fnMemHostUnregister
	fnMemHostGetDevicePointer
	fnPointerGetAttribute
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
	fnEventElapsedTime
	fnIpcGetEventHandle
	fnIpcOpenEventHandle // takes its handle by value: see openEventHandle
	// The one form of a copy, whatever its direction: the driver tells host from device memory
	// by the addresses, which are in one space.
	fnMemcpyAsync
	// The functions from here on may be missing; see optional.
	fnMemcpyBatchAsync   // from driver 12.8 on; 0 where missing
	fnStreamWriteValue64 // 0 where missing
	// For the kernel that moves small pieces.
	fnModuleLoadData
	fnModuleUnload
	fnModuleGetFunction
	fnLaunchKernel
	functions
)

// optional are the functions that an old driver may lack.
// Without them copies are queued one by one, events tell of completion, and no kernel moves
// pieces.
const optional = fnMemcpyBatchAsync

// function describes one function of the driver.
// The names have the versions that the headers map to: cuMemGetInfo is cuMemGetInfo_v2.
type function struct {
	name string
	// streamOrdered: the call queues work on a stream or only looks something up.
	// The driver permits it on every thread while a host captures a graph.
	// Everything else is what NVIDIA calls potentially unsafe during a capture,
	// and refused on threads that have not relaxed their capture mode.
	streamOrdered bool
}

// functionTable is by fn. The C imitation of the driver is built with NVIDIA's header, so the
// tests that load it hold that each of these names is one that the header declares.
var functionTable = [functions]function{
	fnInit:                        {name: "cuInit"},
	fnGetErrorName:                {"cuGetErrorName", true},
	fnDeviceGetCount:              {name: "cuDeviceGetCount"},
	fnDeviceGet:                   {name: "cuDeviceGet"},
	fnDeviceGetName:               {name: "cuDeviceGetName"},
	fnDeviceGetUUID:               {name: "cuDeviceGetUuid_v2"},
	fnDeviceGetAttribute:          {name: "cuDeviceGetAttribute"},
	fnPrimaryCtxRetain:            {name: "cuDevicePrimaryCtxRetain"},
	fnPrimaryCtxRelease:           {name: "cuDevicePrimaryCtxRelease_v2"},
	fnCtxPushCurrent:              {"cuCtxPushCurrent_v2", true},
	fnCtxPopCurrent:               {"cuCtxPopCurrent_v2", true},
	fnExchangeCaptureMode:         {"cuThreadExchangeStreamCaptureMode", true},
	fnMemGetInfo:                  {name: "cuMemGetInfo_v2"},
	fnMemGetAllocationGranularity: {name: "cuMemGetAllocationGranularity"},
	fnMemAddressReserve:           {name: "cuMemAddressReserve"},
	fnMemAddressFree:              {name: "cuMemAddressFree"},
	fnMemCreate:                   {name: "cuMemCreate"},
	fnMemRelease:                  {name: "cuMemRelease"},
	fnMemMap:                      {name: "cuMemMap"},
	fnMemUnmap:                    {name: "cuMemUnmap"},
	fnMemSetAccess:                {name: "cuMemSetAccess"},
	fnMemExport:                   {name: "cuMemExportToShareableHandle"},
	fnMemImport:                   {name: "cuMemImportFromShareableHandle"},
	fnMemHostRegister:             {name: "cuMemHostRegister_v2"},
	fnMemHostUnregister:           {name: "cuMemHostUnregister"},
	fnMemHostGetDevicePointer:     {name: "cuMemHostGetDevicePointer_v2"},
	fnPointerGetAttribute:         {name: "cuPointerGetAttribute"},
	fnMemsetD8Async:               {"cuMemsetD8Async", true},
	fnStreamCreate:                {name: "cuStreamCreateWithPriority"},
	fnStreamDestroy:               {name: "cuStreamDestroy_v2"},
	fnStreamSynchronize:           {name: "cuStreamSynchronize"},
	fnStreamQuery:                 {name: "cuStreamQuery"},
	fnStreamWaitEvent:             {"cuStreamWaitEvent", true},
	fnStreamGetCtx:                {"cuStreamGetCtx", true},
	fnStreamIsCapturing:           {"cuStreamIsCapturing", true},
	fnEventCreate:                 {name: "cuEventCreate"},
	fnEventRecord:                 {"cuEventRecord", true},
	fnEventQuery:                  {name: "cuEventQuery"},
	fnEventSynchronize:            {name: "cuEventSynchronize"},
	fnEventDestroy:                {name: "cuEventDestroy_v2"},
	fnEventElapsedTime:            {name: "cuEventElapsedTime"},
	fnIpcGetEventHandle:           {name: "cuIpcGetEventHandle"},
	fnIpcOpenEventHandle:          {name: "cuIpcOpenEventHandle"},
	fnMemcpyAsync:                 {"cuMemcpyAsync", true},
	// The plain name is the form with failIdx on every driver that has it; the
	// headers of CUDA 13 mean another function by it.
	fnMemcpyBatchAsync:   {"cuMemcpyBatchAsync", true},
	fnStreamWriteValue64: {"cuStreamWriteValue64_v2", true},
	fnModuleLoadData:     {name: "cuModuleLoadData"},
	fnModuleUnload:       {name: "cuModuleUnload"},
	fnModuleGetFunction:  {name: "cuModuleGetFunction"},
	fnLaunchKernel:       {"cuLaunchKernel", true},
}

// String is the exported name.
func (f fn) String() string { return functionTable[f].name }

// driver is the table of functions: addresses that obey the C calling
// convention. Tests fill it with functions of their own.
type driver [functions]uintptr

// load finds the driver library and its functions.
// The library is loaded by its name with version: libcuda.so is part of the toolkit, and a
// stub of it can be linked but not used.
func load() (*driver, error) {
	const library = "libcuda.so.1"
	// Local: functions are found by Dlsym alone, and libraries that a host loads later must not
	// be linked against this one because the engine has loaded it.
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: %w", gpu.ErrNoDriver, err)
	}
	var d driver
	for f := range functions {
		address, err := purego.Dlsym(lib, f.String())
		// Every driver from CUDA 11.7 on has them.
		if err != nil && f < optional {
			return nil, fmt.Errorf("cuda: %s lacks %s: %w", library, f, gpu.ErrNoDriver)
		}
		d[f] = address
	}
	return &d, nil
}

// has tells whether the library exports an optional function.
// That the library has it does not say that the device can do it.
func (d *driver) has(f fn) bool { return d[f] != 0 }

// call calls a function of the driver. Addresses among the arguments must lie
// outside of Go's heap: they are passed as numbers, so the collector would neither keep the
// memory behind them nor know that C reads it. The goroutine's thread is in C meanwhile.
func (d *driver) call(f fn, args ...uintptr) result {
	r, _, _ := purego.SyscallN(d[f], args...)
	return result(int32(r))
}

// eventHandle is a CUipcEventHandle.
// The driver defines it as 64 opaque bytes, which another process of the machine may use.
type eventHandle struct{ bytes [64]byte }

// openEventHandle calls cuIpcOpenEventHandle, the one function in use that takes
// a structure by value; purego places it as the calling convention of the
// processor asks.
func (d *driver) openEventHandle(out uintptr, h eventHandle) result {
	// Registered at each call: a handle is opened once for each event of another process, and
	// a function in the table would be of a type of its own.
	var open func(uintptr, eventHandle) int32
	purego.RegisterFunc(&open, d[fnIpcOpenEventHandle])
	return result(open(out, h))
}
