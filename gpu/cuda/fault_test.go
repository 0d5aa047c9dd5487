//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
)

// The codes that end a context, by the header of CUDA 13.5; after any of them
// the device is lost, after any other it is not.
func TestErrorsThatEndAContext(t *testing.T) {
	ends := map[result]bool{4: true, 214: true, 220: true, 226: true, 700: true, 702: true, 709: true,
		710: true, 714: true,
		715: true, 716: true, 717: true, 718: true, 719: true, 721: true, 810: true, 911: true}
	for code := result(1); code < 1000; code++ {
		assert.Equal(t, ends[code], code.sticky(), "code %d", code)
	}
	for code := range ends {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newRig(t)
			r.fake.fail[fnMemcpyAsync] = code
			_, err := r.Submit(r.a, r.onboard(1))
			require.ErrorIs(t, err, gpu.ErrDeviceLost, "code %d", code)
			_, err = r.Submit(r.a, r.onboard(1))
			require.ErrorIs(t, err, gpu.ErrDeviceLost)
			r.fake.forget()
		})
	}
	r := newRig(t)
	r.fake.fail[fnMemcpyAsync] = 708
	_, err := r.Submit(r.a, r.onboard(1))
	require.ErrorIs(t, err, gpu.ErrCopyFailed)
	assert.NotErrorIs(t, err, gpu.ErrDeviceLost, "708 is no such code")
}

// A sticky error that is met on the way, in a question that itself has no error
// to give, loses the device as well.
func TestStickyErrorsAreNotSwallowed(t *testing.T) {
	cases := map[string]struct {
		at      fn
		without []fn
		do      func(r *rig, pending gpu.Ticket)
	}{
		"done": {fnEventQuery, []fn{fnStreamWriteValue64}, func(r *rig,
			p gpu.Ticket) {
			assert.False(r.t, r.Done(p))
		}},
		"drain": {fnEventSynchronize, nil,
			func(r *rig, p gpu.Ticket) { assert.ErrorIs(r.t, r.Resize(r.pool, 1), gpu.ErrDeviceLost) }},
		"shrink": {fnMemUnmap, nil,
			func(r *rig, p gpu.Ticket) { assert.ErrorIs(r.t, r.Resize(r.pool, 0), gpu.ErrDeviceLost) }},
		"destroy": {fnMemHostUnregister, nil,
			func(r *rig, p gpu.Ticket) { assert.ErrorIs(r.t, r.DestroyPool(r.pool), gpu.ErrDeviceLost) }},
		"release": {fnMemRelease, nil, func(r *rig, p gpu.Ticket) {
			assert.NoError(r.t, r.Resize(r.pool, 0))
			_, _ = r.Memory()
		}},
		"stream": {fnStreamDestroy, nil, func(r *rig, p gpu.Ticket) { _ = r.DestroyStream(r.b) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.without...)
			if c.at == fnEventQuery || c.at == fnEventSynchronize {
				r.fake.held = make(chan struct{})
			}
			pending := r.submit(r.a, r.onboard(1))
			r.fake.fail[c.at] = 719
			if r.fake.held != nil && c.at == fnEventSynchronize {
				time.AfterFunc(20*time.Millisecond, r.fake.release)
			}
			c.do(r, pending)
			_, err := r.Fence(r.a)
			assert.ErrorIs(t, err, gpu.ErrDeviceLost)
			r.fake.forget()
		})
	}
}

// When the counter or the event of a submission cannot be queued, the copies are
// there all the same. The ticket that comes back covers them, and none is ever
// given whose event was not recorded.
func TestTicketsCoverWhatWasQueued(t *testing.T) {
	for _, at := range []fn{fnStreamWriteValue64, fnEventRecord} {
		t.Run(at.String(), func(t *testing.T) {
			r := newRig(t)
			r.HostBytes(r.pool, 1)[0] = 42
			r.fake.fail[at] = outOfMemory
			ticket, err := r.Submit(r.a, r.onboard(1, 3))
			require.NoError(t, err, "the stream was waited for instead")
			assert.True(t, r.Done(ticket))
			delete(r.fake.fail, at)
			out := &gpu.Batch{Waits: []gpu.Ticket{ticket}, Copies: []gpu.Copy{{
				Src: gpu.Slot{Pool: r.pool, Page: 1}, Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary,
					Page: 9}, Bytes: 4096}}}
			require.NoError(t, r.Sync(context.Background(), r.submit(r.b, out)))
			assert.EqualValues(t, 42, r.HostBytes(r.pool, 9)[0])
			// The next tickets are points of their own.
			r.fake.held = make(chan struct{})
			next := r.submit(r.a, r.onboard(5))
			assert.Greater(t, next.Seq, ticket.Seq)
			assert.False(t, r.Done(next))
			require.NoError(t, r.Wait(r.b, next))
			r.fake.release()
			require.NoError(t, r.Sync(context.Background(), next))
		})
	}
	t.Run("and a stream that cannot be waited for", func(t *testing.T) {
		r := newRig(t)
		r.fake.fail[fnEventRecord], r.fake.fail[fnStreamSynchronize] = unknown, unknown
		_, err := r.Submit(r.a, r.onboard(1))
		require.Error(t, err)
		_, err = r.Fence(r.a)
		require.ErrorIs(t, err, gpu.ErrDeviceLost)
		r.fake.forget()
	})
}

// A batch call that is refused in the middle has queued something. When the
// first copy is refused, too, nothing of it is under way any more.
func TestRefusedBatchLeavesNothingUnderWay(t *testing.T) {
	r := newRig(t)
	for i := range 16 {
		r.HostBytes(r.pool, messages.PageID(i))[0] = byte(i)
	}
	require.NoError(t, r.Sync(context.Background(), r.submit(r.a, r.onboard(0, 1, 2, 3))))
	// The batch is queued in the order of destinations: the onboarding copy comes
	// first, although it is the last of the batch.
	b := &gpu.Batch{Copies: []gpu.Copy{
		{Src: gpu.Slot{Pool: r.pool, Page: 1}, Dst: gpu.Slot{Pool: r.pool, Tier: messages.Secondary,
			Page: 8}, Bytes: 4096},
		{Src: gpu.Slot{Pool: r.pool, Tier: messages.Secondary, Page: 5},
			Dst: gpu.Slot{Pool: r.pool, Page: 5}, Bytes: 4096},
	}}
	r.fake.failCopy[gpu.Offload], r.fake.lazy = 1, true
	_, err := r.Submit(r.a, b)
	var failed *gpu.CopyError
	require.ErrorAs(t, err, &failed)
	assert.Zero(t, failed.Index)
	for _, st := range r.fake.streams {
		for _, o := range st.queue {
			assert.NotEqual(t, opCopy, o.kind, "a copy is under way that the caller was told is not")
		}
	}
}

// What the driver refuses for good is not tried at each submission, and Info
// says what is done instead.
func TestPathsInUse(t *testing.T) {
	t.Run("refused for good", refusedForGood)
	t.Run("refused again and again", refusedAgain)
}

func refusedForGood(t *testing.T) {
	r := newRig(t)
	assert.Equal(t, "batch", r.Info().Copies)
	assert.Equal(t, "counters", r.Info().Completion)
	r.fake.fail[fnMemcpyBatchAsync] = notSupported
	r.submit(r.a, r.onboard(1, 3))
	before := r.fake.calls[fnMemcpyBatchAsync]
	r.submit(r.a, r.onboard(1, 3))
	assert.Equal(t, before, r.fake.calls[fnMemcpyBatchAsync])
	assert.Equal(t, "loop", r.Info().Copies)
}

func refusedAgain(t *testing.T) {
	r := newRig(t, fnStreamWriteValue64)
	assert.Equal(t, "events", r.Info().Completion)
	r.fake.fail[fnMemcpyBatchAsync] = invalidValue
	for range 2 * maxRefusals {
		r.submit(r.a, r.onboard(1, 3))
	}
	assert.Equal(t, maxRefusals, r.fake.calls[fnMemcpyBatchAsync])
	delete(r.fake.fail, fnMemcpyBatchAsync)
}

// A capture that begins between the question and the call: the batch is refused
// and its copies are not queued one by one into the host's graph.
func TestNoFallbackOnCaptureErrors(t *testing.T) {
	for code := firstCapture; code <= lastCapture; code++ {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newRig(t)
			r.fake.fail[fnMemcpyBatchAsync] = code
			_, err := r.Submit(r.a, r.onboard(1, 3))
			require.ErrorIs(t, err, ErrCapturing)
			assert.Zero(t, r.fake.calls[fnMemcpyAsync])
		})
	}
}

// While gigabytes are pinned, faulted or drained, everything else is served.
func TestNothingSlowUnderTheLock(t *testing.T) {
	r := newRig(t)
	ticket := r.submit(r.a, r.onboard(1, 3))
	r.fake.pinning = make(chan struct{})
	made := make(chan error)
	go func() {
		_, err := r.CreatePool(gpu.PoolSpec{Name: "large", PageBytes: 4096, DevicePages: 4,
			HostPages: 64})
		made <- err
	}()
	for r.fake.waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	r.serves(ticket)
	close(r.fake.pinning)
	require.NoError(t, <-made)

	// Shrinking waits for what is queued; meanwhile work on other pages goes on.
	r.fake.pinning, r.fake.waits = nil, 0
	r.fake.held = make(chan struct{})
	ticket = r.submit(r.b, r.onboard(1, 3))
	go func() { made <- r.Resize(r.pool, 8) }()
	for r.fake.waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := r.Submit(r.a, r.onboard(2))
	require.NoError(t, err)
	_, err = r.Submit(r.a, r.onboard(12))
	require.ErrorContains(t, err, "it has 8", "pages that go are gone at once")
	assert.False(t, r.Done(ticket))
	r.fake.release()
	require.NoError(t, <-made)
}

// serves demands answers of calls within a time that a lock held for long misses.
func (r *rig) serves(ticket gpu.Ticket) {
	r.t.Helper()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_, err := r.Submit(r.b, r.onboard(2, 4))
		assert.NoError(r.t, err)
		assert.NoError(r.t, r.Sync(context.Background(), ticket))
		assert.True(r.t, r.Done(ticket))
		_, err = r.Fence(r.a)
		assert.NoError(r.t, err)
		assert.NoError(r.t, r.Resize(r.pool, 20))
		p, err := r.CreatePool(gpu.PoolSpec{Name: "other", PageBytes: 4096, DevicePages: 4})
		assert.NoError(r.t, err)
		assert.NoError(r.t, r.DestroyPool(p))
		_, err = r.Memory()
		assert.NoError(r.t, err)
	}()
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		panic("calls wait for a pool that is being made") // and so would the cleanup
	}
}

func (k *fake) waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waits
}

// Host memory comes from the node near the device as long as that has any; it is
// not bound to it.
func TestHostMemoryPrefersItsNode(t *testing.T) {
	r := newRig(t)
	at := address(&r.HostBytes(r.pool, 0)[0])
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasPrefix(line, fmt.Sprintf("%x ", at)) || strings.HasPrefix(line,
			fmt.Sprintf("%08x ", at)) {
			assert.Contains(t, line, " prefer")
			return
		}
	}
	t.Skip("the system does not list the mapping")
}

// On a system with large pages no two registrations share one.
func TestPiecesAreWholeSystemPages(t *testing.T) {
	d, k := openFake(t)
	d.systemPage = 64 << 10
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 24 << 10, HostPages: 3, DevicePages: 1})
	require.NoError(t, err)
	h := d.pools[p].host
	assert.Zero(t, len(h.bytes)%(64<<10))
	assert.Zero(t, h.piece%(64<<10))
	assert.Zero(t, h.piece%(24<<10))
	for _, n := range k.pinned {
		if n != uintptr(len(d.progress.memory)) {
			assert.Zero(t, n%(64<<10))
		}
	}
}

func TestSystemPage(t *testing.T) {
	d, _ := openFake(t)
	assert.EqualValues(t, os.Getpagesize(), d.systemPage)
}

// Devices are found by the UUID that nvidia-smi prints.
func TestDeviceByUUID(t *testing.T) {
	d, _ := openFake(t)
	assert.Equal(t, "GPU-61626364-6566-6768-696a-6b6c6d6e6f70", d.UUID())
	again, err := open(d.driver, Options{UUID: "GPU-62626364-6566-6768-696A-6B6C6D6E6F70", Ordinal: 0})
	require.NoError(t, err)
	assert.EqualValues(t, 1, again.ordinal)
	require.NoError(t, again.Close())
	_, err = open(d.driver, Options{UUID: "GPU-00000000-0000-0000-0000-000000000000"})
	require.ErrorIs(t, err, gpu.ErrNoDriver)
}

// BenchmarkDoneWhilePinning asks for a ticket while another goroutine makes and
// destroys pools with host memory.
func BenchmarkDoneWhilePinning(b *testing.B) {
	d, _ := openFake(b)
	s, err := d.NewStream("s")
	require.NoError(b, err)
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 4, HostPages: 4})
	require.NoError(b, err)
	ticket, err := d.Submit(s, &gpu.Batch{Copies: []gpu.Copy{{
		Src: gpu.Slot{Pool: p}, Dst: gpu.Slot{Pool: p, Tier: messages.Secondary}, Bytes: 4096}}})
	require.NoError(b, err)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			q, err := d.CreatePool(gpu.PoolSpec{Name: "large", PageBytes: 1 << 20, HostPages: 512})
			if err != nil || d.DestroyPool(q) != nil {
				panic(err)
			}
		}
	}()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		d.Done(ticket)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(took[len(took)*9999/10000].Nanoseconds()), "p9999-ns")
	close(stop)
	<-ended
}

// BenchmarkSubmit is the processor time of a submission of scattered pages, with a
// driver that does nothing.
func BenchmarkSubmit(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, k := openFake(b)
			p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 64, DevicePages: 2 * n,
				HostPages: 2 * n})
			require.NoError(b, err)
			s, err := d.NewStream("s")
			require.NoError(b, err)
			batch := &gpu.Batch{}
			for i := range n {
				batch.Copies = append(batch.Copies, gpu.Copy{Bytes: 64,
					Src: gpu.Slot{Pool: p, Tier: messages.Secondary, Page: messages.PageID(2 * (i * 7919 % n))},
					Dst: gpu.Slot{Pool: p, Page: messages.PageID(2 * i)}})
			}
			k.idle = true
			for b.Loop() {
				if _, err := d.Submit(s, batch); err != nil {
					b.Fatal(err)
				}
			}
			k.idle = false
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/page")
		})
	}
}

func TestLostDevice(t *testing.T) {
	t.Run("batch", func(t *testing.T) { lostDevice(t, fnMemcpyBatchAsync, 1, 3) })
	t.Run("launch", func(t *testing.T) { lostDevice(t, fnLaunchKernel, 1, 3, 5, 7) })
}

func lostDevice(t *testing.T, by fn, pages ...int) {
	r := newRigWith(t, linkKernel)
	ticket := r.submit(r.a, r.onboard(1))
	r.fake.fail[by] = 700
	_, err := r.Submit(r.a, r.onboard(pages...))
	require.ErrorIs(t, err, gpu.ErrDeviceLost)
	_, err = r.Submit(r.a, r.onboard(1))
	assert.ErrorIs(t, err, gpu.ErrDeviceLost)
	assert.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	assert.ErrorIs(t, r.Sync(context.Background(), ticket), gpu.ErrDeviceLost)
	assert.False(t, r.Done(ticket))
	// The context keeps what it had; only what is ours is given back.
	r.fake.forget()
}

// forget empties the books of a context that was lost.
func (k *fake) forget() {
	k.lost, k.used, k.retained, k.forgotten = success, 0, 1, true
	clear(k.reserved)
	clear(k.chunks)
	clear(k.mapped)
	clear(k.pinned)
	clear(k.events)
	clear(k.streams)
}
