// A stand-in for NVIDIA's driver library, built against NVIDIA's own cuda.h so that
// each function has the prototype of the header. It is wrong in the ways in which a
// device can be: see streams.c and memory.c. Nothing in it is NVIDIA's.
#ifndef KVACTOR_IMITATION_H
#define KVACTOR_IMITATION_H

// With this the header declares every version of a function under its exported
// name, instead of renaming the plain one to the newest.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The layouts and numbers that the Go side writes down, held against the header.
_Static_assert(sizeof(CUmemAllocationProp) == 32, "allocationProp");
_Static_assert(offsetof(CUmemAllocationProp, location) == 8, "allocationProp.location");
_Static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) == 16, "allocationProp.win32");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "accessDesc");
_Static_assert(offsetof(CUmemAccessDesc, flags) == 8, "accessDesc.flags");
_Static_assert(sizeof(CUmemcpyAttributes) == 24, "copyAttributes");
_Static_assert(offsetof(CUmemcpyAttributes, flags) == 20, "copyAttributes.flags");
_Static_assert(sizeof(CUipcEventHandle) == 64, "eventHandle");
_Static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16, "attributeProcessors");
_Static_assert(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED == 102, "attributeVMM");
_Static_assert(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED == 103, "attributePosixFD");
_Static_assert(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS == 122, "attributeStreamMemOp");
_Static_assert(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID == 134, "attributeHostNUMA");
_Static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == 2 && CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9, "pointer attributes");
_Static_assert(CU_MEMORYTYPE_DEVICE == 2, "deviceMemory");
_Static_assert(CU_STREAM_NON_BLOCKING == 1 && CU_EVENT_BLOCKING_SYNC == 1 && CU_EVENT_DISABLE_TIMING == 2 && CU_EVENT_INTERPROCESS == 4, "flags");
_Static_assert(CU_MEMHOSTREGISTER_PORTABLE == 1 && CU_MEMHOSTREGISTER_DEVICEMAP == 2, "portableMapped");
_Static_assert(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1, "posixFD, onDevice");
_Static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3, "readWrite");
_Static_assert(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM == 1, "streamOrder");
_Static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == 2, "captureRelaxed");
_Static_assert(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED == 900 && CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD == 908, "capture");
_Static_assert(CUDA_ERROR_CAPTURED_EVENT == 907 && CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED == 712, "results");
_Static_assert(CUDA_ERROR_DEINITIALIZED == 4 && CUDA_ERROR_ECC_UNCORRECTABLE == 214 && CUDA_ERROR_NVLINK_UNCORRECTABLE == 220 &&
               CUDA_ERROR_CONTAINED == 226 && CUDA_ERROR_CONTEXT_IS_DESTROYED == 709 && CUDA_ERROR_ASSERT == 710 &&
               CUDA_ERROR_TENSOR_MEMORY_LEAK == 721 && CUDA_ERROR_MPS_CLIENT_TERMINATED == 810 && CUDA_ERROR_EXTERNAL_DEVICE == 911 &&
               CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE == 708, "sticky");

#define API __attribute__((visibility("default")))

// The device's addresses of device memory and of registered host memory differ
// from the addresses in this process.
#define DEVICE_SHIFT (1ull << 48)
#define HOST_SHIFT (1ull << 49)
#define GRANULE (2ull << 20)

// A graph is a capture: what would run with each launch is only counted.
struct CUgraph_st {
	int nodes;
	bool broken;
	CUstreamCaptureMode mode;
	pthread_t thread;
	struct CUgraph_st *next;
};

enum kind { COPY, FILL, WRITE, RECORD, WAIT };

// Work of a stream.
struct op {
	enum kind kind;
	CUdeviceptr dst, src;
	size_t bytes;
	uint64_t value;
	struct CUevent_st *event;
	struct op *next;
};

struct CUstream_st {
	CUcontext context;
	struct op *first, *last;
	pthread_t worker;
	bool ending;
	CUgraph capturing;
	bool worked; // it has work in the capture
	struct CUstream_st *next;
};

// The state of an event; in shared memory where other processes may wait for it.
struct points {
	atomic_uint_fast64_t recorded, passed, nanos; // nanos: when it passed
};

struct CUevent_st {
	struct points *points;
	CUgraph captured;
	bool timed;
	char name[64];
	struct CUevent_st *next;
};

struct CUctx_st {
	CUdevice device;
	int retained;
};

// Address space, allocations and registered host memory.
struct range {
	CUdeviceptr base;
	size_t bytes;
	char *real;
	bool *mapped, *accessible; // by granule of reserved space; NULL: always
	bool by_driver;            // host memory that was not registered but allocated
	struct range *next;
};

struct chunk {
	size_t bytes;
	int fd;
	int users; // the handle and each mapping
	bool shared, released;
	struct chunk *next;
};

extern pthread_mutex_t lock;
extern pthread_cond_t changed;
extern CUresult lost;
extern struct range *reserved, *allocated, *pinned;
extern struct CUstream_st *streams;

CUresult begin(const char *name, bool needs_context, bool is_unsafe);
CUresult queue(CUstream s, struct op o);
struct CUstream_st *find_stream(CUstream s);
char *memory(CUdeviceptr at, size_t bytes);
bool host_address(CUdeviceptr at, size_t bytes);
CUresult check_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes);
CUresult wait_points(struct points *p, uint64_t number);
void end_streams(void);

#endif
