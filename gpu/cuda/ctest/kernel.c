// Modules and launches of the imitation. A launch does what kernel.ptx says, a piece at a time
// and last first. Whether the kernel itself does so is for the test of its text, and for tests
// on a device.
#include "imitation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
	size_t bytes; // of its parameter
};

struct CUmod_st {
	char *text;
};

API CUresult cuModuleLoadData(CUmodule *out, const void *image) {
	pthread_mutex_lock(&lock);
	CUresult r = begin(__func__, true, true);
	if (r == CUDA_SUCCESS && strncmp(image, ".version ", 9) != 0)
		r = CUDA_ERROR_INVALID_PTX;
	for (const char *c = image; r == CUDA_SUCCESS && *c != 0; c++)
		if ((unsigned char)*c > 126)
			r = CUDA_ERROR_INVALID_PTX;
	if (r == CUDA_SUCCESS) {
		*out = calloc(1, sizeof **out);
		(*out)->text = strdup(image);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

API CUresult cuModuleUnload(CUmodule m) {
	pthread_mutex_lock(&lock);
	CUresult r = begin(__func__, true, true);
	if (r == CUDA_SUCCESS) {
		free(m->text);
		free(m);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
	char head[200];
	size_t bytes;
	pthread_mutex_lock(&lock);
	CUresult r = begin(__func__, true, true);
	pthread_mutex_unlock(&lock);
	if (r != CUDA_SUCCESS)
		return r;
	snprintf(head, sizeof head, ".visible .entry %s(.param .align 8 .b8 list[", name);
	const char *at = strstr(m->text, head);
	if (at == NULL || sscanf(at + strlen(head), "%zu]", &bytes) != 1)
		return CUDA_ERROR_NOT_FOUND;
	*out = calloc(1, sizeof **out); // kept: functions are the module's, and few
	(*out)->bytes = bytes;
	return CUDA_SUCCESS;
}

struct piece {
	CUdeviceptr dst, src;
	uint64_t size;
};

static CUresult launch(CUfunction f, CUstream s, const char *list) {
	uint32_t units, shift;
	memcpy(&units, list, 4);
	memcpy(&shift, list + 4, 4);
	size_t n = units >> shift;
	if (n == 0 || n << shift != units || 8 + n * sizeof(struct piece) > f->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	struct piece *pieces = malloc(n * sizeof *pieces);
	memcpy(pieces, list + 8, n * sizeof *pieces);
	CUresult r = CUDA_SUCCESS;
	for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++)
		r = check_copy(pieces[i].dst, pieces[i].src, pieces[i].size);
	for (size_t i = n; i-- > 0 && r == CUDA_SUCCESS;)
		r = queue(s, (struct op){.kind = COPY, .dst = pieces[i].dst, .src = pieces[i].src, .bytes = pieces[i].size});
	free(pieces);
	return r;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                            CUstream s, void **params, void **extra) {
	pthread_mutex_lock(&lock);
	CUresult r = begin(__func__, true, false);
	if (r == CUDA_SUCCESS && (gx == 0 || gy != 1 || gz != 1 || bx == 0 || bx % 32 != 0 || bx > 1024 || by != 1 || bz != 1 || shared != 0 || extra != NULL))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = launch(f, s, params[0]);
	pthread_mutex_unlock(&lock);
	return r;
}
