package host_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/host"
	"github.com/kvactor/kvactor/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a device that ends with the test.
func open(t testing.TB, c host.Config) *host.Device {
	t.Helper()
	if c.MemoryBytes == 0 {
		c.MemoryBytes = 64 << 20
	}
	d, err := host.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// shared is a device whose pools are all in shared memory.
type shared struct{ *host.Device }

func (d shared) CreatePool(s gpu.PoolSpec) (gpu.Pool, error) {
	s.Shared = true
	return d.Device.CreatePool(s)
}

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 4} {
		devicetest.Run(t, func(t *testing.T) gpu.Device { return open(t, host.Config{Workers: workers}) })
	}
	t.Run("shared", func(t *testing.T) {
		devicetest.Run(t,
			func(t *testing.T) gpu.Device { return shared{open(t, host.Config{Poison: true})} })
	})
	t.Run("checked", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device {
			return check.Wrap(open(t, host.Config{}),
				check.Options{OnProblem: func(p string) { t.Error(p) }})
		})
	})
	t.Run("by name", func(t *testing.T) {
		d, err := gpu.Open("host", gpu.Spec{})
		require.NoError(t, err)
		m, err := d.Memory()
		require.NoError(t, err)
		require.Positive(t, m.Total)
		require.Equal(t, "host", d.Info().Backend)
		require.NoError(t, d.Close())
	})
}

// Random programs have the bytes of the model; what the checker counts in programs that
// lack waits, it counts here too.
func TestPrograms(t *testing.T) {
	for seed := range uint64(20) {
		p := devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 200})
		p.Run(t, open(t, host.Config{Workers: 3}))
		wrong := devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 60, DropOneIn: 5})
		c := check.Wrap(open(t, host.Config{}), check.Options{})
		wrong.Start(t, c)
		require.Equal(t, wrong.Hazards() > 0, c.Count() > 0, "seed %d", seed)
	}
}

// rig is a device with one pool and two streams.
type rig struct {
	*host.Device
	t    testing.TB
	pool gpu.Pool
	a, b gpu.Stream
}

var spec = gpu.PoolSpec{Name: "kv", PageBytes: 4096, DevicePages: 8, HostPages: 8,
	MaxDevicePages: 64}

func newRig(t testing.TB, c host.Config, s gpu.PoolSpec) *rig {
	t.Helper()
	r := &rig{Device: open(t, c), t: t}
	var err error
	r.pool, err = r.CreatePool(s)
	require.NoError(t, err)
	r.a, err = r.NewStream("a")
	require.NoError(t, err)
	r.b, err = r.NewStream("b")
	require.NoError(t, err)
	return r
}

func (r *rig) slot(t messages.Tier, page int) gpu.Slot {
	return gpu.Slot{Pool: r.pool, Tier: t, Page: messages.PageID(page)}
}

// onboard copies a host page to the device page of its number.
func (r *rig) onboard(page int, waits ...gpu.Ticket) gpu.Ticket {
	r.t.Helper()
	return r.submit(r.a, waits, r.slot(messages.Secondary, page), r.slot(messages.Primary, page))
}

// offload copies a device page to the host page of its number.
func (r *rig) offload(page int, waits ...gpu.Ticket) gpu.Ticket {
	r.t.Helper()
	return r.submit(r.b, waits, r.slot(messages.Primary, page), r.slot(messages.Secondary, page))
}

func (r *rig) submit(s gpu.Stream, waits []gpu.Ticket, src, dst gpu.Slot) gpu.Ticket {
	r.t.Helper()
	ticket, err := r.Submit(s, &gpu.Batch{Label: "test", Waits: waits,
		Copies: []gpu.Copy{{Src: src, Dst: dst, Bytes: spec.PageBytes}}})
	require.NoError(r.t, err)
	return ticket
}

// A ticket of the host holds up its stream and what waits for it, until it is complete.
func TestTicketsOfTheHost(t *testing.T) {
	r := newRig(t, host.Config{}, spec)
	writes, err := r.NewStream("client")
	require.NoError(t, err)
	written, err := r.NewTicket(writes, "client writes")
	require.NoError(t, err)
	behind, err := r.Fence(writes)
	require.NoError(t, err)
	in := r.onboard(1, written)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Sync(ctx, in), context.DeadlineExceeded)
	require.False(t, r.Done(written))
	require.ErrorIs(t, r.DestroyStream(writes), gpu.ErrInUse)

	copy(r.HostBytes(r.pool, 1), "late")
	require.NoError(t, r.Complete(written, nil))
	require.NoError(t, r.Sync(t.Context(), in))
	require.True(t, r.Done(behind))
	clear(r.HostBytes(r.pool, 1))
	require.NoError(t, r.Sync(t.Context(), r.offload(1, in)))
	require.Equal(t, "late", string(r.HostBytes(r.pool, 1)[:4]))
	require.ErrorContains(t, r.Complete(written, nil), "complete already")
	require.ErrorContains(t, r.Complete(in, nil), "complete already")
}

// Completions may come in any order; tickets of a stream pass in the order of the stream.
func TestCompletionsInAnyOrder(t *testing.T) {
	r := newRig(t, host.Config{}, spec)
	var tickets []gpu.Ticket
	for range 3 {
		ticket, err := r.NewTicket(r.a, "write")
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	require.NoError(t, r.Complete(tickets[2], nil))
	require.ErrorContains(t, r.Complete(tickets[2], nil), "complete already")
	require.NoError(t, r.Complete(tickets[1], nil))
	require.False(t, r.Done(tickets[1]))
	require.NoError(t, r.Complete(tickets[0], nil))
	require.True(t, r.Done(tickets[2]))
}

// A ticket that failed passes, so nothing hangs behind it, and Sync tells why.
func TestFailedTickets(t *testing.T) {
	r := newRig(t, host.Config{}, spec)
	died := errors.New("the client died")
	written, err := r.NewTicket(r.a, "write")
	require.NoError(t, err)
	out := r.offload(0, written)
	failed := make(chan error)
	go func() { failed <- r.Sync(context.Background(), written) }()
	require.NoError(t, r.Complete(written, died))
	require.ErrorIs(t, <-failed, died)
	require.NoError(t, r.Sync(t.Context(), out))
	require.True(t, r.Done(written))
	for range 300 {
		later, err := r.NewTicket(r.a, "write")
		require.NoError(t, err)
		require.NoError(t, r.Complete(later, died))
		require.ErrorIs(t, r.Sync(t.Context(), later), died)
	}
	require.NoError(t, r.Sync(t.Context(), written), "only so many failures are remembered")
}

// Close does not wait for tickets that nobody completes, and ends every Sync.
func TestCloseDoesNotHang(t *testing.T) {
	for name, end := range map[string]func(*host.Device){"closed": func(
		d *host.Device) {
		_ = d.Close()
	}, "lost": (*host.Device).Lose} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, host.Config{}, spec)
			never, err := r.NewTicket(r.a, "never")
			require.NoError(t, err)
			behind := r.offload(0, never)
			ended := make(chan error)
			go func() { ended <- r.Sync(context.Background(), behind) }()
			end(r.Device)
			require.Error(t, <-ended)
			require.False(t, r.Done(behind))
			require.Error(t, r.Complete(never, nil))
			require.Error(t, r.Resize(r.pool, 4))
			require.Equal(t, name == "lost", r.HostBytes(r.pool, 0) != nil)
		})
	}
}

// Kernels run in their turn and see the bytes of pages; they may use the device.
func TestKernels(t *testing.T) {
	r := newRig(t, host.Config{}, spec)
	copy(r.HostBytes(r.pool, 2), "abc")
	in := r.onboard(2)
	page := r.slot(messages.Primary, 2)
	release := make(chan struct{})
	var inner gpu.Ticket
	done, err := r.Launch(r.b, gpu.Kernel{
		Label: "upper", Waits: []gpu.Ticket{in}, Writes: []gpu.Access{{Slot: page}},
		Run: func(bytes gpu.PageBytes) {
			<-release
			copy(bytes(page), "ABC")
			inner, _ = r.Fence(r.a)
		},
	})
	require.NoError(t, err)
	require.ErrorContains(t, r.Resize(r.pool, 2), "under way on primary page 2")
	require.ErrorContains(t, r.DestroyPool(r.pool), "under way")
	close(release)
	require.NoError(t, r.Sync(t.Context(), r.offload(2, done)))
	require.Equal(t, "ABC", string(r.HostBytes(r.pool, 2)[:3]))
	require.True(t, r.Done(inner))
	_, err = r.Launch(r.b, gpu.Kernel{Reads: []gpu.Access{{Slot: r.slot(messages.Primary, 8)}}})
	require.ErrorContains(t, err, "has no primary page 8")
}

// More than the bound is refused instead of waiting for room: nobody could make it.
func TestFull(t *testing.T) {
	r := newRig(t, host.Config{MaxPending: 4}, spec)
	held, err := r.NewTicket(r.a, "hold")
	require.NoError(t, err)
	r.onboard(0)
	_, err = r.Submit(r.a,
		&gpu.Batch{Copies: []gpu.Copy{{Src: r.slot(messages.Secondary, 1),
			Dst: r.slot(messages.Primary, 1), Bytes: 1}}})
	require.ErrorIs(t, err, host.ErrFull)
	require.NoError(t, r.Complete(held, nil))
	fence, err := r.Fence(r.a)
	require.NoError(t, err)
	require.NoError(t, r.Sync(t.Context(), fence))
	r.onboard(1)
}

// Pages that come back after a shrink are new: zero, or poison.
func TestResizeGivesNewPages(t *testing.T) {
	for name, c := range map[string]struct {
		poison, shared bool
		pageBytes      int64
	}{
		"zero": {}, "poison": {poison: true}, "shared": {shared: true}, "small": {pageBytes: 600},
		"large": {pageBytes: 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec
			s.Shared = c.shared
			if c.pageBytes > 0 {
				s.PageBytes, s.DevicePages, s.MaxDevicePages = c.pageBytes, 8, 16
			}
			r := newRig(t, host.Config{Poison: c.poison}, s)
			look := func(page int) (memory []byte) {
				done, err := r.Launch(r.a,
					gpu.Kernel{Run: func(b gpu.PageBytes) { memory = b(r.slot(messages.Primary, page)) }})
				require.NoError(t, err)
				require.NoError(t, r.Sync(t.Context(), done))
				return memory
			}
			fresh := byte(0)
			if c.poison {
				fresh = host.PoisonNew
			}
			for page := range 8 {
				b := look(page)
				require.Equal(t, fresh, b[0])
				for i := range b {
					b[i] = byte(page + 1)
				}
			}
			require.NoError(t, r.Resize(r.pool, 3))
			require.NoError(t, r.Resize(r.pool, 16))
			for page := range 16 {
				b, want := look(page), fresh
				if page < 3 {
					want = byte(page + 1)
				}
				require.Equal(t, len(b), bytes.Count(b, []byte{want}), "page %d", page)
			}
		})
	}
}

// Given memory is used where it is, and is neither filled nor freed nor resized.
func TestGivenMemory(t *testing.T) {
	s := gpu.PoolSpec{Name: "kv", PageBytes: 1024, DevicePages: 4, HostPages: 4}
	k, v, back := make([]byte, 4*2048), make([]byte, 4*256), make([]byte, 4*1024)
	s.Tensors = []gpu.Tensor{{Address: address(k), PageBytes: 768, Stride: 2048},
		{Address: address(v), PageBytes: 256, Stride: 256}}
	s.HostMemory = back
	for i := range back {
		back[i] = byte(i % 251)
	}
	r := newRig(t, host.Config{Poison: true}, s)
	copies := []gpu.Copy{{Src: r.slot(messages.Secondary, 0), Dst: r.slot(messages.Primary, 0),
		Pages: 4, Bytes: 4096}}
	in, err := r.Submit(r.a, &gpu.Batch{Copies: copies})
	require.NoError(t, err)
	require.NoError(t, r.Sync(t.Context(), in))
	for page := range 4 {
		require.Equal(t, back[page*1024:][:768], k[page*2048:][:768])
		require.Equal(t, back[page*1024+768:][:256], v[page*256:][:256])
	}
	_, err = r.Launch(r.a, gpu.Kernel{Reads: []gpu.Access{{Slot: r.slot(messages.Primary, 0)}}})
	require.ErrorContains(t, err, "several tensors")
	require.ErrorIs(t, r.Resize(r.pool, 2), host.ErrAdopted)
	m, err := r.Memory()
	require.NoError(t, err)
	require.Equal(t, m.Total, m.Free)
	require.NoError(t, r.DestroyPool(r.pool))

	for _, wrong := range []func(*gpu.PoolSpec){
		func(s *gpu.PoolSpec) { s.MaxDevicePages = 5 },
		func(s *gpu.PoolSpec) { s.Tensors = s.Tensors[:1] },
		func(s *gpu.PoolSpec) { s.Tensors[1].Address = s.Tensors[0].Address },
		func(s *gpu.PoolSpec) { s.Tensors[1].Rank = 1 },
		func(s *gpu.PoolSpec) { s.HostMemory = back[1:] },
		func(s *gpu.PoolSpec) { s.Shared = true },
		func(s *gpu.PoolSpec) { s.Tensors, s.PageBytes = nil, 1<<62 },
	} {
		other := s
		other.Tensors = append([]gpu.Tensor(nil), s.Tensors...)
		wrong(&other)
		_, err := r.CreatePool(other)
		require.Error(t, err)
	}
}

// Records of operations are used again.
func TestSubmitAllocatesNothingOnceWarm(t *testing.T) {
	r := newRig(t, host.Config{}, spec)
	batch := gpu.Batch{Copies: []gpu.Copy{
		{Src: r.slot(0, 0), Dst: r.slot(1, 0), Bytes: spec.PageBytes},
	}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		done, err := r.Submit(r.a, &batch)
		for err == nil && !r.Done(done) {
			runtime.Gosched()
		}
	}))
}

// Batches that have ended are told with their times.
func TestTrace(t *testing.T) {
	var mu sync.Mutex
	var told []gpu.Transfer
	r := newRig(t,
		host.Config{Trace: func(x gpu.Transfer) { mu.Lock(); told = append(told, x); mu.Unlock() }}, spec)
	require.NoError(t, r.Sync(t.Context(), r.onboard(0)))
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, told, 1)
	require.LessOrEqual(t, told[0].Submit, told[0].Start)
	require.Less(t, told[0].Start, told[0].End)
	told[0].Submit, told[0].Start, told[0].End = 0, 0, 0
	require.Equal(t, gpu.Transfer{Stream: "a", Label: "test", Copies: 1, Bytes: 4096}, told[0])
}

// Many goroutines use one device, and a large batch is shared by the workers.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t, host.Config{Workers: 3}, gpu.PoolSpec{Name: "kv", PageBytes: 1 << 20,
		DevicePages: 16, HostPages: 16})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			s, err := r.NewStream("g")
			if !assert.NoError(t, err) {
				return
			}
			for i := range 10 {
				for page := 4 * g; page < 4*g+4; page++ {
					b := r.HostBytes(r.pool, messages.PageID(page))
					b[0], b[len(b)-1] = byte(i), byte(page)
				}
				way := []gpu.Slot{r.slot(messages.Secondary, 4*g), r.slot(messages.Primary, 4*g)}
				for range 2 {
					done, err := r.Submit(s,
						&gpu.Batch{Copies: []gpu.Copy{{Src: way[0], Dst: way[1], Pages: 4, Bytes: 4 << 20}}})
					assert.NoError(t, err)
					assert.NoError(t, r.Sync(context.Background(), done))
					way[0], way[1] = way[1], way[0]
				}
				for page := 4 * g; page < 4*g+4; page++ {
					b := r.HostBytes(r.pool, messages.PageID(page))
					assert.Equal(t, []byte{byte(i), byte(page)}, []byte{b[0], b[len(b)-1]})
				}
			}
			assert.NoError(t, r.DestroyStream(s))
		})
	}
	group.Wait()
}
