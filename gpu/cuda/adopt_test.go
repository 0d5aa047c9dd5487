//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

func (h *host) alloc(bytes int64) uint64 {
	h.t.Helper()
	require.Equal(h.t, success, h.call("cuMemAlloc_v2", address(&h.answer[0]), uintptr(bytes)))
	return h.answer[0]
}

func (h *host) free(at uint64) {
	require.Equal(h.t, success, h.call("cuMemFree_v2", uintptr(at)))
}

// adoptedTensors moves pages that are a piece in each of three tensors, as vLLM
// has them: K and V of layer 0 interleaved in one allocation, layer 1 apart.
func adoptedTensors(t *testing.T, h *host) {
	const pages, piece = 6, 1024
	kv, one := h.alloc(2*pages*piece), h.alloc(pages*2*piece)
	spec := gpu.PoolSpec{Name: "layers", PageBytes: 4 * piece, DevicePages: pages,
		HostPages: 2 * pages, Tensors: []gpu.Tensor{
			{Address: kv, PageBytes: piece, Stride: 2 * piece},
			{Address: kv + piece, PageBytes: piece, Stride: 2 * piece},
			{Address: one, PageBytes: 2 * piece, Stride: 2 * piece},
		}}
	p, err := h.d.CreatePool(spec)
	require.NoError(t, err)
	s, err := h.d.NewStream("s")
	require.NoError(t, err)
	slot := func(tier messages.Tier, page int) gpu.Slot {
		return gpu.Slot{Pool: p, Tier: tier, Page: messages.PageID(page)}
	}
	var in, out gpu.Batch
	for i := range pages {
		b := h.d.HostBytes(p, messages.PageID(i))
		for j := range b {
			b[j] = byte(i*31) ^ byte(j) ^ byte(j>>8)*5
		}
		in.Copies = append(in.Copies, gpu.Copy{Src: slot(messages.Secondary, i),
			Dst: slot(messages.Primary, pages-1-i), Bytes: spec.PageBytes})
		out.Copies = append(out.Copies, gpu.Copy{Src: slot(messages.Primary, pages-1-i),
			Dst: slot(messages.Secondary, pages+i), Bytes: spec.PageBytes})
	}
	_, err = h.d.Submit(s, &in)
	require.NoError(t, err)
	ticket, err := h.d.Submit(s, &out)
	require.NoError(t, err)
	require.NoError(t, h.d.Sync(context.Background(), ticket))
	for i := range pages {
		assert.Equal(t, h.d.HostBytes(p, messages.PageID(i)), h.d.HostBytes(p, messages.PageID(pages+i)),
			"page %d", i)
	}
	// A part of a page that begins in one tensor and ends in another.
	part := &gpu.Batch{Copies: []gpu.Copy{{Src: slot(messages.Primary, 5),
		Dst: slot(messages.Secondary, pages+3), SrcOffset: 1000, DstOffset: 50, Bytes: 2000}}}
	ticket, err = h.d.Submit(s, part)
	require.NoError(t, err)
	require.NoError(t, h.d.Sync(context.Background(), ticket))
	assert.Equal(t, h.d.HostBytes(p, 0)[1000:3000], h.d.HostBytes(p, pages+3)[50:2050])
	refuseForAdopted(t, h, p, spec)
	require.NoError(t, h.d.DestroyPool(p))
	h.free(kv)
	h.free(one)
}

// refuseForAdopted: what only the owner of the memory can do, and what is wrong.
func refuseForAdopted(t *testing.T, h *host, p gpu.Pool, spec gpu.PoolSpec) {
	require.ErrorIs(t, h.d.Resize(p, 3), ErrAdopted)
	_, err := h.d.Base(p)
	require.ErrorIs(t, err, ErrAdopted)
	_, err = h.d.Export(p)
	require.ErrorIs(t, err, ErrNotShared)
	tensors := spec.Tensors
	for want, change := range map[string]func(){
		"hold 3072 bytes of each page, which has 4096": func() {
			spec.Tensors = tensors[:0:0]
			spec.Tensors = append(spec.Tensors, tensors[0], tensors[2])
		},
		"tensors 0 and 1 overlap": func() {
			spec.Tensors[1].Address = spec.Tensors[0].Address + 512
		},
		"from one page to the next": func() { spec.Tensors[2].Stride = 100 },
		"tensor 2 at":               func() { spec.Tensors[2].Address += 1 << 40 },
		"at most 99 device pages":   func() { spec.MaxDevicePages = 99 },
	} {
		whole := spec
		spec.Tensors = append([]gpu.Tensor(nil), tensors...)
		change()
		_, err := h.d.CreatePool(spec)
		assert.ErrorContains(t, err, want)
		spec = whole
	}
}

// memoryOfTheHost: the host tier over memory that the host has mapped, also when
// the host has registered it before, or has got it from the driver.
func memoryOfTheHost(t *testing.T, h *host) {
	mapped, err := mapMemory(8 * 4096)
	require.NoError(t, err)
	spec := gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 8, HostPages: 8}
	require.Equal(t, success, h.call("cuMemHostAlloc", address(&h.answer[0]), 8*4096, 0))
	allocated := unsafe.Slice((*byte)(pointer(uintptr(h.answer[0]))), 8*4096)
	for _, is := range []string{"mapped", "registered", "allocated"} {
		memory, registered := mapped, is == "registered"
		if is == "allocated" {
			memory = allocated
		}
		spec.HostMemory = memory
		if registered {
			h.own(fnMemHostRegister, address(&memory[0]), uintptr(len(memory)), portableMapped)
		}
		memory[3*4096+5] = 77
		p, err := h.d.CreatePool(spec)
		require.NoError(t, err)
		s, err := h.d.NewStream("s")
		require.NoError(t, err)
		assert.Same(t, &memory[3*4096], &h.d.HostBytes(p, 3)[0], "what the host has put there stays")
		for _, c := range []gpu.Copy{
			{Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: 3}, Dst: gpu.Slot{Pool: p, Page: 1},
				Bytes: 4096},
			{Src: gpu.Slot{Pool: p, Page: 1}, Dst: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: 6},
				Bytes: 4096},
		} {
			ticket, err := h.d.Submit(s, &gpu.Batch{Copies: []gpu.Copy{c}})
			require.NoError(t, err)
			require.NoError(t, h.d.Sync(context.Background(), ticket))
		}
		assert.EqualValues(t, 77, memory[6*4096+5])
		require.NoError(t, h.d.DestroyPool(p))
		memory[0]++ // it is still mapped
		if registered {
			h.own(fnMemHostUnregister, address(&memory[0]))
		}
	}
	require.Equal(t, success, h.call("cuMemFreeHost", address(&allocated[0])))
	spec.HostMemory = mapped
	h.own(fnMemHostRegister, address(&mapped[0]), 4*4096, portableMapped)
	_, err = h.d.CreatePool(spec)
	assert.ErrorContains(t, err, "pool kv, host pages from 0 on, last byte",
		"half of it is not registered")
	h.own(fnMemHostUnregister, address(&mapped[0]))
	spec.HostMemory = mapped[1:]
	_, err = h.d.CreatePool(spec)
	assert.ErrorContains(t, err, "8 pages of 4096 bytes are needed, from a multiple of 4096 on")
	assert.NotZero(t, uintptr(unsafe.Pointer(&mapped[0])))
}
