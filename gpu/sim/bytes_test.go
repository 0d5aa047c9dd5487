package sim_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// A copy reads its source at its end and leaves poison in its destination
// between start and end.
func TestBytesMoveLate(t *testing.T) {
	l := newLab(t, sim.Config{Measured: flat()})
	l.fill(0, 1)
	in := l.move(l.a, l.host(0), l.dev(0))
	l.fill(1, 9)
	out := l.move(l.a, l.dev(0), l.host(1), in)
	assert.EqualValues(t, 9, l.bytes(1), "nothing happens before time moves")
	l.Advance(50 * us)
	l.fill(0, 2) // too early: the copy has started but not ended
	l.Advance(100 * us)
	assert.EqualValues(t, sim.PoisonFlight, l.bytes(1), "in flight")
	l.Advance(49 * us)
	assert.False(t, l.Done(out))
	l.Advance(us)
	assert.True(t, l.Done(out))
	assert.EqualValues(t, 2, l.bytes(1), "the overwritten source shows")
}

func TestSyncRunsNoMoreThanItsTicket(t *testing.T) {
	l := newLab(t, sim.Config{Measured: flat()})
	in := l.move(l.a, l.host(0), l.dev(0))
	later := l.move(l.a, l.host(1), l.dev(1))
	require.NoError(t, l.Sync(context.Background(), in))
	assert.True(t, l.Done(in))
	assert.False(t, l.Done(later))
	l.Drain()
	assert.True(t, l.Done(later))
}

func TestPoison(t *testing.T) {
	l := newLab(t, sim.Config{})
	assert.EqualValues(t, sim.PoisonNew, l.bytes(0))
	in := l.move(l.a, l.host(0), l.dev(7))
	require.NoError(t, l.Sync(context.Background(), in))
	l.fill(0, 1)
	require.NoError(t, l.Sync(context.Background(), l.move(l.a, l.host(0), l.dev(7))))
	require.NoError(t, l.Resize(l.pool, 7))
	require.NoError(t, l.Resize(l.pool, 8))
	require.NoError(t, l.Sync(context.Background(), l.move(l.a, l.dev(7), l.host(1))))
	assert.EqualValues(t, sim.PoisonNew, l.bytes(1), "a page that comes back is new")

	off := newLab(t, sim.Config{Poison: sim.PoisonOff})
	assert.EqualValues(t, 0, off.bytes(0))
}

func TestMissingWaitShowsInTheBytes(t *testing.T) {
	wrong := 0
	for seed := range int64(40) {
		l := newLab(t, sim.Config{Seed: seed})
		l.fill(0, 1)
		l.move(l.a, l.host(0), l.dev(0))
		l.move(l.b, l.dev(0), l.host(1)) // nothing orders it
		l.Drain()
		if l.bytes(1) != 1 {
			wrong++
		}
	}
	assert.Greater(t, wrong, 8)
}

func TestProgramsUnderManySeeds(t *testing.T) {
	for seed := range uint64(60) {
		p := devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 80})
		p.Run(t, open(t, sim.Config{Seed: int64(seed) * 7919}))
	}
}

func TestKernelSeesAndLeavesBytes(t *testing.T) {
	l := newLab(t, sim.Config{})
	l.fill(0, 3)
	in := l.move(l.a, l.host(0), l.dev(0))
	ran := 0
	k, err := l.Launch(l.b, gpu.Kernel{
		Label: "double", Waits: []gpu.Ticket{in}, Nanos: 1000,
		Reads:  []gpu.Access{{Slot: l.dev(0)}},
		Writes: []gpu.Access{{Slot: l.dev(1), Offset: 5, Bytes: 10}},
		Run: func(page gpu.PageBytes) {
			ran++
			for i, v := range page(l.dev(0)) {
				page(l.dev(1))[i] = 2 * v
			}
			// The device can be used from within, but for moving time.
			l.move(l.b, l.dev(1), l.host(2))
			assert.False(t, l.Done(gpu.Ticket{Stream: l.b, Seq: 1}))
		},
	})
	require.NoError(t, err)
	assert.Zero(t, ran)
	require.NoError(t, l.Sync(context.Background(), k))
	assert.Equal(t, 1, ran)
	l.Drain()
	assert.EqualValues(t, 6, l.bytes(2))
	assert.EqualValues(t, 1, l.Counters().Kernels)
	_, err = l.Launch(l.b, gpu.Kernel{Reads: []gpu.Access{{Slot: l.dev(99)}}})
	assert.ErrorContains(t, err, "page 99")
}

// A panic of a kernel reaches the caller that moves time, and the device stays
// usable.
func TestKernelPanics(t *testing.T) {
	l := newLab(t, sim.Config{})
	k, err := l.Launch(l.a, gpu.Kernel{Run: func(gpu.PageBytes) { panic("boom") }})
	require.NoError(t, err)
	assert.PanicsWithValue(t, "boom", l.Drain)
	require.NoError(t, l.Sync(context.Background(), k))
}

func TestMemoryInUseIsNotTakenAway(t *testing.T) {
	l := newLab(t, sim.Config{})
	l.move(l.a, l.host(0), l.dev(7))
	err := l.Resize(l.pool, 7)
	assert.ErrorContains(t, err,
		`copy "move", operation 1 of stream a, is under way on primary page 7`)
	assert.NoError(t, l.Resize(l.pool, 8))
	assert.ErrorContains(t, l.DestroyPool(l.pool), "under way")
	l.Drain()
	assert.NoError(t, l.Resize(l.pool, 7))
	assert.NoError(t, l.DestroyPool(l.pool))
	assert.Nil(t, l.HostBytes(l.pool, 0))
}

// The host tier may be memory of the host application's; it keeps its bytes.
func TestMemoryOfTheHost(t *testing.T) {
	d := open(t, sim.Config{})
	memory := make([]byte, 4*64)
	memory[2*64+1] = 9
	spec := gpu.PoolSpec{Name: "kv", PageBytes: 64, DevicePages: 2, HostPages: 4, HostMemory: memory}
	p, err := d.CreatePool(spec)
	require.NoError(t, err)
	assert.Same(t, &memory[2*64], &d.HostBytes(p, 2)[0])
	assert.EqualValues(t, 9, d.HostBytes(p, 2)[1])
	s, err := d.NewStream("s")
	require.NoError(t, err)
	host := func(page messages.PageID) gpu.Slot {
		return gpu.Slot{Pool: p, Tier: messages.Secondary, Page: page}
	}
	_, err = d.Submit(s,
		&gpu.Batch{Copies: []gpu.Copy{{Src: host(2), Dst: gpu.Slot{Pool: p, Page: 1}, Bytes: 64}}})
	require.NoError(t, err)
	_, err = d.Submit(s,
		&gpu.Batch{Copies: []gpu.Copy{{Src: gpu.Slot{Pool: p, Page: 1}, Dst: host(3), Bytes: 64}}})
	require.NoError(t, err)
	d.Drain()
	assert.EqualValues(t, 9, memory[3*64+1])

	spec.HostMemory = memory[:3*64]
	_, err = d.CreatePool(spec)
	assert.ErrorContains(t, err, "host memory of 192 bytes for 4 pages of 64")
	spec.Tensors = []gpu.Tensor{{Address: 1, PageBytes: 64, Stride: 64}}
	_, err = d.CreatePool(spec)
	assert.ErrorContains(t, err, "tensors of the host")
}

func TestStreamInUseIsNotDestroyed(t *testing.T) {
	l := newLab(t, sim.Config{})
	ticket := l.move(l.a, l.host(0), l.dev(7))
	err := l.DestroyStream(l.a)
	require.ErrorIs(t, err, gpu.ErrInUse)
	assert.ErrorContains(t, err, `stream a: destroyed while copy "move", operation 1, is under way`)
	l.Drain()
	require.NoError(t, l.DestroyStream(l.a))
	assert.True(t, l.Done(ticket))
	again, err := l.NewStream("again")
	require.NoError(t, err)
	_, known := l.Timing(ticket)
	assert.False(t, known)
	l.move(again, l.host(0), l.dev(1), ticket)
	l.Drain()
}

func TestFaults(t *testing.T) {
	l := newLab(t, sim.Config{})
	l.Fail(gpu.Onboard, 2)
	batch := &gpu.Batch{Copies: []gpu.Copy{
		{Src: l.dev(0), Dst: l.host(0), Bytes: 8}, {Src: l.host(1), Dst: l.dev(1), Bytes: 8}}}
	for range 2 {
		_, err := l.Submit(l.a, batch)
		var failed *gpu.CopyError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 1, failed.Index)
		assert.ErrorIs(t, err, gpu.ErrCopyFailed)
	}
	ticket, err := l.Submit(l.a, batch)
	require.NoError(t, err)
	assert.EqualValues(t, 4, ticket.Seq, "two operations before, two now: one each way")

	l.Lose()
	_, err = l.Submit(l.a, batch)
	assert.ErrorIs(t, err, gpu.ErrDeviceLost)
	assert.ErrorIs(t, l.Sync(context.Background(), ticket), gpu.ErrDeviceLost)
	assert.ErrorIs(t, l.Wait(l.a), gpu.ErrDeviceLost)
	assert.False(t, l.Done(ticket))
	_, err = l.Memory()
	assert.ErrorIs(t, err, gpu.ErrDeviceLost)
	assert.NotNil(t, l.HostBytes(l.pool, 0))
	l.Drain()
	l.Advance(time.Second)
	require.NoError(t, l.Close())
	_, err = l.Fence(l.a)
	assert.ErrorIs(t, err, gpu.ErrClosed)
}

// A run with a page that is to fail is refused until the page comes alone.
func TestFaultsInRuns(t *testing.T) {
	l := newLab(t, sim.Config{})
	l.Fail(gpu.Onboard, 1)
	run := &gpu.Batch{Copies: []gpu.Copy{{Src: l.host(0), Dst: l.dev(0), Pages: 3,
		Bytes: 3 * pageBytes}}}
	one := &gpu.Batch{Copies: []gpu.Copy{{Src: l.host(1), Dst: l.dev(1), Bytes: pageBytes}}}
	for _, b := range []*gpu.Batch{run, run, one} {
		_, err := l.Submit(l.a, b)
		require.ErrorIs(t, err, gpu.ErrCopyFailed)
	}
	for _, b := range []*gpu.Batch{one, run} {
		_, err := l.Submit(l.a, b)
		require.NoError(t, err)
	}
	l.Drain()
	assert.Equal(t, sim.Traffic{Calls: 2, Copies: 4, Descriptors: 2, Bytes: 4 * pageBytes,
		Busy: l.Counters().Directions[gpu.Onboard].Busy}, l.Counters().Directions[gpu.Onboard])

	_, err := l.Submit(l.a,
		&gpu.Batch{Label: "move",
			Copies: []gpu.Copy{{Src: l.host(2), Dst: l.dev(5), Pages: 3, Bytes: 3 * pageBytes}}})
	require.NoError(t, err)
	assert.ErrorContains(t, l.Resize(l.pool, 7), "is under way on primary page 7", "the end of a run")
}

// A device that is lost while a kernel runs ends the wait for it.
func TestLostUnderAKernel(t *testing.T) {
	l := newLab(t, sim.Config{})
	k, err := l.Launch(l.a, gpu.Kernel{Run: func(gpu.PageBytes) { l.Lose() }})
	require.NoError(t, err)
	assert.ErrorIs(t, l.Sync(context.Background(), k), gpu.ErrDeviceLost)
}

func TestQueuesAreBounded(t *testing.T) {
	l := newLab(t, sim.Config{MaxPending: 10})
	for range 100 {
		l.move(l.a, l.host(0), l.dev(0))
		assert.LessOrEqual(t, l.Pending(), 11)
	}
	assert.Greater(t, l.Counters().Directions[gpu.Onboard].Copies, int64(90))
}

func TestSyncEndsWithItsContext(t *testing.T) {
	l := newLab(t, sim.Config{})
	hold, entered := make(chan struct{}), make(chan struct{})
	k, err := l.Launch(l.a, gpu.Kernel{Run: func(gpu.PageBytes) { close(entered); <-hold }})
	require.NoError(t, err)
	other := l.move(l.b, l.host(0), l.dev(0))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, l.Sync(context.Background(), k)) })
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, l.Sync(ctx, other), context.DeadlineExceeded, "another goroutine moves time")
	close(hold)
	wg.Wait()
	assert.NoError(t, l.Sync(context.Background(), other))
}

// Many goroutines use one device; the race detector looks on.
func TestConcurrentUse(t *testing.T) {
	l := newLab(t, sim.Config{Seed: 3})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			s, err := l.NewStream("own")
			if !assert.NoError(t, err) {
				return
			}
			l.fill(g, byte(g+1))
			for range 20 {
				in, err1 := l.Submit(s,
					&gpu.Batch{Copies: []gpu.Copy{{Src: l.host(g), Dst: l.dev(g), Bytes: pageBytes}}})
				out, err2 := l.Submit(s, &gpu.Batch{Waits: []gpu.Ticket{in},
					Copies: []gpu.Copy{{Src: l.dev(g), Dst: l.host(g), Bytes: pageBytes}}})
				if !assert.NoError(t, errors.Join(err1, err2, l.Sync(context.Background(), out))) {
					return
				}
			}
		})
	}
	wg.Wait()
	for g := range 6 {
		assert.EqualValues(t, g+1, l.bytes(g))
	}
}

// Close and Lose end while another goroutine copies bytes: when they have returned, no copy
// reads or writes memory of the application, which may free it. Queries and submissions are
// served meanwhile. The race detector looks on.
func TestTheEndWaitsForBytes(t *testing.T) {
	const large, pages = 1 << 20, 8
	for _, end := range []func(*sim.Device) error{(*sim.Device).Close,
		func(d *sim.Device) error { d.Lose(); return nil }} {
		memory := make([]byte, pages*large)
		d := open(t, sim.Config{Poison: sim.PoisonOff})
		p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: large, DevicePages: pages,
			HostPages: pages, HostMemory: memory})
		require.NoError(t, err)
		s, err := d.NewStream("s")
		require.NoError(t, err)
		down := gpu.Copy{Src: gpu.Slot{Pool: p}, Dst: gpu.Slot{Pool: p, Tier: messages.Secondary},
			Bytes: pages * large, Pages: pages}
		first, err := d.Submit(s, &gpu.Batch{Copies: []gpu.Copy{down}})
		require.NoError(t, err)
		last, err := d.Submit(s, &gpu.Batch{Copies: []gpu.Copy{down}})
		require.NoError(t, err)
		var mover sync.WaitGroup
		mover.Go(func() {
			if err := d.Sync(context.Background(), last); err != nil {
				assert.True(t, errors.Is(err, gpu.ErrClosed) || errors.Is(err, gpu.ErrDeviceLost), "%v", err)
			}
		})
		for !d.Done(first) {
			runtime.Gosched()
		}
		_, err = d.Submit(s, &gpu.Batch{Label: "behind"})
		require.NoError(t, err)
		require.NoError(t, end(d))
		for i := 0; i < len(memory); i += 1 << 12 {
			memory[i]++
		}
		mover.Wait()
		require.NoError(t, d.Close())
	}
}

func TestTrace(t *testing.T) {
	var seen []sim.Operation
	l := newLab(t,
		sim.Config{Measured: flat(), Trace: func(o sim.Operation) { seen = append(seen, o) }})
	l.move(l.a, l.host(0), l.dev(0))
	l.Drain()
	assert.Equal(t, []sim.Operation{{Stream: "a", Label: "move", Kind: "copy", Direction: gpu.Onboard,
		Copies: 1, Bytes: pageBytes, Timing: sim.Timing{Seq: 1, End: 100 * us}}}, seen)
}

func TestSubmitAllocatesNothingOnceWarm(t *testing.T) {
	l := newLab(t, sim.Config{Poison: sim.PoisonOff})
	b := gpu.Batch{Label: "warm", Waits: make([]gpu.Ticket, 1)}
	for i := range 8 {
		b.Copies = append(b.Copies, gpu.Copy{Src: l.host(i), Dst: l.dev(scattered(i)), Bytes: 64})
	}
	ctx := context.Background()
	round := func() {
		ticket, err := l.Submit(l.a, &b)
		if err != nil || l.Sync(ctx, ticket) != nil {
			panic(err)
		}
		b.Waits[0] = ticket
	}
	round()
	assert.Zero(t, testing.AllocsPerRun(100, round))
}

// scattered scatters pages.
func scattered(i int) int { return i * 3 % 8 }

func BenchmarkSubmitAndSync(b *testing.B) {
	l := newLab(b, sim.Config{Poison: sim.PoisonOff})
	batch := gpu.Batch{}
	for i := range 8 {
		batch.Copies = append(batch.Copies, gpu.Copy{Src: l.host(i), Dst: l.dev(scattered(i)), Bytes: 64})
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		ticket, err := l.Submit(l.a, &batch)
		if err != nil || l.Sync(ctx, ticket) != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*8)/b.Elapsed().Seconds(), "copies/s")
}
