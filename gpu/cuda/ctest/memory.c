// Devices, contexts, memory and copies of the imitation.
#define _GNU_SOURCE
#include "imitation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BEGIN(context, is_unsafe)                                     \
	pthread_mutex_lock(&lock);                                        \
	CUresult refused = begin(__func__, context, is_unsafe);           \
	if (refused != CUDA_SUCCESS) {                                    \
		pthread_mutex_unlock(&lock);                                  \
		return refused;                                               \
	}
#define END(result)                    \
	do {                               \
		CUresult end_result = result;  \
		pthread_mutex_unlock(&lock);   \
		return end_result;             \
	} while (0)

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
CUresult lost = CUDA_SUCCESS;
struct range *reserved, *allocated, *pinned;
static struct chunk *chunks;
static struct CUctx_st contexts[2] = {{.device = 7}, {.device = 8}};
static const size_t total = 8ull << 30;
static size_t used;
static int fail_copies[3]; // by direction of gpu: offload, onboard, copy

bool forbidden(void);

static __thread CUcontext stack[16];
static __thread int depth;

// What every call begins with: an error that ended the context, no context, a
// call that is not permitted during a capture.
CUresult begin(const char *name, bool needs_context, bool is_unsafe) {
	(void)name;
	if (needs_context && (depth == 0 || stack[depth - 1] == NULL))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (lost != CUDA_SUCCESS)
		return lost;
	return is_unsafe && forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

API CUresult cuGetErrorName(CUresult r, const char **out) {
	static const struct { CUresult code; const char *name; } names[] = {
		{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
		{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
		{CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"},
		{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == r) {
			*out = names[i].name;
			return CUDA_SUCCESS;
		}
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetCount(int *out) { return *out = 2, CUDA_SUCCESS; }

API CUresult cuDeviceGet(CUdevice *out, int ordinal) { return *out = ordinal + 7, CUDA_SUCCESS; }

API CUresult cuDeviceGetName(char *out, int n, CUdevice d) {
	snprintf(out, (size_t)n, "Imitation %d of CUDA %d.%d", d - 7, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d) {
	memset(out->bytes, d, sizeof out->bytes);
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice d) {
	(void)d;
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
		return *out = 1, CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return *out = 20, CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
		return *out = 0, CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
	pthread_mutex_lock(&lock);
	contexts[d - 7].retained++;
	*out = &contexts[d - 7];
	END(CUDA_SUCCESS);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	pthread_mutex_lock(&lock);
	END(contexts[d - 7].retained-- > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

API CUresult cuCtxPushCurrent_v2(CUcontext c) {
	if (depth == 16 || c == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	stack[depth++] = c;
	return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *out) {
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = stack[--depth];
	return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext c) {
	if (depth == 0)
		depth = 1;
	stack[depth - 1] = c;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *out) { return *out = depth > 0 ? stack[depth - 1] : NULL, CUDA_SUCCESS; }

API CUresult cuMemGetInfo_v2(size_t *left, size_t *all) {
	BEGIN(true, false)
	*left = total - used, *all = total;
	END(CUDA_SUCCESS);
}

// Finds what lies behind a device address; NULL: nothing that can be reached. A
// range may cross chunks that adjoin, but no two registrations.
char *memory(CUdeviceptr at, size_t bytes) {
	struct range *lists[] = {reserved, allocated, pinned};
	for (int i = 0; i < 3; i++)
		for (struct range *r = lists[i]; r != NULL; r = r->next) {
			if (at < r->base || at + bytes > r->base + r->bytes)
				continue;
			size_t from = at - r->base;
			for (size_t g = from / GRANULE; r->mapped != NULL && g * GRANULE < from + bytes; g++)
				if (!r->mapped[g] || !r->accessible[g])
					return NULL;
			return r->real + from;
		}
	return NULL;
}

// A registered range by the host's address, which is none of the device's.
bool host_address(CUdeviceptr at, size_t bytes) { return memory(at + HOST_SHIFT, bytes) != NULL; }

static struct range *find(struct range *list, CUdeviceptr base) {
	while (list != NULL && list->base != base)
		list = list->next;
	return list;
}

static void drop(struct range **list, struct range *r) {
	while (*list != r)
		list = &(*list)->next;
	*list = r->next;
	free(r);
}

static struct range *keep(struct range **list, char *real, size_t bytes, uint64_t shift) {
	struct range *r = calloc(1, sizeof *r);
	r->real = real, r->bytes = bytes, r->base = (CUdeviceptr)real + shift;
	r->next = *list, *list = r;
	return r;
}

static bool good(const CUmemAllocationProp *p) {
	static const CUmemAllocationProp none;
	return p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       (p->location.id == 0 || p->location.id == 1) && p->requestedHandleTypes <= 1 && p->win32HandleMetaData == NULL &&
	       memcmp(&p->allocFlags, &none.allocFlags, sizeof p->allocFlags) == 0;
}

API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags option) {
	(void)option;
	return *out = GRANULE, good(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr at, unsigned long long flags) {
	BEGIN(true, true)
	if (bytes == 0 || bytes % GRANULE != 0 || align != 0 || at != 0 || flags != 0)
		END(CUDA_ERROR_INVALID_VALUE);
	char *real = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (real == MAP_FAILED)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	struct range *r = keep(&reserved, real, bytes, DEVICE_SHIFT);
	r->mapped = calloc(bytes / GRANULE, 1), r->accessible = calloc(bytes / GRANULE, 1);
	*out = r->base;
	END(CUDA_SUCCESS);
}

API CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
	BEGIN(true, true)
	struct range *r = find(reserved, at);
	if (r == NULL || r->bytes != bytes)
		END(CUDA_ERROR_INVALID_VALUE);
	for (size_t g = 0; g < bytes / GRANULE; g++)
		if (r->mapped[g])
			END(CUDA_ERROR_INVALID_VALUE);
	munmap(r->real, bytes);
	drop(&reserved, r);
	END(CUDA_SUCCESS);
}

static struct chunk *add_chunk(int fd, size_t bytes, bool shared) {
	struct chunk *c = calloc(1, sizeof *c);
	c->fd = fd, c->bytes = bytes, c->users = 1, c->shared = shared;
	c->next = chunks, chunks = c;
	return c;
}

static struct chunk *find_chunk(CUmemGenericAllocationHandle h) {
	struct chunk *c = chunks;
	while (c != NULL && c != (struct chunk *)h)
		c = c->next;
	return c != NULL && !c->released ? c : NULL;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *p, unsigned long long flags) {
	BEGIN(true, true)
	if (!good(p) || bytes % GRANULE != 0 || flags != 0)
		END(CUDA_ERROR_INVALID_VALUE);
	if (used + bytes > total)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	int fd = memfd_create("chunk", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	used += bytes;
	*out = (CUmemGenericAllocationHandle)add_chunk(fd, bytes, p->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	END(CUDA_SUCCESS);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	BEGIN(true, true)
	struct chunk *c = find_chunk(h);
	if (c == NULL)
		END(CUDA_ERROR_INVALID_VALUE);
	c->released = true;
	close(c->fd);
	used -= c->bytes;
	END(CUDA_SUCCESS);
}

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags) {
	BEGIN(true, true)
	struct chunk *c = find_chunk(h);
	if (c == NULL || !c->shared || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		END(CUDA_ERROR_INVALID_VALUE);
	*(int *)out = dup(c->fd);
	END(CUDA_SUCCESS);
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, CUmemAllocationHandleType type) {
	BEGIN(true, true)
	int fd = dup((int)(intptr_t)handle);
	off_t bytes = lseek(fd, 0, SEEK_END);
	if (fd < 0 || bytes <= 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		END(CUDA_ERROR_INVALID_VALUE);
	used += (size_t)bytes;
	*out = (CUmemGenericAllocationHandle)add_chunk(fd, (size_t)bytes, true);
	END(CUDA_SUCCESS);
}

// Marks granules of reserved space; false where they do not lie in it.
static struct range *space(CUdeviceptr at, size_t bytes) {
	for (struct range *r = reserved; r != NULL; r = r->next)
		if (at >= r->base && at + bytes <= r->base + r->bytes && at % GRANULE == r->base % GRANULE && bytes % GRANULE == 0)
			return r;
	return NULL;
}

static void mark(struct range *r, bool *list, CUdeviceptr at, size_t bytes, bool value) {
	memset(list + (at - r->base) / GRANULE, value, bytes / GRANULE);
}

API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
	BEGIN(true, true)
	struct range *r = space(at, bytes);
	struct chunk *c = find_chunk(h);
	if (r == NULL || c == NULL || c->bytes != bytes || offset != 0 || flags != 0)
		END(CUDA_ERROR_INVALID_VALUE);
	if (mmap(r->real + (at - r->base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, c->fd, 0) == MAP_FAILED)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	mark(r, r->mapped, at, bytes, true);
	END(CUDA_SUCCESS);
}

API CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *d, size_t n) {
	BEGIN(true, true)
	struct range *r = space(at, bytes);
	if (r == NULL || n != 1 || d->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		END(CUDA_ERROR_INVALID_VALUE);
	mprotect(r->real + (at - r->base), bytes, PROT_READ | PROT_WRITE);
	mark(r, r->accessible, at, bytes, true);
	END(CUDA_SUCCESS);
}

API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
	BEGIN(true, true)
	struct range *r = space(at, bytes);
	if (r == NULL || !r->mapped[(at - r->base) / GRANULE])
		END(CUDA_ERROR_INVALID_VALUE);
	mmap(r->real + (at - r->base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	mark(r, r->mapped, at, bytes, false);
	mark(r, r->accessible, at, bytes, false);
	END(CUDA_SUCCESS);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
	BEGIN(true, true)
	char *real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (real == MAP_FAILED)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	*out = keep(&allocated, real, bytes, DEVICE_SHIFT)->base;
	END(CUDA_SUCCESS);
}

API CUresult cuMemFree_v2(CUdeviceptr at) {
	BEGIN(true, true)
	struct range *r = find(allocated, at);
	if (r == NULL)
		END(CUDA_ERROR_INVALID_VALUE);
	munmap(r->real, r->bytes);
	drop(&allocated, r);
	END(CUDA_SUCCESS);
}

API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr at) {
	BEGIN(true, false)
	if (memory(at, 1) == NULL)
		END(CUDA_ERROR_INVALID_VALUE);
	*(int *)out = which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0 : at >= HOST_SHIFT ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	END(CUDA_SUCCESS);
}

API CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
	BEGIN(true, true)
	if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
		END(CUDA_ERROR_INVALID_VALUE);
	for (struct range *r = pinned; r != NULL; r = r->next)
		if ((char *)p < r->real + r->bytes && r->real < (char *)p + bytes)
			END(r->by_driver ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED); // as driver 580
	keep(&pinned, p, bytes, HOST_SHIFT);
	END(CUDA_SUCCESS);
}

API CUresult cuMemHostUnregister(void *p) {
	BEGIN(true, true)
	struct range *r = find(pinned, (CUdeviceptr)p + HOST_SHIFT);
	if (r == NULL)
		END(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	drop(&pinned, r);
	END(CUDA_SUCCESS);
}

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
	BEGIN(true, true)
	if (flags != 0)
		END(CUDA_ERROR_INVALID_VALUE);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		END(CUDA_ERROR_OUT_OF_MEMORY);
	keep(&pinned, p, bytes, HOST_SHIFT);
	find(pinned, (CUdeviceptr)p + HOST_SHIFT)->by_driver = true;
	*out = p;
	END(CUDA_SUCCESS);
}

API CUresult cuMemFreeHost(void *p) {
	BEGIN(true, true)
	struct range *r = find(pinned, (CUdeviceptr)p + HOST_SHIFT);
	if (r == NULL || !r->by_driver)
		END(CUDA_ERROR_INVALID_VALUE);
	munmap(r->real, r->bytes);
	drop(&pinned, r);
	END(CUDA_SUCCESS);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
	BEGIN(true, false)
	*out = (CUdeviceptr)p + HOST_SHIFT;
	END(flags == 0 && memory(*out, 1) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t n, CUstream s) {
	BEGIN(true, false)
	END(memory(at, n) == NULL ? CUDA_ERROR_INVALID_VALUE : queue(s, (struct op){.kind = FILL, .dst = at, .bytes = n, .value = v}));
}

// A copy of the host's address of registered memory is taken and ends the context
// when it runs: the device does not reach it. Other unknown memory is refused.
CUresult check_copy(CUdeviceptr dst, CUdeviceptr src, size_t n) {
	if ((memory(dst, n) == NULL && !host_address(dst, n)) || (memory(src, n) == NULL && !host_address(src, n)))
		return CUDA_ERROR_INVALID_VALUE;
	int way = dst >= HOST_SHIFT ? 0 : src >= HOST_SHIFT ? 1 : 2;
	return fail_copies[way] > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	BEGIN(true, false)
	CUresult r = check_copy(dst, src, n);
	if (r == CUDA_SUCCESS)
		r = queue(s, (struct op){.kind = COPY, .dst = dst, .src = src, .bytes = n});
	else
		fail_copies[dst >= HOST_SHIFT ? 0 : src >= HOST_SHIFT ? 1 : 2]--;
	END(r);
}

// The copies of a batch have no order: they are queued last first.
static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *a, size_t *at, size_t na,
                      size_t *fail, CUstream s) {
	struct CUstream_st *stream = find_stream(s);
	*fail = SIZE_MAX;
	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capturing != NULL) {
		stream->capturing->broken = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (n == 0 || na != 1 || at[0] != 0 || a->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || a->flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = n; i-- > 0;) {
		CUresult r = check_copy(dsts[i], srcs[i], sizes[i]);
		if (r != CUDA_SUCCESS)
			return *fail = i, r; // those behind it are queued
		queue(s, (struct op){.kind = COPY, .dst = dsts[i], .src = srcs[i], .bytes = sizes[i]});
	}
	return CUDA_SUCCESS;
}

API CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *a, size_t *at,
                                size_t na, size_t *fail, CUstream s) {
	BEGIN(true, false)
	END(batch(dsts, srcs, sizes, n, a, at, na, fail, s));
}

#if CUDA_VERSION >= 13000
API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, CUmemcpyAttributes *a, size_t *at,
                                   size_t na, CUstream s) {
	size_t fail;
	BEGIN(true, false)
	END(batch(dsts, srcs, sizes, n, a, at, na, &fail, s));
}
#endif

// For tests: the next n copies of a direction are refused.
API void kvactor_imitation_fail_copies(int direction, int n) {
	pthread_mutex_lock(&lock);
	fail_copies[direction] += n;
	pthread_mutex_unlock(&lock);
}
