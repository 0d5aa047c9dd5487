package kvactor_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/offloader/stores"
)

// countingDevice counts the host memory that an engine asks for. Ranks are asked at once.
type countingDevice struct {
	gpu.Device
	hostBytes *atomic.Int64
}

func (c countingDevice) CreatePool(s gpu.PoolSpec) (gpu.Pool, error) {
	c.hostBytes.Add(int64(s.HostPages) * s.PageBytes)
	return c.Device.CreatePool(s)
}

var eightHeads = kvactor.Model{Layers: 2, KVHeads: []int{8}, HeadDim: 64, DType: kvactor.Float16,
	MaxSeqLen: 4096}

// An engine takes host_cache_size of host memory, with copies ahead of demand and a store, on
// each rank, and says what it is for.
func TestHostMemory(t *testing.T) {
	const asked = 64 << 20
	for _, ranks := range []int{1, 4} {
		for _, ahead := range []bool{true, false} {
			for _, store := range []bool{true, false} {
				t.Run(fmt.Sprint(ranks, ahead, store), func(t *testing.T) {
					var hostBytes atomic.Int64
					var devices []gpu.Device
					for range ranks {
						d, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
						require.NoError(t, err)
						devices = append(devices, countingDevice{d, &hostBytes})
					}
					device := devices[0]
					if ranks > 1 {
						all, err := group.New(devices...)
						require.NoError(t, err)
						device = all
					}
					share, err := eightHeads.OfRank(ranks)
					require.NoError(t, err)
					cache := kvactor.DefaultCache()
					cache.TokensPerBlock, cache.HostCacheSize, cache.OffloadAhead = 16, asked, ahead
					var log strings.Builder
					options := []actors.Option{actors.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}
					if store {
						options = append(options,
							actors.WithStore(actors.StoreConfig{Store: new(stores.Memory), Model: "m"}))
					}
					e, err := kvactor.Open(kvactor.Config{Model: share, Cache: cache, Device: device}, options...)
					require.NoError(t, err)
					defer shut(t, e)
					s, err := e.Stats(ctx)
					require.NoError(t, err)
					m, taken := s.Memory, hostBytes.Load()
					assert.Equal(t, int64(ranks*asked), taken)
					assert.Equal(t, taken, m.HostBytes())
					assert.Equal(t, []any{ranks, ahead, store}, []any{m.Ranks, m.AheadBytes > 0, m.SaveBytes > 0})
					pool, page := s.Pools[0], e.Pools()[0].PageBytes()*int64(ranks)
					assert.Equal(t, m.ContentBytes, int64(pool.Secondary.Total)*page)
					assert.Equal(t, m.DeviceBytes, int64(pool.Primary.Total)*page)
					assert.Contains(t, log.String(), fmt.Sprintf("memory.host_bytes=%d", taken))
				})
			}
		}
	}
}

// What is said of the device's memory follows a resize.
func TestDeviceBytesAfterResize(t *testing.T) {
	d, err := sim.New(sim.Config{MemoryBytes: 64 << 20})
	require.NoError(t, err)
	e, err := kvactor.Open(kvactor.Config{Model: eightHeads, Device: d,
		Pages: []kvactor.PageCounts{{Primary: 40}}})
	require.NoError(t, err)
	defer shut(t, e)
	for _, pages := range []int{40, 12, 30} {
		_, err := e.Resize(ctx, []int{pages})
		require.NoError(t, err)
		s, err := e.Stats(ctx)
		require.NoError(t, err)
		assert.Equal(t, int64(pages)*e.Pools()[0].PageBytes(), s.Memory.DeviceBytes)
	}
}

// Host memory that the machine does not have is refused before it is taken, with what it is for.
func TestHostMemoryNotFree(t *testing.T) {
	d, err := host.New(host.Config{MemoryBytes: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	memory, err := d.Memory()
	require.NoError(t, err)
	if memory.HostFree == 0 {
		t.Skip("the machine does not say what is free")
	}
	cache := kvactor.DefaultCache()
	cache.HostCacheSize = 1 << 44
	config := kvactor.Config{Model: eightHeads, Cache: cache, Device: d}
	_, err = kvactor.Open(config)
	assert.ErrorIs(t, err, kvactor.ErrConfigInvalid)
	assert.ErrorContains(t, err, "host pages take 17592186044416 bytes on 1 ranks")
	assert.ErrorContains(t, err, "for copies ahead of demand")
	config.Pages = []kvactor.PageCounts{{Primary: 8, Secondary: 1 << 27}}
	_, err = kvactor.Open(config)
	assert.ErrorIs(t, err, kvactor.ErrConfigInvalid)
	assert.ErrorContains(t, err, "are free")
}

// The records of an engine whose pages are all in use take about as much as is said.
func TestMetadata(t *testing.T) {
	const pages, hostPages, tpb = 20_000, 20_000, 16
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers have left
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = tpb
	model := kvactor.Model{Layers: 1, KVHeads: []int{1}, HeadDim: 1, DType: kvactor.Int8,
		MaxSeqLen: 1 << 16}
	counts := []kvactor.PageCounts{{Primary: pages, Secondary: hostPages}}
	before := heap()
	e, err := kvactor.Open(kvactor.Config{Model: model, Cache: cache, Device: device, Pages: counts})
	require.NoError(t, err)
	defer shut(t, e)
	tokens := make([]kvactor.Token, 1000*tpb)
	for i := range 45 {
		for at := range tokens {
			tokens[at] = kvactor.Token(i*len(tokens) + at)
		}
		s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: tokens})
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, len(tokens), kvactor.Ticket{}))
		require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
	}
	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	// A simulated device keeps its pages in the same memory.
	taken := heap() - before - stats.Memory.DeviceBytes - stats.Memory.HostBytes()
	assert.InEpsilon(t, stats.Memory.MetadataBytes, taken, 0.5)
}
