//go:build torch

// Command torchtest is a C library of an engine for host.py, a host application in Python that
// has its KV tensors, its stream and its kernels from PyTorch. Package cuda runs with cgo and
// inside of another program's process here. run.sh builds it and runs the host.
package main

// #include <stdint.h>
import "C"

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/cuda"
)

// host is what the library keeps between calls, which come one at a time.
type host struct {
	device    *cuda.Device
	engine    *kvactor.Engine
	stream    gpu.Stream // PyTorch's
	sequences map[int64]*kvactor.Sequence
}

var open *host

func main() {}

// shape is what host.py says of its model and memory, in the order of its fields.
type shape struct {
	Layers, KVHeads, HeadDim, TokensPerBlock, DevicePages, HostPages int64
	Stream                                                           uint64 // a CUstream
	// an address, 0: the engine's own
	HostMemory uint64
	// the addresses of the layers' tensors; 0: the engine's own memory
	Tensors uint64
}

// kv_open opens the device and an engine over the tensors of the layers. The caller gets the
// base address of the device memory if that is the engine's own.
//
//export kv_open
func kv_open(at *C.uint64_t, base *C.uint64_t) C.int {
	s := (*shape)(unsafe.Pointer(at))
	opened, err := cuda.Open(cuda.Options{})
	if err != nil {
		return failed(err)
	}
	h := &host{device: opened.(*cuda.Device), sequences: map[int64]*kvactor.Sequence{}}
	if h.stream, err = h.device.External("torch", uintptr(s.Stream)); err != nil {
		return failed(err)
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = int(s.TokensPerBlock)
	config := kvactor.Config{
		Model: kvactor.Model{Layers: int(s.Layers), KVHeads: []int{int(s.KVHeads)},
			HeadDim: int(s.HeadDim), DType: kvactor.Float16, MaxSeqLen: 8192},
		Cache: cache, Device: h.device,
		Pages:  []kvactor.PageCounts{{Primary: int(s.DevicePages), Secondary: int(s.HostPages)}},
		Memory: []kvactor.PoolMemory{{}},
	}
	// keys and values of a layer, 2 bytes each
	piece := 2 * 2 * s.KVHeads * s.HeadDim * s.TokensPerBlock
	if s.Tensors != 0 {
		for _, address := range unsafe.Slice((*uint64)(pointer(s.Tensors)), s.Layers) {
			config.Memory[0].Tensors = append(config.Memory[0].Tensors,
				gpu.Tensor{Address: address, PageBytes: piece, Stride: piece})
		}
	}
	if s.HostMemory != 0 {
		config.Memory[0].Host = unsafe.Slice((*byte)(pointer(s.HostMemory)), s.HostPages*s.Layers*piece)
	}
	if h.engine, err = kvactor.Open(config); err != nil {
		return failed(err)
	}
	if s.Tensors == 0 {
		address, err := h.device.Base(h.engine.DevicePools()[0])
		if err != nil {
			return failed(err)
		}
		*base = C.uint64_t(address)
	}
	open = h
	return 0
}

// pointer is the address of memory that is not Go's.
func pointer(address uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// kv_admit admits a prompt and makes the stream wait until its pages may be used. It answers
// the number of the sequence, its pages in table and the number of reused tokens.
//
//export kv_admit
func kv_admit(tokens *C.int32_t, n C.int, table *C.int32_t, reused *C.int32_t) C.int64_t {
	q, err := open.engine.Admit(context.Background(), kvactor.AdmitRequest{
		Tokens: append([]kvactor.Token(nil), unsafe.Slice((*kvactor.Token)(unsafe.Pointer(tokens)),
			n)...),
	})
	if err != nil {
		return C.int64_t(failed(err))
	}
	if err := open.device.Wait(open.stream, q.Ready()...); err != nil {
		return C.int64_t(failed(err))
	}
	pages := q.Tables()[0][0]
	copy(unsafe.Slice((*kvactor.PageID)(unsafe.Pointer(table)), len(pages)), pages)
	*reused = C.int32_t(q.Reused())
	open.sequences[int64(q.ID())] = q
	return C.int64_t(q.ID())
}

// kv_finish commits a sequence and releases it behind what PyTorch has queued on its stream.
//
//export kv_finish
func kv_finish(id C.int64_t) C.int {
	q := open.sequences[int64(id)]
	delete(open.sequences, int64(id))
	after, err := open.device.Fence(open.stream)
	if err == nil {
		err = q.Commit(context.Background(), q.Len(), after)
	}
	if err == nil {
		err = q.Release(context.Background(), after)
	}
	if err != nil {
		return failed(err)
	}
	return 0
}

// kv_stats answers pages copied to host memory, pages brought back, bytes of a page.
//
//export kv_stats
func kv_stats(out *C.int64_t) C.int {
	stats, err := open.engine.Stats(context.Background())
	if err != nil {
		return failed(err)
	}
	to := unsafe.Slice((*int64)(unsafe.Pointer(out)), 3)
	for _, p := range stats.Pools {
		to[0] += int64(p.Offloaded)
		to[1] += int64(p.Onboarded)
	}
	to[2] = open.engine.Pools()[0].PageBytes()
	return 0
}

// kv_close checks the engine and closes it and the device; the tensors stay PyTorch's.
//
//export kv_close
func kv_close() C.int {
	h := open
	open = nil
	if err := h.engine.Check(context.Background()); err != nil {
		return failed(err)
	}
	leaked, err := h.engine.Close(context.Background())
	if err == nil && leaked != 0 {
		err = fmt.Errorf("%d pages are leaked", leaked)
	}
	if err == nil {
		err = h.device.Close()
	}
	if err != nil {
		return failed(err)
	}
	return 0
}

// failed says what went wrong.
func failed(err error) C.int {
	fmt.Fprintln(os.Stderr, "torchtest:", err)
	return -1
}
