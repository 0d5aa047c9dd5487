//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// engineOverMemory: an engine keeps its pages in a tensor of the host's for each layer
// and offloads to memory of the host's; what comes back is what was computed.
func engineOverMemory(t *testing.T, h *host) {
	const pages, piece, page = 4, 128, 256 // 4 tokens, keys and values, 8 × 2 bytes, 2 layers
	layers := []uint64{h.alloc(pages * piece), h.alloc(pages * piece)}
	memory, err := mapMemory(4096)
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 4
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{
			Layers: 2, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Cache: cache, Device: h.d, Pages: []kvactor.PageCounts{{Primary: pages, Secondary: 4}},
		Memory: []kvactor.PoolMemory{{Host: memory, Tensors: []gpu.Tensor{
			{Address: layers[0], PageBytes: piece, Stride: piece},
			{Address: layers[1], PageBytes: piece, Stride: piece},
		}}},
	})
	require.NoError(t, err)
	own, err := h.d.CreatePool(gpu.PoolSpec{Name: "computed", PageBytes: page, HostPages: 1})
	require.NoError(t, err)
	stream, err := h.d.NewStream("compute")
	require.NoError(t, err)
	move := func(q *kvactor.Sequence, block int, out bool) {
		c := gpu.Copy{Src: gpu.Slot{Pool: own, Tier: messages.Secondary}, Bytes: page,
			Dst: gpu.Slot{Pool: e.DevicePools()[0], Page: q.Tables()[0][0][block]}}
		if out {
			c.Src, c.Dst = c.Dst, c.Src
		}
		ticket, err := h.d.Submit(stream, &gpu.Batch{Waits: q.Ready(), Copies: []gpu.Copy{c}})
		require.NoError(t, err)
		require.NoError(t, h.d.Sync(context.Background(), ticket))
	}
	value := func(from, block int) []byte {
		return append(bytes.Repeat([]byte{byte(from)}, piece),
			bytes.Repeat([]byte{byte(block + 1)}, piece)...)
	}
	ctx := context.Background()
	run := func(from, tokens, reused int) {
		prompt := make([]kvactor.Token, tokens)
		for i := range prompt {
			prompt[i] = kvactor.Token(from + i)
		}
		q, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: prompt})
		require.NoError(t, err)
		require.Equal(t, reused, q.Reused())
		for block := range tokens / 4 {
			if block >= reused/4 {
				copy(h.d.HostBytes(own, 0), value(from, block))
				move(q, block, false)
				continue
			}
			clear(h.d.HostBytes(own, 0))
			move(q, block, true)
			assert.Equal(t, value(from, block), h.d.HostBytes(own, 0), "block %d from %d", block, from)
		}
		require.NoError(t, q.Commit(ctx, tokens, kvactor.Ticket{}))
		require.NoError(t, q.Release(ctx, kvactor.Ticket{}))
	}
	run(10, 9, 0)
	run(60, 16, 0) // takes all device pages
	assert.True(t, bytes.Contains(memory, value(10, 0)), "the first prompt lies in the host's memory")
	run(10, 9, 8)
	_, err = e.Resize(ctx, []int{3})
	require.ErrorIs(t, err, messages.ErrNotSupported)
	leaked, err := e.Close(ctx)
	require.NoError(t, err)
	assert.Zero(t, leaked)
	h.free(layers[0])
	h.free(layers[1])
}
