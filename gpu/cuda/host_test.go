//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// hostFunctions are what a host application calls that this package does not.
var hostFunctions = []string{
	"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphGetNodes", "cuGraphDestroy",
	"cuCtxGetCurrent", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
}

// host is a host application on a thread of its own, with the device's primary
// context current, as PyTorch has it.
type host struct {
	t      testing.TB
	d      *Device
	table  map[string]uintptr
	answer *[4]uint64 // outside of Go's heap
}

// newHost makes a host that calls the same driver as the device.
func newHost(t testing.TB, d *Device) *host {
	t.Helper()
	h := &host{t: t, d: d, table: map[string]uintptr{}}
	if isFake(d) {
		h.table = *hostCallbacks()
	} else {
		lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
		require.NoError(t, err)
		for _, name := range hostFunctions {
			h.table[name], err = purego.Dlsym(lib, name)
			require.NoError(t, err)
		}
	}
	memory, err := mapMemory(4096)
	require.NoError(t, err)
	h.answer = (*[4]uint64)(unsafe.Pointer(&memory[0]))
	runtime.LockOSThread()
	h.own(fnCtxPushCurrent, d.context)
	t.Cleanup(func() {
		h.own(fnCtxPopCurrent, address(&h.answer[0]))
		assert.Equal(t, uint64(d.context), h.answer[0], "the host's thread has its context")
		runtime.UnlockOSThread()
	})
	return h
}

func isFake(d *Device) bool { return d.driver[fnInit] == callbacks()[fnInit] }

// call calls a function of the host's; own one that the device uses, too.
func (h *host) call(name string, args ...uintptr) result {
	r, _, _ := purego.SyscallN(h.table[name], args...)
	return result(int32(r))
}

func (h *host) own(f fn, args ...uintptr) {
	h.t.Helper()
	require.Equal(h.t, success, h.d.driver.call(f, args...), f.String())
}

func (h *host) stream() uintptr {
	h.own(fnStreamCreate, address(&h.answer[0]), streamNonBlocking, 0)
	return uintptr(h.answer[0])
}

func (h *host) destroy(stream uintptr) { h.own(fnStreamDestroy, stream) }

// capture begins a capture in the mode that is the default of PyTorch and others.
func (h *host) capture(stream uintptr) {
	h.t.Helper()
	const global = 0
	require.Equal(h.t, success, h.call("cuStreamBeginCapture_v2", stream, global))
}

// captured ends a capture, which must not have been broken, and gives the number
// of nodes of its graph.
func (h *host) captured(stream uintptr) int {
	h.t.Helper()
	require.Equal(h.t, success, h.call("cuStreamEndCapture", stream, address(&h.answer[0])),
		"the capture is whole")
	graph := uintptr(h.answer[0])
	h.answer[1] = 0
	require.Equal(h.t, success, h.call("cuGraphGetNodes", graph, 0, address(&h.answer[1])))
	n := int(h.answer[1])
	require.Equal(h.t, success, h.call("cuGraphDestroy", graph))
	return n
}

func (h *host) event() uintptr {
	h.own(fnEventCreate, address(&h.answer[0]), eventBlockingSync|eventDisableTiming)
	return uintptr(h.answer[0])
}

// hostCases are what a device must do beside a host that uses the same driver:
// on the imitations, and on hardware.
var hostCases = []struct {
	name string
	run  func(t *testing.T, h *host)
}{
	{"capture that begins later", laterCapture},
	{"calls during a capture", callsDuringCapture},
	{"waits inside of the driver during a capture", waitsDuringCapture},
	{"event of a capture", eventOfCapture},
	{"contexts of threads", contextsOfThreads},
	{"default streams", defaultStreams},
	{"stream that the host has destroyed", destroyedStream},
	{"external events", externalEvents},
	{"adopted tensors", adoptedTensors},
	{"memory of the host", memoryOfTheHost},
	{"engine over memory of the host", engineOverMemory},
	{"shrinking behind copies", shrinkBehindCopies},
}

func TestHost(t *testing.T) {
	for _, c := range hostCases {
		t.Run(c.name, func(t *testing.T) {
			d, _ := openFake(t)
			c.run(t, newHost(t, d))
		})
	}
}

// rig is a rig on the host's device.
func (h *host) rig(t *testing.T) *rig {
	r := &rig{Device: h.d, t: t}
	var err error
	r.pool, err = h.d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 16,
		HostPages: 16, MaxDevicePages: 64})
	require.NoError(t, err)
	r.a, err = h.d.NewStream("a")
	require.NoError(t, err)
	r.b, err = h.d.NewStream("b")
	require.NoError(t, err)
	return r
}

// laterCapture: a host that captures a graph long after it gave its stream finds
// nothing of ours in the graph, and its capture whole; afterwards the stream is
// used again.
func laterCapture(t *testing.T, h *host) {
	r := h.rig(t)
	theirs := h.stream()
	s, err := h.d.External("compute", theirs)
	require.NoError(t, err)
	one, err := h.d.Fence(s)
	require.NoError(t, err)
	ready := r.submit(r.a, r.onboard(1, 3))

	h.capture(theirs)
	_, err = h.d.Fence(s)
	require.ErrorIs(t, err, ErrCapturing)
	require.ErrorIs(t, h.d.Wait(s, ready), ErrCapturing)
	_, err = h.d.Submit(s, r.onboard(1, 3))
	require.ErrorIs(t, err, ErrCapturing)
	_, err = h.d.External("again", theirs)
	require.ErrorIs(t, err, ErrCapturing)
	require.Zero(t, h.captured(theirs), "nothing of ours is in the host's graph")

	two, err := h.d.Fence(s)
	require.NoError(t, err)
	assert.Greater(t, two.Seq, one.Seq, "the host may have queued work in between")
	b := r.onboard(2)
	b.Waits = []gpu.Ticket{two}
	require.NoError(t, h.d.Sync(context.Background(), r.submit(r.b, b)))
	require.NoError(t, h.d.DestroyStream(s))
	h.destroy(theirs)
}

// callsDuringCapture: while a host captures in global mode the device serves all
// calls.
func callsDuringCapture(t *testing.T, h *host) {
	r := h.rig(t)
	theirs := h.stream()
	h.capture(theirs)
	other(func() {
		ticket, err := h.d.Submit(r.a, r.onboard(1, 3))
		assert.NoError(t, err)
		assert.NoError(t, h.d.Sync(context.Background(), ticket))
		assert.True(t, h.d.Done(ticket))
		s, err := h.d.NewStream("new")
		assert.NoError(t, err)
		assert.NoError(t, h.d.DestroyStream(s))
		p, err := h.d.CreatePool(gpu.PoolSpec{Name: "new", PageBytes: 4096, DevicePages: 4, HostPages: 4})
		assert.NoError(t, err)
		assert.NoError(t, h.d.Resize(r.pool, 32))
		assert.NoError(t, h.d.Resize(r.pool, 16))
		assert.NoError(t, h.d.DestroyPool(p))
		_, err = h.d.Memory()
		assert.NoError(t, err)
		again, err := open(h.d.driver, Options{})
		if assert.NoError(t, err) {
			assert.NoError(t, again.Close())
		}
	})
	require.Zero(t, h.captured(theirs))
	h.destroy(theirs)
}

// other runs a function on another thread than the caller's, which is locked.
func other(f func()) {
	var group sync.WaitGroup
	group.Go(f)
	group.Wait()
}

// waitsDuringCapture has waits that began before a capture, and one that begins
// during it.
func waitsDuringCapture(t *testing.T, h *host) {
	r := h.rig(t)
	theirs := h.stream()
	var group sync.WaitGroup
	for range 4 {
		ticket := r.submit(r.a, r.onboard(1, 3, 5))
		group.Go(func() { assert.NoError(t, h.d.Sync(context.Background(), ticket)) })
	}
	h.capture(theirs)
	ticket := r.submit(r.b, r.onboard(7))
	group.Go(func() { assert.NoError(t, h.d.Sync(context.Background(), ticket)) })
	group.Wait()
	require.Zero(t, h.captured(theirs))
	h.destroy(theirs)
}

// eventOfCapture: an event that was recorded in a capture is no point in time.
func eventOfCapture(t *testing.T, h *host) {
	r := h.rig(t)
	theirs, event := h.stream(), h.event()
	stream, outside := h.stream(), h.event()
	h.capture(theirs)
	h.own(fnEventRecord, event, theirs)
	for range 2 {
		_, err := h.d.ExternalEvent(event)
		require.ErrorIs(t, err, ErrCapturing)
	}
	h.own(fnEventRecord, outside, stream)
	ticket, err := h.d.ExternalEvent(outside)
	require.NoError(t, err, "an event beside the capture")
	require.NoError(t, h.d.Sync(context.Background(), ticket))
	require.Zero(t, h.captured(theirs), "nothing of ours is in the host's graph")
	h.own(fnEventDestroy, outside)
	h.destroy(stream)
	// A capture that is broken already.
	broken := h.event()
	h.capture(theirs)
	h.own(fnEventRecord, broken, theirs)
	require.NotEqual(t, success, h.d.driver.call(fnEventQuery, broken))
	_, err = h.d.ExternalEvent(broken)
	require.Error(t, err)
	require.NotEqual(t, success, h.call("cuStreamEndCapture", theirs, address(&h.answer[0])))
	h.own(fnEventDestroy, broken)
	require.NoError(t, h.d.Sync(context.Background(), r.submit(r.a, r.onboard(1, 3))))
	h.own(fnEventDestroy, event)
	h.destroy(theirs)
}

// shrinkBehindCopies shrinks a pool while copies are queued to the pages that go:
// their memory stays until the copies have passed, and the device is not lost.
func shrinkBehindCopies(t *testing.T, h *host) {
	p, err := h.d.CreatePool(gpu.PoolSpec{Name: "large", PageBytes: 1 << 20, DevicePages: 40,
		HostPages: 40})
	require.NoError(t, err)
	s, err := h.d.NewStream("s")
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, h.d.Resize(p, 40))
		b := &gpu.Batch{}
		for page := messages.PageID(1); page < 40; page += 2 {
			b.Copies = append(b.Copies,
				gpu.Copy{Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: page},
					Dst: gpu.Slot{Pool: p, Page: page}, Bytes: 1 << 20})
		}
		ticket, err := h.d.Submit(s, b)
		require.NoError(t, err)
		require.NoError(t, h.d.Resize(p, 0))
		require.True(t, h.d.Done(ticket))
	}
	require.NoError(t, h.d.DestroyPool(p))
}

// contextsOfThreads: calls leave the contexts of their threads as they were: none, and the host's.
func contextsOfThreads(t *testing.T, h *host) {
	r := h.rig(t)
	current := func() uint64 {
		require.Equal(t, success, h.call("cuCtxGetCurrent", address(&h.answer[2])))
		return h.answer[2]
	}
	use := func() {
		ticket, err := h.d.Submit(r.a, r.onboard(1, 3))
		assert.NoError(t, err)
		assert.NoError(t, h.d.Sync(context.Background(), ticket))
		_, err = h.d.Memory()
		assert.NoError(t, err)
		assert.NoError(t, h.d.Resize(r.pool, 20))
	}
	use()
	require.EqualValues(t, h.d.context, current())
	h.own(fnCtxPopCurrent, address(&h.answer[0]))
	require.Zero(t, current())
	use()
	require.Zero(t, current(), "a thread without a context has none afterwards")
	h.own(fnCtxPushCurrent, h.d.context)
}

func defaultStreams(t *testing.T, h *host) {
	for handle, name := range []string{"the NULL stream", "CU_STREAM_LEGACY", "CU_STREAM_PER_THREAD"} {
		_, err := h.d.External("compute", uintptr(handle))
		require.ErrorIs(t, err, ErrDefaultStream)
		assert.ErrorContains(t, err, name)
	}
}

// destroyedStream: a host destroys its stream when it likes; the device waits for its own tickets
// of it, and does not touch it.
func destroyedStream(t *testing.T, h *host) {
	r := h.rig(t)
	theirs := h.stream()
	s, err := h.d.External("compute", theirs)
	require.NoError(t, err)
	ticket, err := h.d.Fence(s)
	require.NoError(t, err)
	require.NoError(t, h.d.Sync(context.Background(), ticket))
	h.destroy(theirs)
	require.NoError(t, h.d.Resize(r.pool, 8), "shrinking waits for streams, this one is none any more")
	require.NoError(t, h.d.DestroyStream(s))
	require.NoError(t, h.d.Resize(r.pool, 4))
}

func externalEvents(t *testing.T, h *host) {
	r := h.rig(t)
	theirs, event := h.stream(), h.event()
	s, err := h.d.External("compute", theirs)
	require.NoError(t, err)
	for i := range 16 {
		r.HostBytes(r.pool, messages.PageID(i))[7] = byte(i + 1)
	}
	// The host's own work on its stream ends with the event.
	_, err = h.d.Submit(s, r.onboard(5))
	require.NoError(t, err)
	h.own(fnEventRecord, event, theirs)
	one, err := h.d.ExternalEvent(event)
	require.NoError(t, err)
	two, err := h.d.ExternalEvent(event)
	require.NoError(t, err)
	assert.Equal(t, one.Stream, two.Stream)
	out := &gpu.Batch{Waits: []gpu.Ticket{two}, Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: r.pool, Page: 5}, Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary,
			Page: 9}, Bytes: 4096}}}
	require.NoError(t, h.d.Sync(context.Background(), r.submit(r.b, out)))
	assert.EqualValues(t, 6, r.HostBytes(r.pool, 9)[7])
	require.NoError(t, h.d.Sync(context.Background(), two))
	assert.True(t, h.d.Done(one))
	require.NoError(t, h.d.DestroyStream(s))
	h.own(fnEventDestroy, event)
	h.destroy(theirs)
}
