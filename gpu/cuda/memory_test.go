//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// overChunks moves a run of pages that lies in many chunks of device memory, which a growing
// pool has got one after the other, as one descriptor of a batch call.
func overChunks(t *testing.T, d *Device) {
	const page, pages = 1 << 20, 200
	p, err := d.CreatePool(gpu.PoolSpec{Name: "grown", PageBytes: page, DevicePages: 3,
		HostPages: 2 * pages, MaxDevicePages: pages})
	require.NoError(t, err)
	for _, n := range []int{40, 41, 130, pages} {
		require.NoError(t, d.Resize(p, n))
	}
	require.Greater(t, len(d.pools[p].chunks), 3)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	for i := range pages {
		fill(d.HostBytes(p, messages.PageID(i)), byte(i))
	}
	run := func(tier messages.Tier, from, n int) gpu.Slot {
		require.LessOrEqual(t, from+n, 2*pages)
		return gpu.Slot{Pool: p, Tier: tier, Page: messages.PageID(from)}
	}
	// Two descriptors: a single one would not be a batch.
	move := func(in bool, host int) gpu.Batch {
		b := gpu.Batch{}
		for _, part := range []struct{ device, host, n int }{{0, host, pages - 7},
			{pages - 6, host + pages - 6, 6}} {
			c := gpu.Copy{Src: run(messages.Secondary, part.host, part.n),
				Dst: run(messages.Primary, part.device, part.n), Pages: int32(part.n),
				Bytes: int64(part.n) * page}
			if !in {
				c.Src, c.Dst = c.Dst, c.Src
			}
			b.Copies = append(b.Copies, c)
		}
		return b
	}
	in, out := move(true, 0), move(false, pages)
	ticket, err := d.Submit(s, &in)
	require.NoError(t, err)
	out.Waits = []gpu.Ticket{ticket}
	ticket, err = d.Submit(s, &out)
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background(), ticket))
	for i := range pages {
		if i != pages-7 { // it is in neither part
			want := bytes.Repeat([]byte{byte(i)}, page)
			require.True(t, bytes.Equal(want, d.HostBytes(p, messages.PageID(pages+i))), "page %d", i)
		}
	}
	require.NoError(t, d.DestroyPool(p))
}

// bytesBeforeCounters asks for a ticket until it has passed, and looks at the bytes at once:
// whoever sees the counter of a stream must see the bytes of the copies before it.
func bytesBeforeCounters(t *testing.T, d *Device) {
	const page, pages = 16 << 10, 4
	p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: 2 * pages,
		HostPages: 2*pages + pages})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	load := &gpu.Batch{}
	for i := range 2 * pages {
		fill(d.HostBytes(p, messages.PageID(i)), byte(i+1))
		load.Copies = append(load.Copies, gpu.Copy{Bytes: page,
			Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: messages.PageID(i)},
			Dst: gpu.Slot{Pool: p, Page: messages.PageID(i)}})
	}
	ticket, err := d.Submit(s, load)
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background(), ticket))
	rounds := 20000
	if testing.Short() {
		rounds = 500
	}
	b := &gpu.Batch{}
	for round := range rounds {
		b.Copies = b.Copies[:0]
		for i := range pages { // backwards on one side, so that each is a descriptor
			from := round%2*pages + i
			b.Copies = append(b.Copies,
				gpu.Copy{Bytes: page, Src: gpu.Slot{Pool: p, Page: messages.PageID(from)},
					Dst: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: messages.PageID(3*pages - 1 - i)}})
		}
		ticket, err := d.Submit(s, b)
		require.NoError(t, err)
		for !d.Done(ticket) {
		}
		for i := range pages {
			got, want := d.HostBytes(p, messages.PageID(3*pages-1-i)), byte(round%2*pages+i+1)
			if got[0] != want || got[page/2] != want || got[page-1] != want {
				require.Failf(t, "bytes are late", "round %d, page %d: %d %d %d, not %d", round, i, got[0],
					got[page/2], got[page-1], want)
			}
		}
	}
	require.NoError(t, d.DestroyPool(p))
}

// timesOfPools says how long memory of pools takes: 16 budgets on the device, 4 of the host.
func timesOfPools(t *testing.T, d *Device, budget int64) {
	const page = 2 << 20
	spec := gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: int(16 * budget / page),
		HostPages: int(4 * budget / page)}
	free, err := d.Memory()
	require.NoError(t, err)
	if spec.DevicePages == 0 || free.Free < 20*budget {
		t.Skipf("%d bytes of device memory are free", free.Free)
	}
	took := func(what string, bytes int64, f func() error) {
		began := time.Now()
		require.NoError(t, f())
		t.Logf("%s: %d MiB in %.1f ms", what, bytes>>20, time.Since(began).Seconds()*1e3)
	}
	for _, part := range []struct {
		name         string
		device, host int
	}{{"device memory", spec.DevicePages, 0}, {"host memory", 0, spec.HostPages}} {
		s := spec
		s.DevicePages, s.HostPages, s.MaxDevicePages = part.device, part.host, spec.DevicePages
		var p gpu.Pool
		bytes := int64(part.device+part.host) * page
		took("create "+part.name, bytes, func() (err error) { p, err = d.CreatePool(s); return err })
		if part.host == 0 {
			took("shrink to half", bytes/2, func() error { return d.Resize(p, part.device/2) })
			took("grow again", bytes/2, func() error { return d.Resize(p, part.device) })
		}
		took("destroy "+part.name, bytes, func() error { return d.DestroyPool(p) })
	}
}

// timesOfBatches says what batches of few and many pieces cost by a kernel and by the copy
// engines: medians of the time until they are done, and of the time that Submit takes.
func timesOfBatches(t *testing.T) {
	pieces, rounds := []int{1, 2, 4, 8, 32, 256}, 15
	if testing.Short() {
		pieces, rounds = pieces[2:4], 1
	}
	for _, way := range []gpu.Direction{gpu.Offload, gpu.Onboard, gpu.Local} {
		for _, page := range []int64{4 << 10, 16 << 10, 32 << 10, 128 << 10} {
			for _, n := range pieces {
				line := fmt.Sprintf("%-8s %6d bytes x %3d:", way, page, n)
				for _, kernel := range []bool{false, true} {
					done, submit := timeOfBatch(t, kernel, way, page, n, rounds)
					line += fmt.Sprintf("  %s %7.1f us, submit %6.1f us",
						map[bool]string{false: "engines", true: "kernel"}[kernel], done, submit)
				}
				t.Log(line)
			}
		}
	}
}

// timeOfBatch answers medians in microseconds.
func timeOfBatch(
	t *testing.T, kernel bool, way gpu.Direction, page int64, n, rounds int,
) (done, submit float64) {
	opened, err := Open(Options{NoKernel: !kernel, KernelBelow: 1 << 30})
	require.NoError(t, err)
	d := opened.(*Device)
	d.copies.kernel.fewest = 1
	p, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: 4 * n,
		HostPages: 4 * n})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	b := &gpu.Batch{Copies: scattered(p, way, n, page, 0)}
	var all, queued []float64
	for range rounds {
		began := time.Now()
		ticket, err := d.Submit(s, b)
		queued = append(queued, time.Since(began).Seconds()*1e6)
		require.NoError(t, err)
		for !d.Done(ticket) {
		}
		all = append(all, time.Since(began).Seconds()*1e6)
	}
	require.NoError(t, d.Close())
	slices.Sort(all)
	slices.Sort(queued)
	return all[rounds/2], queued[rounds/2]
}
