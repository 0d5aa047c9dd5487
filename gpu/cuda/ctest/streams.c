// Streams, events and captures of the imitation.
#define _GNU_SOURCE
#include "imitation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
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

struct CUstream_st *streams;
static CUgraph captures;

struct CUstream_st *find_stream(CUstream s) {
	struct CUstream_st *p = streams;
	while (p != NULL && p != s)
		p = p->next;
	return p;
}

// Some time passes in the device, without the lock.
static void pass_time(unsigned *seed) {
	unsigned r = rand_r(seed);
	pthread_mutex_unlock(&lock);
	if (r % 4 == 0)
		usleep(r / 4 % 150);
	pthread_mutex_lock(&lock);
}

// A copy fills its destination with poison first and moves the bytes later.
static void copy(struct op *o, unsigned *seed) {
	char *dst = memory(o->dst, o->bytes);
	if (dst == NULL || memory(o->src, o->bytes) == NULL) {
		lost = CUDA_ERROR_ILLEGAL_ADDRESS;
		return;
	}
	memset(dst, 0xDB, o->bytes);
	pass_time(seed);
	dst = memory(o->dst, o->bytes);
	char *src = memory(o->src, o->bytes);
	if (dst == NULL || src == NULL) {
		lost = CUDA_ERROR_ILLEGAL_ADDRESS;
		return;
	}
	memmove(dst, src, o->bytes);
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run(struct op *o, unsigned *seed) {
	char *at;
	switch (o->kind) {
	case COPY:
		copy(o, seed);
		break;
	case FILL:
		if ((at = memory(o->dst, o->bytes)) == NULL)
			lost = CUDA_ERROR_ILLEGAL_ADDRESS;
		else
			memset(at, (int)o->value, o->bytes);
		break;
	case WRITE:
		atomic_store((atomic_uint_fast64_t *)(o->dst - HOST_SHIFT), o->value);
		break;
	case RECORD:
		atomic_store(&o->event->points->nanos, now());
		if (atomic_load(&o->event->points->passed) < o->value)
			atomic_store(&o->event->points->passed, o->value);
		break;
	case WAIT:
		pthread_mutex_unlock(&lock);
		while (atomic_load(&o->event->points->passed) < o->value && lost == CUDA_SUCCESS)
			usleep(20);
		pthread_mutex_lock(&lock);
		break;
	}
}

// Each stream has a worker that does its work in order.
static void *work(void *arg) {
	CUstream s = arg;
	const char *text = getenv("KVACTOR_IMITATION_SEED");
	unsigned seed = (unsigned)(uintptr_t)s ^ (text != NULL ? (unsigned)atoi(text) * 2654435761u : 0);
	pthread_mutex_lock(&lock);
	for (;;) {
		while (s->first == NULL && !s->ending)
			pthread_cond_wait(&changed, &lock);
		if (s->first == NULL)
			break;
		pass_time(&seed);
		struct op *o = s->first;
		if (lost == CUDA_SUCCESS)
			run(o, &seed);
		if ((s->first = o->next) == NULL)
			s->last = NULL;
		free(o);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	free(s);
	return NULL;
}

// Puts work behind that of a stream, or into the graph that captures it.
CUresult queue(CUstream handle, struct op o) {
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (o.kind == WAIT && o.event->captured != NULL && s->capturing == NULL) {
		s->capturing = o.event->captured; // it joins
		s->worked = false;
	}
	if (s->capturing != NULL) {
		if (o.kind == WAIT) // an edge of the graph
			return o.event->captured == NULL ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
		if (o.kind == RECORD) {
			o.event->captured = s->capturing;
			return CUDA_SUCCESS;
		}
		s->capturing->nodes++;
		s->worked = true;
		return CUDA_SUCCESS;
	}
	if (o.kind == RECORD) {
		o.event->captured = NULL;
		o.value = atomic_fetch_add(&o.event->points->recorded, 1) + 1;
	}
	if (o.kind == WAIT)
		o.value = atomic_load(&o.event->points->recorded);
	struct op *p = malloc(sizeof *p);
	*p = o;
	p->next = NULL;
	if (s->last != NULL)
		s->last->next = p;
	else
		s->first = p;
	s->last = p;
	pthread_cond_broadcast(&changed);
	return CUDA_SUCCESS;
}

// Whether a call that no stream orders is refused on this thread because of a
// capture; the capture is broken then.
static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool forbidden(void) {
	bool yes = false;
	for (CUgraph g = captures; g != NULL; g = g->next) {
		bool mine = pthread_equal(g->thread, pthread_self());
		if (g->mode == CU_STREAM_CAPTURE_MODE_RELAXED || mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (mine || (g->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
			g->broken = yes = true;
	}
	return yes;
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m) {
	CUstreamCaptureMode was = mode;
	mode = *m;
	*m = was;
	return CUDA_SUCCESS;
}

API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode m) {
	BEGIN(true, false)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	CUgraph g = calloc(1, sizeof *g);
	g->mode = m, g->thread = pthread_self();
	g->next = captures, captures = g;
	s->capturing = g;
	END(CUDA_SUCCESS);
}

API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
	BEGIN(true, false)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL || s->capturing == NULL)
		END(CUDA_ERROR_ILLEGAL_STATE);
	CUgraph g = s->capturing;
	bool unjoined = false;
	for (struct CUstream_st *p = streams; p != NULL; p = p->next)
		if (p->capturing == g) {
			unjoined = unjoined || (p != s && p->worked);
			p->capturing = NULL;
		}
	CUgraph *at = &captures;
	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	*out = g;
	END(g->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS);
}

API CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) {
	(void)nodes;
	*n = (size_t)g->nodes;
	return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph g) {
	(void)g; // events may still name it
	return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
	(void)priority;
	BEGIN(true, true)
	if (flags != CU_STREAM_NON_BLOCKING)
		END(CUDA_ERROR_INVALID_VALUE);
	CUstream s = calloc(1, sizeof *s);
	cuCtxGetCurrent(&s->context);
	s->next = streams, streams = s;
	pthread_create(&s->worker, NULL, work, s);
	pthread_detach(s->worker);
	*out = s;
	END(CUDA_SUCCESS);
}

API CUresult cuStreamDestroy_v2(CUstream handle) {
	BEGIN(true, true)
	struct CUstream_st **at = &streams;
	while (*at != NULL && *at != handle)
		at = &(*at)->next;
	if (*at == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	*at = handle->next;
	handle->ending = true; // its worker does what is left
	pthread_cond_broadcast(&changed);
	END(CUDA_SUCCESS);
}

API CUresult cuStreamQuery(CUstream handle) {
	BEGIN(true, true)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	if (s->capturing != NULL)
		END(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	END(s->first != NULL ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

API CUresult cuStreamSynchronize(CUstream handle) {
	BEGIN(true, true)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	if (s->capturing != NULL)
		END(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	while (s->first != NULL && lost == CUDA_SUCCESS)
		pthread_cond_wait(&changed, &lock);
	END(lost);
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
	BEGIN(true, false)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	*out = s->context;
	END(CUDA_SUCCESS);
}

API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out) {
	BEGIN(true, false)
	struct CUstream_st *s = find_stream(handle);
	if (s == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	*out = s->capturing == NULL ? CU_STREAM_CAPTURE_STATUS_NONE :
	       s->capturing->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	END(CUDA_SUCCESS);
}

API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
	BEGIN(true, false)
	END(flags != 0 ? CUDA_ERROR_INVALID_VALUE : queue(s, (struct op){.kind = WAIT, .event = e}));
}

API CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned flags) {
	BEGIN(true, false)
	if (flags != 0 || at % 8 != 0 || at < HOST_SHIFT || memory(at, 8) == NULL)
		END(CUDA_ERROR_INVALID_VALUE);
	END(queue(s, (struct op){.kind = WRITE, .dst = at, .value = value}));
}

// Events that other processes may open are in shared memory under a name.
static struct points *shared_points(const char *name, bool make) {
	int fd = shm_open(name, O_RDWR | (make ? O_CREAT | O_EXCL : 0), 0600);
	if (fd < 0 || (make && ftruncate(fd, sizeof(struct points)) != 0))
		return NULL;
	void *p = mmap(NULL, sizeof(struct points), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
	static int made;
	BEGIN(true, true)
	CUevent e = calloc(1, sizeof *e);
	e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	if (flags & CU_EVENT_INTERPROCESS) {
		if (!(flags & CU_EVENT_DISABLE_TIMING))
			END(CUDA_ERROR_INVALID_VALUE);
		snprintf(e->name, sizeof e->name, "/kvactor-imitation-%d-%d", (int)getpid(), ++made);
		if ((e->points = shared_points(e->name, true)) == NULL)
			END(CUDA_ERROR_OUT_OF_MEMORY);
	} else {
		e->points = calloc(1, sizeof *e->points);
	}
	*out = e;
	END(CUDA_SUCCESS);
}

API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent e) {
	BEGIN(true, true)
	if (e->name[0] == 0)
		END(CUDA_ERROR_INVALID_HANDLE);
	memcpy(out->reserved, e->name, sizeof e->name);
	END(CUDA_SUCCESS);
}

API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle h) {
	BEGIN(true, true)
	h.reserved[63] = 0;
	struct points *p = shared_points(h.reserved, false);
	if (p == NULL)
		END(CUDA_ERROR_INVALID_HANDLE);
	CUevent e = calloc(1, sizeof *e);
	e->points = p;
	*out = e;
	END(CUDA_SUCCESS);
}

API CUresult cuEventRecord(CUevent e, CUstream s) {
	BEGIN(true, false)
	END(queue(s, (struct op){.kind = RECORD, .event = e}));
}

API CUresult cuEventQuery(CUevent e) {
	BEGIN(true, true)
	if (e->captured != NULL) {
		e->captured->broken = true;
		END(CUDA_ERROR_CAPTURED_EVENT);
	}
	END(atomic_load(&e->points->passed) < atomic_load(&e->points->recorded) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

API CUresult cuEventElapsedTime(float *millis, CUevent from, CUevent to) {
	BEGIN(true, true)
	if (!from->timed || !to->timed || atomic_load(&from->points->recorded) == 0 || atomic_load(&to->points->recorded) == 0)
		END(CUDA_ERROR_INVALID_HANDLE);
	if (atomic_load(&from->points->passed) < atomic_load(&from->points->recorded) ||
	    atomic_load(&to->points->passed) < atomic_load(&to->points->recorded))
		END(CUDA_ERROR_NOT_READY);
	*millis = (float)((double)(int64_t)(atomic_load(&to->points->nanos) - atomic_load(&from->points->nanos)) / 1e6);
	END(CUDA_SUCCESS);
}

API CUresult cuEventSynchronize(CUevent e) {
	BEGIN(true, true)
	if (e->captured != NULL) {
		e->captured->broken = true;
		END(CUDA_ERROR_CAPTURED_EVENT);
	}
	uint64_t number = atomic_load(&e->points->recorded);
	pthread_mutex_unlock(&lock);
	while (atomic_load(&e->points->passed) < number && lost == CUDA_SUCCESS)
		usleep(20);
	return lost;
}

API CUresult cuEventDestroy_v2(CUevent e) {
	BEGIN(true, true)
	if (e->name[0] != 0)
		shm_unlink(e->name);
	END(CUDA_SUCCESS); // work that is queued may still name it: it is not freed
}
