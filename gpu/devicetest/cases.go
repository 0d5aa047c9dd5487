package devicetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

var small = gpu.PoolSpec{Name: "small", PageBytes: 4096, DevicePages: 8, HostPages: 8,
	MaxDevicePages: 32}

// roundTrips moves ranges host → device → device → host and looks at what came
// back and at the bytes beside it.
func roundTrips(t *testing.T, dev gpu.Device) {
	const page = 1 << 16
	r := newRig(t, dev, gpu.PoolSpec{Name: "p", PageBytes: page, DevicePages: 3, HostPages: 3})
	for _, n := range []int64{1, 3, 16, 255, 256, 4095, 4096, 28 << 10, page - 1, page} {
		for _, at := range []int64{0, 1, 64, 4096, page - n} {
			if at < 0 || at+n > page {
				continue
			}
			back := page - n - min(at, page-n)
			r.write(0, byte(n))
			r.write(1, 77)
			a := r.submit(r.s[0], nil,
				gpu.Copy{Src: r.host(0), Dst: r.device(0), SrcOffset: at, DstOffset: back, Bytes: n})
			b := r.submit(r.s[1], on(a),
				gpu.Copy{Src: r.device(0), Dst: r.device(2), SrcOffset: back, DstOffset: at, Bytes: n})
			c := r.submit(r.s[2], on(b),
				gpu.Copy{Src: r.device(2), Dst: r.host(1), SrcOffset: at, DstOffset: back, Bytes: n})
			r.sync(c)
			for rank, got := range r.read(1) {
				for i := range got {
					want := pattern(77^of(rank), i)
					if int64(i) >= back && int64(i) < back+n {
						want = pattern(byte(n)^of(rank), i-int(back)+int(at))
					}
					if got[i] != want {
						require.Failf(t, "wrong bytes", "%d bytes at %d: byte %d of rank %d is %#x, want %#x", n, at,
							i, rank, got[i], want)
					}
				}
			}
		}
	}
}

// scatteredBatch moves pages that do not adjoin, in one batch each way.
func scatteredBatch(t *testing.T, dev gpu.Device) {
	const n = 64
	r := newRig(t, dev, gpu.PoolSpec{Name: "p", PageBytes: 8192, DevicePages: n, HostPages: 2 * n})
	var in, out []gpu.Copy
	for i := range n {
		r.write(i, byte(i))
		in = append(in, r.whole(r.host(i), r.device(i*37%n)))
		out = append(out, r.whole(r.device(i*37%n), r.host(n+i)))
	}
	r.sync(r.submit(r.s[1], on(r.submit(r.s[0], nil, in...)), out...))
	for i := range n {
		r.want(n+i, byte(i))
	}
}

// zeros fills pages and parts of pages with zeros, beside copies in the same batch,
// and refuses zeros that have a source or lie in host memory.
func zeros(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	zero := func(page int, at, n int64) gpu.Copy {
		return gpu.Copy{Src: r.device(page), Dst: r.device(page), SrcOffset: at, DstOffset: at, Bytes: n,
			Zero: true}
	}
	r.write(0, 1)
	var in []gpu.Copy
	for page := range 4 {
		in = append(in, r.whole(r.host(0), r.device(page)))
	}
	first := r.submit(r.s[0], nil, in...)
	run := zero(1, 0, 2*small.PageBytes)
	run.Pages = 2
	filled := r.submit(r.s[1], on(first), zero(0, 64, 128), r.whole(r.device(3), r.device(4)), run)
	r.sync(r.submit(r.s[2], on(filled), r.whole(r.device(0), r.host(1)),
		r.whole(r.device(1), r.host(2)),
		r.whole(r.device(2), r.host(3)), r.whole(r.device(4), r.host(4))))
	for page, clear := range []span{{64, 192}, {0, small.PageBytes}, {0, small.PageBytes}, {0, 0}} {
		for rank, got := range r.read(page + 1) {
			for i := range got {
				want := pattern(1^of(rank), i)
				if int64(i) >= clear.from && int64(i) < clear.to {
					want = 0
				}
				require.Equalf(t, want, got[i], "rank %d, host page %d, byte %d", rank, page+1, i)
			}
		}
	}
	moved := zero(0, 0, 64)
	moved.Src = r.device(1)
	inHost := gpu.Copy{Src: r.host(0), Dst: r.host(0), Bytes: 64, Zero: true}
	for _, wrong := range []gpu.Copy{moved, inHost} {
		_, err := dev.Submit(r.s[0], &gpu.Batch{Copies: []gpu.Copy{wrong}})
		assert.Error(t, err)
	}
}

// span is a range of bytes of a page.
type span struct{ from, to int64 }

// mixedBatch has copies of all directions in one batch.
func mixedBatch(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 1)
	r.write(1, 2)
	first := r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	mixed := r.submit(r.s[0], on(first),
		r.whole(r.host(1), r.device(1)), r.whole(r.device(0), r.host(2)),
		r.whole(r.device(0), r.device(2)))
	r.sync(r.submit(r.s[1], on(mixed), r.whole(r.device(1), r.host(3)),
		r.whole(r.device(2), r.host(4))))
	r.want(2, 1)
	r.want(3, 2)
	r.want(4, 1)
}

// orderAcrossStreams uses one page on stream after stream, each reuse behind
// the read before it.
func orderAcrossStreams(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	for i := range 8 {
		r.write(i, byte(i))
	}
	var last gpu.Ticket
	for i := range 7 {
		in := r.submit(r.s[i%2], on(last), r.whole(r.host(i+1), r.device(0)))
		last = r.submit(r.s[2], on(in), r.whole(r.device(0), r.host(i)))
	}
	r.sync(last)
	for i := range 7 {
		r.want(i, byte(i+1))
	}
}

// waitsAndFences orders streams by Wait and Fence alone, also a stream without work.
func waitsAndFences(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 9)
	r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	fence, err := dev.Fence(r.s[0])
	require.NoError(t, err)
	require.NoError(t, dev.Wait(r.s[1], fence, gpu.Ticket{}))
	through, err := dev.Fence(r.s[1])
	require.NoError(t, err)
	// s2 learns of the copy through a fence on a stream that only waited.
	r.sync(r.submit(r.s[2], on(through), r.whole(r.device(0), r.host(1))))
	r.want(1, 9)

	idle, err := dev.NewStream("idle")
	require.NoError(t, err)
	fence, err = dev.Fence(idle)
	require.NoError(t, err)
	r.sync(fence)
}

// emptyBatch: a batch without copies is a point that comes after its waits.
func emptyBatch(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 5)
	a := r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	b := r.submit(r.s[1], on(a))
	r.sync(r.submit(r.s[2], on(b), r.whole(r.device(0), r.host(1))))
	r.want(1, 5)
}

// doneAndSync: tickets of a stream pass in order, and the zero ticket has passed.
func doneAndSync(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	assert.True(t, dev.Done(gpu.Ticket{}), "the zero ticket has passed")
	r.sync(gpu.Ticket{})
	r.write(0, 5)
	a := r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	b := r.submit(r.s[0], nil, r.whole(r.device(0), r.host(1)))
	r.sync(b)
	assert.True(t, dev.Done(a), "a stream passes its tickets in order")
	r.want(1, 5)
}

// cancelledSync: a Sync ends with its context and leaves the ticket as it was.
func cancelledSync(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 5)
	a := r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// The ticket may have passed already; otherwise the context's end shows.
	if err := dev.Sync(ctx, a); err != nil {
		assert.ErrorIs(t, err, context.Canceled)
	}
	r.sync(a)
}

// resizeKeepsPages grows and shrinks a pool: pages that stay keep number and bytes.
func resizeKeepsPages(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	for i := range 4 {
		r.write(i, byte(i+1))
	}
	in := r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)), r.whole(r.host(1), r.device(7)))
	r.sync(in)
	require.NoError(t, dev.Resize(r.pool, 32))
	far := r.submit(r.s[0], nil, r.whole(r.host(2), r.device(31)))
	out := r.submit(r.s[1], on(far), r.whole(r.device(0), r.host(4)), r.whole(r.device(7), r.host(5)),
		r.whole(r.device(31), r.host(6)))
	r.sync(out)
	r.want(4, 1)
	r.want(5, 2)
	r.want(6, 3)
	require.NoError(t, dev.Resize(r.pool, 8))
	r.sync(r.submit(r.s[1], nil, r.whole(r.device(7), r.host(6))))
	r.want(6, 2)
	_, err := dev.Submit(r.s[1], &gpu.Batch{Copies: []gpu.Copy{r.whole(r.device(8), r.host(0))}})
	assert.Error(t, err, "a page that went is no page")
	assert.Error(t, dev.Resize(r.pool, 33), "a pool does not outgrow its bound")
}

// memoryAccounts: what pools take and return shows in Memory, and more than there is
// is refused by name.
func memoryAccounts(t *testing.T, dev gpu.Device) {
	before, err := dev.Memory()
	require.NoError(t, err)
	r := newRig(t, dev, gpu.PoolSpec{Name: "p", PageBytes: 1 << 20, DevicePages: 4, HostPages: 1,
		MaxDevicePages: 8})
	with, err := dev.Memory()
	require.NoError(t, err)
	assert.Equal(t, before.Total, with.Total)
	assert.LessOrEqual(t, with.Free, before.Free-4<<20)
	require.NoError(t, dev.Resize(r.pool, 8))
	grown, err := dev.Memory()
	require.NoError(t, err)
	assert.LessOrEqual(t, grown.Free, before.Free-8<<20)
	require.NoError(t, dev.DestroyPool(r.pool))
	after, err := dev.Memory()
	require.NoError(t, err)
	assert.Greater(t, after.Free, grown.Free)
	_, err = dev.CreatePool(gpu.PoolSpec{Name: "huge", PageBytes: 1 << 20,
		DevicePages: int(before.Total>>20) + 1})
	assert.ErrorIs(t, err, gpu.ErrOutOfMemory)
}

// refusals are the calls that no device may carry out.
func refusals(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	one := r.spec.PageBytes
	bad := []struct {
		name   string
		copies []gpu.Copy
	}{
		{"host to host", []gpu.Copy{r.whole(r.host(0), r.host(1))}},
		{"no such device page", []gpu.Copy{r.whole(r.host(0), r.device(8))}},
		{"no such host page", []gpu.Copy{r.whole(r.host(8), r.device(0))}},
		{"no page", []gpu.Copy{r.whole(r.host(0), r.device(int(messages.NoPage)))}},
		{"no such pool", []gpu.Copy{{Src: gpu.Slot{Pool: r.pool + 99}, Dst: r.device(0), Bytes: 1}}},
		{"nothing", []gpu.Copy{{Src: r.host(0), Dst: r.device(0)}}},
		{"past the source's end",
			[]gpu.Copy{{Src: r.host(0), Dst: r.device(0), SrcOffset: 1, Bytes: one}}},
		{"past the destination's end",
			[]gpu.Copy{{Src: r.host(0), Dst: r.device(0), DstOffset: 1, Bytes: one}}},
		{"before the beginning", []gpu.Copy{{Src: r.host(0), Dst: r.device(0), SrcOffset: -1, Bytes: 1}}},
		{"two to one page", []gpu.Copy{r.whole(r.host(0), r.device(0)), r.whole(r.host(1), r.device(0))}},
		{"a run past the device's end", []gpu.Copy{r.run(r.host(0), r.device(5), 4)}},
		{"a run past the host's end", []gpu.Copy{r.run(r.host(5), r.device(0), 4)}},
		{"a run of parts", []gpu.Copy{{Src: r.host(0), Dst: r.device(0), Pages: 2, Bytes: one}}},
		{"a run that is uneven",
			[]gpu.Copy{{Src: r.host(0), Dst: r.device(0), Pages: 2, Bytes: 2*one - 1}}},
		{"a run that begins inside",
			[]gpu.Copy{{Src: r.host(0), Dst: r.device(0), SrcOffset: one / 2, DstOffset: one / 2, Pages: 2,
				Bytes: 2 * one}}},
		{"a run and one of its pages", []gpu.Copy{r.run(r.host(0), r.device(0), 4),
			r.whole(r.host(5), r.device(2))}},
		{"a run into itself", []gpu.Copy{r.run(r.device(0), r.device(2), 4)}},
		{"chained", []gpu.Copy{r.whole(r.host(0), r.device(0)), r.whole(r.device(0), r.device(1))}},
	}
	for _, c := range bad {
		_, err := dev.Submit(r.s[0], &gpu.Batch{Label: c.name, Copies: c.copies})
		assert.Error(t, err, c.name)
	}
	unknown := gpu.Ticket{Stream: r.s[0], Seq: 1 << 40}
	_, err := dev.Submit(r.s[1], &gpu.Batch{Waits: on(unknown)})
	assert.Error(t, err, "a ticket that was never issued")
	assert.Error(t, dev.Wait(r.s[1], unknown))
	assert.Error(t, dev.Sync(context.Background(), unknown))
	assert.False(t, dev.Done(unknown))
	_, err = dev.Submit(99999, &gpu.Batch{})
	assert.Error(t, err, "no such stream")
	_, err = dev.Fence(0)
	assert.Error(t, err, "no stream")
	assert.Error(t, dev.DestroyPool(r.pool+99))
	assert.Error(t, dev.Resize(r.pool+99, 1))
	assert.Nil(t, dev.HostBytes(r.pool, 8))
	_, err = dev.CreatePool(gpu.PoolSpec{Name: "no bytes", DevicePages: 1})
	assert.Error(t, err)
}

// failing is a rig on a device that fails on demand, with bytes in all its host
// pages.
func failing(t *testing.T, dev gpu.Device) *rig {
	if _, ok := as[failer](dev); !ok {
		t.Skip("the device does not fail on demand")
	}
	r := newRig(t, dev, small)
	for i := range small.HostPages {
		r.write(i, byte(i))
	}
	return r
}

// secondRefused submits two copies or more, of which the device refuses the
// second, the first that offloads; it returns the ticket of what comes before it.
func (r *rig) secondRefused(copies ...gpu.Copy) (gpu.Ticket, *gpu.CopyError) {
	f, _ := as[failer](r.dev)
	f.Fail(gpu.Offload, 1)
	ticket, err := r.dev.Submit(r.s[0], &gpu.Batch{Copies: copies})
	require.ErrorIs(r.t, err, gpu.ErrCopyFailed)
	var failed *gpu.CopyError
	require.ErrorAs(r.t, err, &failed)
	assert.Equal(r.t, 1, failed.Index)
	return ticket, failed
}

// failureInBatch: copies before the one that fails are done, others are not,
// and the ticket covers those that are.
func failureInBatch(t *testing.T, dev gpu.Device) {
	r := failing(t, dev)
	r.sync(r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)), r.whole(r.host(1), r.device(1)),
		r.whole(r.host(2), r.device(2))))
	ticket, failed := r.secondRefused(
		r.whole(r.host(7), r.device(3)), r.whole(r.device(0), r.host(4)), r.whole(r.device(1), r.host(5)))
	assert.Equal(t, r.device(0), failed.Copy.Src)
	assert.Equal(t, r.host(4), failed.Copy.Dst)
	r.sync(ticket)
	r.sync(r.submit(r.s[0], nil, r.whole(r.device(3), r.host(6))))
	r.want(6, 7)
	r.want(4, 4)
	r.want(5, 5)
	r.sync(r.submit(r.s[0], nil, r.whole(r.device(0), r.host(4))))
	r.want(4, 0)
}

// runsOfPages moves neighbours in one copy each, all three ways.
func runsOfPages(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, gpu.PoolSpec{Name: "p", PageBytes: 12 << 10, DevicePages: 20, HostPages: 20})
	for i := range 20 {
		r.write(i, byte(i))
	}
	a := r.submit(r.s[0], nil, r.run(r.host(0), r.device(3), 7), r.whole(r.host(7), r.device(0)))
	b := r.submit(r.s[1], on(a), r.run(r.device(4), r.device(11), 5))
	c := r.submit(r.s[2], on(b), r.run(r.device(11), r.host(13), 5), r.run(r.device(3), r.host(10), 2))
	r.sync(c)
	for i, seed := range []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 12, 1, 2, 3, 4, 5, 18, 19} {
		r.want(i, seed)
	}
}

// failureInRun: a run is refused as a whole, what comes before it is done, and
// its pages can be copied one by one.
func failureInRun(t *testing.T, dev gpu.Device) {
	r := failing(t, dev)
	r.sync(r.submit(r.s[0], nil, r.run(r.host(0), r.device(0), 4)))
	ticket, failed := r.secondRefused(r.whole(r.host(7), r.device(5)),
		r.run(r.device(1), r.host(4), 3))
	require.ErrorContains(t, failed, "copy 1, pages [1, 4) to pages [4, 7)")
	r.sync(ticket)
	for i := 4; i < 8; i++ {
		r.want(i, byte(i))
	}
	one := &gpu.Batch{Copies: []gpu.Copy{r.whole(r.device(1), r.host(4))}}
	ticket, err := dev.Submit(r.s[0], one)
	if err != nil { // a simulated fault is of one page
		ticket, err = dev.Submit(r.s[0], one)
	}
	require.NoError(t, err)
	r.sync(ticket)
	r.sync(r.submit(r.s[0], nil, r.run(r.device(2), r.host(5), 2)))
	for i, seed := range []byte{1, 2, 3} {
		r.want(4+i, seed)
	}
}

// destroyedStreams makes and destroys more streams than a device has at one
// time, and holds that tickets of a destroyed stream have passed and are not
// taken for those of the stream that has its place.
func destroyedStreams(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 1)
	var last gpu.Ticket
	for range gpu.MaxStreams + 10 {
		s, err := dev.NewStream("short")
		require.NoError(t, err)
		if !last.IsZero() {
			require.True(t, dev.Done(last))
			require.NoError(t, dev.Sync(context.Background(), last))
			require.NoError(t, dev.Wait(s, last))
		}
		last, err = dev.Fence(s)
		require.NoError(t, err)
		r.sync(last)
		require.NoError(t, dev.DestroyStream(s))
		require.Error(t, dev.DestroyStream(s), "a stream ends once")
		_, err = dev.Submit(s, &gpu.Batch{})
		require.Error(t, err, "a destroyed stream takes no work")
	}
	ticket := r.submit(r.s[0], on(last), r.whole(r.host(0), r.device(0)))
	r.sync(r.submit(r.s[1], on(ticket), r.whole(r.device(0), r.host(1))))
	r.want(1, 1)
	require.NoError(t, dev.DestroyStream(r.s[1]))
	again, err := dev.NewStream("again")
	require.NoError(t, err)
	assert.NotEqual(t, r.s[1], again)
	assert.Error(t, dev.DestroyStream(99999))
	assert.Error(t, dev.DestroyStream(0))
}

// closedDevice: after Close every call answers ErrClosed, and Close can be repeated.
func closedDevice(t *testing.T, dev gpu.Device) {
	r := newRig(t, dev, small)
	r.write(0, 1)
	r.submit(r.s[0], nil, r.whole(r.host(0), r.device(0)))
	require.NoError(t, dev.Close())
	_, err := dev.Submit(r.s[0], &gpu.Batch{})
	assert.ErrorIs(t, err, gpu.ErrClosed)
	_, err = dev.NewStream("late")
	assert.ErrorIs(t, err, gpu.ErrClosed)
	_, err = dev.CreatePool(small)
	assert.ErrorIs(t, err, gpu.ErrClosed)
	assert.ErrorIs(t, dev.DestroyStream(r.s[0]), gpu.ErrClosed)
	assert.NoError(t, dev.Close(), "closing twice is harmless")
}

// randomPrograms compares the bytes of random work with those of a model.
func randomPrograms(t *testing.T, dev gpu.Device) {
	p := Generate(Shape{Seed: 1, Steps: 300})
	p.Run(t, dev)
}
