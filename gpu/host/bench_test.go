package host_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/host"
)

const benchBytes = 256 << 20 // of a batch: more than caches hold

// BenchmarkBatch copies scattered pages from one tier to the other, as offloading does.
// BenchmarkMemmove is what to compare it with.
func BenchmarkBatch(b *testing.B) {
	for _, page := range []int64{16 << 10, 128 << 10, 2 << 20} {
		b.Run(fmt.Sprintf("%dKiB", page>>10), func(b *testing.B) {
			n := int(benchBytes / page)
			r := newRig(b, host.Config{MemoryBytes: 1 << 30, Workers: runtime.GOMAXPROCS(0), Poison: true},
				gpu.PoolSpec{Name: "kv", PageBytes: page, DevicePages: n, HostPages: n})
			batch := gpu.Batch{}
			for i := range n {
				batch.Copies = append(batch.Copies, gpu.Copy{Src: r.slot(0, i*37%n), Dst: r.slot(1, i*91%n),
					Bytes: page})
			}
			b.SetBytes(benchBytes)
			for b.Loop() {
				done, err := r.Submit(r.a, &batch)
				require.NoError(b, err)
				require.NoError(b, r.Sync(b.Context(), done))
			}
		})
	}
}

// BenchmarkMemmove copies the same pages by as many goroutines, each its share.
func BenchmarkMemmove(b *testing.B) {
	for _, page := range []int{16 << 10, 128 << 10, 2 << 20} {
		b.Run(fmt.Sprintf("%dKiB", page>>10), func(b *testing.B) {
			r := newRig(b, host.Config{Poison: true}, gpu.PoolSpec{Name: "kv", PageBytes: benchBytes,
				HostPages: 2})
			src, dst := r.HostBytes(r.pool, 0), r.HostBytes(r.pool, 1)
			n, workers := benchBytes/page, runtime.GOMAXPROCS(0)
			b.SetBytes(benchBytes)
			for b.Loop() {
				var group sync.WaitGroup
				for w := range workers {
					group.Go(func() {
						for i := w * n / workers; i < (w+1)*n/workers; i++ {
							copy(dst[i*91%n*page:][:page], src[i*37%n*page:][:page])
						}
					})
				}
				group.Wait()
			}
		})
	}
}

// BenchmarkSmallBatch is the time from Submit to a passed ticket of one page of 4 KiB.
func BenchmarkSmallBatch(b *testing.B) {
	r := newRig(b, host.Config{}, spec)
	batch := gpu.Batch{Copies: []gpu.Copy{{Src: r.slot(0, 0), Dst: r.slot(1, 0),
		Bytes: spec.PageBytes}}}
	b.ReportAllocs()
	for b.Loop() {
		done, err := r.Submit(r.a, &batch)
		require.NoError(b, err)
		require.NoError(b, r.Sync(b.Context(), done))
	}
}
