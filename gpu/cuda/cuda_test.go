//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failing is a device on which the conformance suite can inject faults.
type failing struct {
	*Device
	fake *fake
}

func (f failing) Fail(way gpu.Direction, n int) { f.fake.failCopy[way] += n }

func openFake(t testing.TB, without ...fn) (*Device, *fake) {
	t.Helper()
	return openSeeded(t, 1, without...)
}

// linkKernel makes the kernel move small pieces between the tiers, too.
var linkKernel = Options{KernelBelow: 64 << 10}

// openSeeded opens a device on a fake driver. When the test ends everything must
// have been given back, and all threads be as they were.
func openSeeded(t testing.TB, seed uint64, without ...fn) (*Device, *fake) {
	t.Helper()
	return openWith(t, Options{}, seed, without...)
}

func openWith(t testing.TB, o Options, seed uint64, without ...fn) (*Device, *fake) {
	t.Helper()
	k, table := newFake(seed, without...)
	d, err := open(table, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		assert.Empty(t, k.wrong, "arguments")
		assert.Zero(t, k.used, "device memory is given back")
		assert.Empty(t, k.chunks)
		assert.Empty(t, k.reserved)
		assert.Empty(t, k.pinned)
		assert.Empty(t, k.events)
		assert.Empty(t, k.streams)
		assert.Zero(t, k.retained, "the context is released")
		for _, thread := range k.threads {
			assert.LessOrEqual(t, len(thread.contexts), 1, "contexts are popped")
			assert.NotContains(t, thread.contexts, uintptr(fakeContext))
			assert.NotContains(t, thread.contexts, uintptr(fakeContext+1))
			assert.Zero(t, thread.mode, "the capture mode is restored")
		}
	})
	return d, k
}

// seeds is the number of schedules of the fake driver.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return 3
}

func TestConformance(t *testing.T) {
	drivers := map[string][]fn{
		"all functions":         nil,
		"no kernel":             {fnLaunchKernel},
		"no batches":            {fnMemcpyBatchAsync},
		"no kernel, no batches": {fnLaunchKernel, fnMemcpyBatchAsync},
		"no counters":           {fnStreamWriteValue64},
		"the oldest drivers":    {fnLaunchKernel, fnMemcpyBatchAsync, fnStreamWriteValue64},
	}
	for name, without := range drivers {
		for seed := range seeds() {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
				devicetest.Run(t, func(t *testing.T) gpu.Device {
					d, k := openSeeded(t, seed, without...)
					return failing{d, k}
				})
			})
		}
	}
	for seed := range seeds() {
		t.Run(fmt.Sprintf("kernel, seed %d", seed), func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) gpu.Device {
				d, k := openWith(t, linkKernel, seed)
				return failing{d, k}
			})
		})
	}
	t.Run("checked", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device {
			d, k := openFake(t)
			c := check.Wrap(failing{d, k}, check.Options{})
			t.Cleanup(func() { assert.Empty(t, c.Problems()) })
			return c
		})
	})
}

// measure prints what is found and writes the profile to a file, if it has a name.
func measure(t *testing.T, d gpu.Device, budget int64, path string) {
	began := time.Now()
	found, err := devicetest.Measure(d,
		devicetest.Measurement{Clock: func() time.Duration { return time.Since(began) }, Budget: budget})
	require.NoError(t, err)
	text, err := json.MarshalIndent(found, "", "  ")
	require.NoError(t, err)
	t.Logf("%s", text)
	if path != "" {
		var b bytes.Buffer
		require.NoError(t, found.Profile.Write(&b))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	}
}

// What a measurement writes the simulated device can be.
func TestMeasuredProfileIsOneForTheSimulation(t *testing.T) {
	d, _ := openFake(t)
	path := filepath.Join(t.TempDir(), "profile.json")
	measure(t, d, 16<<20, path)
	f, err := os.Open(path)
	require.NoError(t, err)
	profile, err := sim.ReadProfile(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Contains(t, profile.Name, "measured-")
	simulated, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Measured: &profile})
	require.NoError(t, err)
	require.NoError(t, simulated.Close())
}

// The sizes and offsets of the driver's structures.
func TestLayouts(t *testing.T) {
	assert.EqualValues(t, 8, unsafe.Sizeof(location{}))
	assert.EqualValues(t, 32, unsafe.Sizeof(allocationProp{}))
	assert.EqualValues(t, 16, unsafe.Offsetof(allocationProp{}.win32))
	assert.EqualValues(t, 26, unsafe.Offsetof(allocationProp{}.usage))
	assert.EqualValues(t, 12, unsafe.Sizeof(accessDesc{}))
	assert.EqualValues(t, 24, unsafe.Sizeof(copyAttributes{}))
	assert.EqualValues(t, 20, unsafe.Offsetof(copyAttributes{}.flags))
}

func TestStartFailures(t *testing.T) {
	cases := []struct {
		at   fn
		code result
		want error
		text string
	}{
		{fnInit, stubLibrary, gpu.ErrNoDriver, "cuInit: CUDA_ERROR_STUB_LIBRARY (34), device 0"},
		{fnInit, noDevice, gpu.ErrNoDriver, "CUDA_ERROR_NO_DEVICE"},
		{fnInit, 4711, nil, "unnamed error (4711)"},
		{fnPrimaryCtxRetain, outOfMemory, gpu.ErrOutOfMemory, "cuDevicePrimaryCtxRetain"},
		{fnDeviceGetAttribute, invalidValue, nil, ""},
	}
	for _, c := range cases {
		k, table := newFake(1)
		k.fail[c.at] = c.code
		d, err := open(table, Options{})
		if c.text == "" { // attributes that the driver does not know cost features
			require.NoError(t, err)
			assert.Zero(t, d.progress.base)
			assert.NoError(t, d.Close())
			continue
		}
		require.ErrorContains(t, err, c.text)
		if c.want != nil {
			assert.ErrorIs(t, err, c.want)
		}
	}
	_, table := newFake(1)
	_, err := open(table, Options{Ordinal: 3})
	assert.ErrorContains(t, err, "no device 3, there are 2")
}

type rig struct {
	*Device
	t    *testing.T
	fake *fake
	pool gpu.Pool
	a, b gpu.Stream
}

func newRig(t *testing.T, without ...fn) *rig { return newRigWith(t, Options{}, without...) }

func newRigWith(t *testing.T, o Options, without ...fn) *rig {
	r := &rig{t: t}
	r.Device, r.fake = openWith(t, o, 1, without...)
	var err error
	r.pool, err = r.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 16,
		HostPages: 16, MaxDevicePages: 64})
	require.NoError(t, err)
	r.a, err = r.NewStream("a")
	require.NoError(t, err)
	r.b, err = r.NewStream("b")
	require.NoError(t, err)
	return r
}

func (r *rig) onboard(pages ...int) *gpu.Batch {
	b := &gpu.Batch{Label: "in"}
	for _, p := range pages {
		b.Copies = append(b.Copies, gpu.Copy{
			Src:   gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: messages.PageID(p)},
			Dst:   gpu.Slot{Pool: r.pool, Tier: messages.Primary, Page: messages.PageID(p)},
			Bytes: 4096,
		})
	}
	return b
}

func (r *rig) submit(s gpu.Stream, b *gpu.Batch) gpu.Ticket {
	r.t.Helper()
	t, err := r.Submit(s, b)
	require.NoError(r.t, err)
	return t
}

func TestNeighboursAreOneDescriptor(t *testing.T) {
	r := newRig(t)
	r.submit(r.a, r.onboard(2, 3, 4, 5))
	assert.Equal(t, 1, r.fake.calls[fnMemcpyAsync], "one piece needs no batch")
	assert.Zero(t, r.fake.calls[fnMemcpyBatchAsync])
	r.submit(r.a, r.onboard(1, 3, 4, 8))
	assert.Equal(t, 1, r.fake.calls[fnMemcpyBatchAsync])
	assert.Equal(t, 3, r.copies.lists.used)
	assert.EqualValues(t, 8192, r.copies.lists.size[1])
}

// Neighbours are found wherever in the list they are.
func TestNeighboursInAnyOrder(t *testing.T) {
	r := newRig(t)
	for i := range 16 {
		r.HostBytes(r.pool, messages.PageID(i))[9] = byte(i)
	}
	r.submit(r.a, r.onboard(9, 2, 8, 14, 3, 5, 4, 7))
	assert.Equal(t, 3, r.copies.lists.used, "2 to 5, 7 to 9, 14")
	assert.Equal(t, []uint64{4 * 4096, 3 * 4096, 4096}, r.copies.lists.size[:3])
	assert.Equal(t, []int32{1, 0, 3}, r.copies.lists.first[:3])
	var out gpu.Batch
	for i, page := range []int{2, 3, 4, 5, 7, 8, 9, 14} {
		out.Copies = append(out.Copies, gpu.Copy{
			Src:   gpu.Slot{Pool: r.pool, Page: messages.PageID(page)},
			Dst:   gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: messages.PageID(15 - i)},
			Bytes: 4096})
	}
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, &out)))
	for i, page := range []int{2, 3, 4, 5, 7, 8, 9, 14} {
		assert.EqualValues(t, page, r.HostBytes(r.pool, messages.PageID(15-i))[9])
	}
}

// A thousand scattered pages are five driver calls, and one more if they are small and go to
// the device.
func TestDriverCallsOfASubmission(t *testing.T) {
	calls := func(by fn, writes int) map[fn]int {
		return map[fn]int{fnCtxPushCurrent: 1, by: 1, fnStreamWriteValue64: writes, fnEventRecord: 1,
			fnCtxPopCurrent: 1}
	}
	t.Run("small",
		func(t *testing.T) { callsOfASubmission(t, Options{}, 256, calls(fnMemcpyBatchAsync, 2)) })
	t.Run("large",
		func(t *testing.T) { callsOfASubmission(t, Options{}, 28<<10, calls(fnMemcpyBatchAsync, 1)) })
	t.Run("kernel",
		func(t *testing.T) { callsOfASubmission(t, linkKernel, 256, calls(fnLaunchKernel, 1)) })
}

func callsOfASubmission(t *testing.T, o Options, page int64, want map[fn]int) {
	d, k := openWith(t, o, 1)
	const n = 1000
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: page, DevicePages: 2 * n,
		HostPages: 2 * n})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	b := &gpu.Batch{}
	for i := range n {
		b.Copies = append(b.Copies, gpu.Copy{Bytes: page,
			Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: messages.PageID(2 * (i * 7 % n))},
			Dst: gpu.Slot{Pool: p, Page: messages.PageID(2 * i)}})
	}
	clear(k.calls)
	ticket, err := d.Submit(s, b)
	require.NoError(t, err)
	if want[fnLaunchKernel] == 0 {
		assert.Equal(t, n, d.copies.lists.used, "none of them adjoin")
	}
	assert.Equal(t, want, k.calls)
	require.NoError(t, d.Sync(context.Background(), ticket))
	clear(k.calls)
	require.True(t, d.Done(ticket))
	assert.Empty(t, k.calls, "done asks no driver")
}

func TestWaitsThatArePointlessAreNotQueued(t *testing.T) {
	r := newRig(t)
	passed := r.submit(r.a, r.onboard(1))
	b := r.onboard(2)
	b.Waits = []gpu.Ticket{passed, {}}
	r.submit(r.b, b)
	assert.Zero(t, r.fake.calls[fnStreamWaitEvent])

	r.fake.held = make(chan struct{})
	defer r.fake.release()
	pending := r.submit(r.a, r.onboard(1))
	b.Waits = []gpu.Ticket{pending}
	r.submit(r.a, b)
	assert.Zero(t, r.fake.calls[fnStreamWaitEvent], "a stream is in order by itself")
	r.submit(r.b, b)
	assert.Equal(t, 1, r.fake.calls[fnStreamWaitEvent])
}

func TestCompletion(t *testing.T) {
	for name, without := range map[string][]fn{"counters": nil, "events": {fnStreamWriteValue64}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, without...)
			r.fake.held = make(chan struct{})
			var tickets []gpu.Ticket
			for range 3 * ring { // more than there are events
				tickets = append(tickets, r.submit(r.a, r.onboard(1)))
			}
			for _, x := range tickets {
				require.False(t, r.Done(x))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, r.Sync(ctx, tickets[0]), context.DeadlineExceeded)
			done := make(chan error)
			go func() { done <- r.Sync(context.Background(), tickets[5]) }()
			r.fake.release()
			require.NoError(t, <-done)
			assert.True(t, r.Done(tickets[5]))
			require.NoError(t, r.Sync(context.Background(), tickets[len(tickets)-1]))
			for _, x := range tickets {
				assert.True(t, r.Done(x))
			}
		})
	}
}

func TestFailureInABatchNamesCallErrorAndPage(t *testing.T) {
	r := newRig(t)
	b := r.onboard(1, 3, 4, 8)
	r.fake.failCopy[gpu.Onboard] = 1
	_, err := r.Submit(r.a, b)
	var failed *gpu.CopyError
	require.ErrorAs(t, err, &failed)
	assert.ErrorIs(t, err, gpu.ErrCopyFailed)
	assert.ErrorContains(t, err,
		"cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE (1), pool kv secondary to pool kv primary, page 1 to page 1")
	var cause *DriverError
	require.ErrorAs(t, err, &cause)
	assert.Equal(t, "cuMemcpyAsync", cause.Call)

	// A batch call that is refused without a reason is done copy by copy.
	r.fake.fail[fnMemcpyBatchAsync] = 801
	r.submit(r.a, b)
}

// A stream that has work is not destroyed; one of the host's is forgotten, and
// not touched, whatever has become of it.
func TestDestroyStream(t *testing.T) {
	r := newRig(t)
	r.fake.held = make(chan struct{})
	ticket := r.submit(r.a, r.onboard(1))
	require.ErrorIs(t, r.DestroyStream(r.a), gpu.ErrInUse)
	require.NoError(t, r.Wait(r.b, ticket))
	require.ErrorIs(t, r.DestroyStream(r.b), gpu.ErrInUse)
	r.fake.release()
	require.NoError(t, r.DestroyStream(r.a))
	require.NoError(t, r.DestroyStream(r.b))
	assert.True(t, r.Done(ticket))

	const theirs = 0x51
	r.fake.streams[theirs] = &fakeStream{context: fakeContext}
	s, err := r.External("compute", theirs)
	require.NoError(t, err)
	fence, err := r.Fence(s)
	require.NoError(t, err)
	require.NoError(t, r.Sync(context.Background(), fence))
	before := r.fake.calls[fnStreamSynchronize]
	require.NoError(t, r.DestroyStream(s))
	assert.Contains(t, r.fake.streams, uintptr(theirs), "the host's stream is the host's to destroy")
	assert.Equal(t, before, r.fake.calls[fnStreamSynchronize])
	delete(r.fake.streams, theirs)
}

// cutPieces makes it as if the host tier had been registered by smaller pieces.
func (r *rig) cutPieces(bytes int64) {
	h := &r.pools[r.pool].host
	whole := *h
	h.piece, h.pieces = bytes, nil
	for at := int64(0); at < int64(len(h.bytes)); at += bytes {
		h.pieces = append(h.pieces, hostPiece{device: whole.pieces[0].device + uint64(at),
			region: r.regions.Add(1)})
	}
	r.t.Cleanup(func() { r.pools[r.pool].host = whole })
}

// Registered pieces are whole pages, and no descriptor crosses two of them.
func TestDescriptorsStayInPieces(t *testing.T) {
	r := newRig(t)
	r.cutPieces(4 * 4096)
	r.submit(r.a, r.onboard(2, 3, 4, 5))
	assert.Equal(t, 2, r.copies.lists.used)
}

// A run over two registered pieces is two descriptors. When the second is
// refused, a part of the run is queued: there is a ticket for it.
func TestRunOverTwoPieces(t *testing.T) {
	for name, without := range map[string][]fn{"batch call": nil, "one by one": {fnMemcpyBatchAsync}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, without...)
			r.cutPieces(4 * 4096)
			for i := range 16 {
				r.HostBytes(r.pool, messages.PageID(i))[9] = byte(i)
			}
			run := &gpu.Batch{Label: "in", Copies: []gpu.Copy{{
				Src: gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: 2},
				Dst: gpu.Slot{Pool: r.pool, Page: 2}, Pages: 4, Bytes: 4 * 4096,
			}}}
			require.NoError(t, r.Sync(context.Background(), r.submit(r.a, run)))
			assert.Equal(t, 2, r.copies.lists.used)
			out := &gpu.Batch{Copies: []gpu.Copy{{
				Src: gpu.Slot{Pool: r.pool, Page: 2}, Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary,
					Page: 8}, Pages: 4, Bytes: 4 * 4096,
			}}}
			require.NoError(t, r.Sync(context.Background(), r.submit(r.a, out)))
			for i := range 4 {
				assert.EqualValues(t, 2+i, r.HostBytes(r.pool, messages.PageID(8+i))[9])
			}
			r.fake.spare[gpu.Onboard], r.fake.failCopy[gpu.Onboard] = 1, 1
			ticket, err := r.Submit(r.a, run)
			var failed *gpu.CopyError
			require.ErrorAs(t, err, &failed)
			assert.Zero(t, failed.Index)
			assert.ErrorContains(t, err, "pages [2, 6) to pages [2, 6)")
			assert.False(t, ticket.IsZero())
			require.NoError(t, r.Sync(context.Background(), ticket))
		})
	}
}

// The memory that a submission takes is that of its calls, not of its copies. Lists that
// grow while one of the two is measured, and other goroutines, move an average by one or
// two; 998 copies more would move it by hundreds if each allocated.
func TestSubmitAllocatesLittle(t *testing.T) {
	d, k := openFake(t)
	const n = 1000
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 64, DevicePages: 2 * n,
		HostPages: 2 * n})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	allocations := func(pages int) float64 {
		b := &gpu.Batch{}
		for i := range pages {
			b.Copies = append(b.Copies, gpu.Copy{Bytes: 64,
				Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: messages.PageID(2 * (i * 7 % n))},
				Dst: gpu.Slot{Pool: p, Page: messages.PageID(2 * i)}})
		}
		k.idle = true
		defer func() { k.idle = false }()
		return testing.AllocsPerRun(20, func() {
			if _, err := d.Submit(s, b); err != nil {
				panic(err)
			}
		})
	}
	allocations(n) // the lists grow once
	assert.InDelta(t, allocations(2), allocations(n), 10)
}
