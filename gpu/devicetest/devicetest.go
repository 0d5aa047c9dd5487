package devicetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// Run checks a backend against the rules of gpu.Device.
func Run(t *testing.T, open func(*testing.T) gpu.Device) {
	cases := []struct {
		name string
		run  func(*testing.T, gpu.Device)
	}{
		{"round trips of many sizes", roundTrips},
		{"scattered batch", scatteredBatch},
		{"directions mixed in a batch", mixedBatch},
		{"zeros", zeros},
		{"runs of pages", runsOfPages},
		{"order across streams", orderAcrossStreams},
		{"waits and fences", waitsAndFences},
		{"empty batch carries its waits", emptyBatch},
		{"done and sync", doneAndSync},
		{"cancelled sync", cancelledSync},
		{"resize keeps pages", resizeKeepsPages},
		{"memory accounts", memoryAccounts},
		{"refusals", refusals},
		{"failure inside a batch", failureInBatch},
		{"failure inside a run", failureInRun},
		{"destroyed streams", destroyedStreams},
		{"closed device", closedDevice},
		{"random programs", randomPrograms},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dev := open(t)
			t.Cleanup(func() { _ = dev.Close() })
			c.run(t, dev)
		})
	}
}

// failer is a device that fails on demand.
type failer interface{ Fail(gpu.Direction, int) }

// as finds an ability of a device or of one it wraps.
func as[T any](dev gpu.Device) (ability T, ok bool) {
	for {
		if ability, ok = dev.(T); ok {
			return ability, true
		}
		w, wraps := dev.(interface{ Unwrap() gpu.Device })
		if !wraps {
			return ability, false
		}
		dev = w.Unwrap()
	}
}

// rig is a device with one pool and three streams.
type rig struct {
	t    testing.TB
	dev  gpu.Device
	pool gpu.Pool
	spec gpu.PoolSpec
	s    [3]gpu.Stream
}

// newRig makes the pool and the streams.
func newRig(t testing.TB, dev gpu.Device, spec gpu.PoolSpec) *rig {
	t.Helper()
	r := &rig{t: t, dev: dev, spec: spec}
	var err error
	r.pool, err = dev.CreatePool(spec)
	require.NoError(t, err)
	for i := range r.s {
		r.s[i], err = dev.NewStream(fmt.Sprintf("s%d", i))
		require.NoError(t, err)
	}
	return r
}

// device names a device page.
func (r *rig) device(page int) gpu.Slot {
	return gpu.Slot{Pool: r.pool, Tier: messages.Primary, Page: messages.PageID(page)}
}

// host names a host page.
func (r *rig) host(page int) gpu.Slot {
	return gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: messages.PageID(page)}
}

// whole copies a whole page.
func (r *rig) whole(src, dst gpu.Slot) gpu.Copy {
	return gpu.Copy{Src: src, Dst: dst, Bytes: r.spec.PageBytes}
}

// run copies so many whole pages.
func (r *rig) run(src, dst gpu.Slot, pages int) gpu.Copy {
	return gpu.Copy{Src: src, Dst: dst, Pages: int32(pages), Bytes: int64(pages) * r.spec.PageBytes}
}

// write fills a host page with a function of seed, rank and offset.
func (r *rig) write(page int, seed byte) {
	if sc, ok := as[gpu.HostWatcher](r.dev); ok {
		defer sc.HostWrite(r.host(page))()
	}
	for rank := range gpu.Ranks(r.dev) {
		b := gpu.HostShare(r.dev, rank, r.pool, messages.PageID(page))
		for i := range b {
			b[i] = pattern(seed^of(rank), i)
		}
	}
}

// pattern is byte i of a page with a seed. Bytes of equal offsets in pages of
// different seeds differ, and so do neighbours.
func pattern(seed byte, i int) byte { return seed ^ byte(i) ^ byte(i>>8)*31 }

// of changes the seed of a page for the share of one rank, so that no rank can have the
// bytes of another.
func of(rank int) byte { return byte(rank) * 89 }

// read returns a copy of a host page: the share of each rank.
func (r *rig) read(page int) (shares [][]byte) {
	if sc, ok := as[gpu.HostWatcher](r.dev); ok {
		defer sc.HostRead(r.host(page))()
	}
	for rank := range gpu.Ranks(r.dev) {
		shares = append(shares, slices.Clone(gpu.HostShare(r.dev, rank, r.pool, messages.PageID(page))))
	}
	return shares
}

// want demands a host page of the pattern.
func (r *rig) want(page int, seed byte) {
	r.t.Helper()
	for rank, share := range r.read(page) {
		for i, v := range share {
			if want := pattern(seed^of(rank), i); v != want {
				require.Failf(r.t, "wrong bytes", "rank %d, host page %d, byte %d: %#x, want %#x of pattern %d",
					rank, page, i, v, want, seed)
			}
		}
	}
}

// submit queues copies behind waits.
func (r *rig) submit(s gpu.Stream, waits []gpu.Ticket, copies ...gpu.Copy) gpu.Ticket {
	r.t.Helper()
	ticket, err := r.dev.Submit(s, &gpu.Batch{Label: "test", Waits: waits, Copies: copies})
	require.NoError(r.t, err)
	return ticket
}

// sync waits for a ticket, up to a time that means it will never pass.
func (r *rig) sync(ticket gpu.Ticket) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(r.t, r.dev.Sync(ctx, ticket))
	assert.True(r.t, r.dev.Done(ticket), "a ticket that Sync saw pass is done")
}

// on lists waits.
func on(t ...gpu.Ticket) []gpu.Ticket { return t }
