package group_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/messages"
)

// A copy that any rank refuses is refused on all: the ticket covers what all have taken,
// the error names the rank, and nothing else is under way when Submit returns.
func TestRefusedCopy(t *testing.T) {
	for rank := range 3 {
		for index := range 3 {
			t.Run(fmt.Sprintf("rank %d, copy %d", rank, index), func(t *testing.T) {
				l := newLanes(t, 3)
				filled := l.fill(l.a, 0, 1, 2)
				// Copies of another direction come before the one that fails.
				copies := []gpu.Copy{l.in(7, 7), l.in(6, 6)}[:index]
				copies = append(copies, l.out(0, 0), l.out(1, 1))
				l.sync(l.submit(l.a, []gpu.Ticket{filled}, l.out(2, 6), l.out(2, 7)))
				l.sims[rank].Fail(gpu.Offload, 1)
				ticket, err := l.Submit(l.b, &gpu.Batch{Label: "test", Copies: copies})
				var failed *gpu.CopyError
				require.ErrorAs(t, err, &failed)
				require.ErrorIs(t, err, gpu.ErrCopyFailed)
				require.ErrorContains(t, err, fmt.Sprintf("rank %d of 3", rank))
				assert.Equal(t, index, failed.Index)
				assert.Equal(t, l.out(0, 0), failed.Copy)
				assert.Equal(t, index == 0, ticket.IsZero())
				for r, s := range l.sims {
					// A rank that has taken only what the ticket covers may have it under way.
					if index == 0 || r < rank {
						assert.Zero(t, s.Pending(), "rank %d", r)
					}
				}
				l.sync(ticket)
				// The engine tries again, or uses the pages for something else.
				l.sync(l.submit(l.b, nil, l.out(0, 1), l.out(1, 0)))
				l.wantHost(1, 0)
				l.wantHost(0, 1)
				l.clean(t)
				require.NoError(t, l.Close())
			})
		}
	}
}

// A rank that refuses less than the ranks before it bounds what the batch has done.
func TestCopiesRefusedOnTwoRanks(t *testing.T) {
	l := newLanes(t, 4)
	l.sync(l.fill(l.a, 0, 1, 2, 3))
	l.sync(l.submit(l.a, nil, l.out(0, 0), l.out(1, 1)))
	l.sims[1].Fail(gpu.Offload, 1) // copy 2
	l.sims[2].Fail(gpu.Onboard, 1) // copy 1
	ticket, err := l.Submit(l.b, &gpu.Batch{Copies: []gpu.Copy{
		{Src: l.slot(messages.Primary, 3), Dst: l.slot(messages.Primary, 4), Bytes: pageBytes},
		l.in(0, 5), l.out(2, 6)}})
	var failed *gpu.CopyError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, 1, failed.Index)
	require.ErrorContains(t, err, "rank 2 of 4")
	l.sync(ticket)
	l.sync(l.submit(l.b, nil, l.out(4, 7)))
	l.wantHost(7, 3)
	l.clean(t)
	require.NoError(t, l.Close())
}

// A rank that is lost ends the group: every call names it, nothing hangs, and the other
// ranks finish what they have and give their memory back.
func TestLostRank(t *testing.T) {
	for rank := range 4 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			l := newLanes(t, 4)
			out := l.submit(l.b, []gpu.Ticket{l.fill(l.a, 0, 1)}, l.out(0, 0))
			l.sims[rank].Lose()
			named := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, gpu.ErrDeviceLost)
				require.ErrorContains(t, err, fmt.Sprintf("rank %d of 4", rank))
			}
			ticket, err := l.Submit(l.b, &gpu.Batch{Copies: []gpu.Copy{l.out(1, 1)}})
			named(err)
			assert.True(t, ticket.IsZero())
			for r := range rank { // those asked before have done what they took
				assert.Zero(t, l.sims[r].Pending(), "rank %d", r)
			}
			assert.False(t, l.Done(out))
			everyCall(l, named)
			named(l.Sync(context.Background(), out))
			for r, s := range l.sims {
				if r != rank {
					assert.Zero(t, s.Pending(), "rank %d has not been waited for", r)
					assert.Equal(t, mark(r, 0), l.HostShare(r, l.pool, 0)[0])
				}
			}
			named(l.DestroyPool(l.pool))
			named(l.DestroyStream(l.a))
			named(l.DestroyStream(l.b))
			for r, s := range l.sims {
				if r != rank {
					memory, err := s.Memory()
					require.NoError(t, err)
					assert.Equal(t, memory.Total, memory.Free, "rank %d", r)
				}
			}
			require.NoError(t, l.Close())
			_, err = l.Memory()
			require.ErrorIs(t, err, gpu.ErrClosed)
		})
	}
}

// everyCall holds all that a group refuses when it has ended.
func everyCall(l *lanes, named func(error)) {
	_, err := l.Memory()
	named(err)
	_, err = l.NewStream("late")
	named(err)
	_, err = l.CreatePool(gpu.PoolSpec{Name: "late", PageBytes: 1})
	named(err)
	named(l.Resize(l.pool, 1))
	_, err = l.Fence(l.a)
	named(err)
	named(l.Wait(l.a))
	_, err = l.Launch(l.a, gpu.Kernel{})
	named(err)
	_, err = l.Join(make([]gpu.Ticket, l.Ranks())...)
	named(err)
	_, err = l.Adopt("late", make([]gpu.Stream, l.Ranks())...)
	named(err)
}

// A rank that is lost while the host waits ends the wait, after the other ranks.
func TestRankLostDuringSync(t *testing.T) {
	l := newLanes(t, 3)
	lost, err := l.StreamOf(1, l.a)
	require.NoError(t, err)
	_, err = l.sims[1].Launch(lost,
		gpu.Kernel{Nanos: 10, Run: func(gpu.PageBytes) { l.sims[1].Lose() }})
	require.NoError(t, err)
	out := l.submit(l.a, []gpu.Ticket{l.fill(l.a, 0)}, l.out(0, 0))
	err = l.Sync(context.Background(), out)
	require.ErrorIs(t, err, gpu.ErrDeviceLost)
	require.ErrorContains(t, err, "rank 1 of 3")
	assert.Zero(t, l.sims[0].Pending())
	assert.Zero(t, l.sims[2].Pending())
	require.NoError(t, l.Close())
}

// refusing is a rank that refuses calls which the other ranks carry out.
type refusing struct {
	gpu.Device
	call string
}

var errRefused = errors.New("refused on request")

func (d *refusing) now(call string) error {
	if d.call == call {
		return errRefused
	}
	return nil
}

func (d *refusing) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	if err := d.now("submit"); err != nil {
		return gpu.Ticket{}, err
	}
	return d.Device.Submit(s, b)
}

func (d *refusing) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	if err := d.now("launch"); err != nil {
		return gpu.Ticket{}, err
	}
	return d.Device.(gpu.Launcher).Launch(s, k)
}

func (d *refusing) Fence(s gpu.Stream) (gpu.Ticket, error) {
	if err := d.now("fence"); err != nil {
		return gpu.Ticket{}, err
	}
	return d.Device.Fence(s)
}

func (d *refusing) Wait(s gpu.Stream, tickets ...gpu.Ticket) error {
	if err := d.now("wait"); err != nil {
		return err
	}
	return d.Device.Wait(s, tickets...)
}

func (d *refusing) NewStream(name string) (gpu.Stream, error) {
	if err := d.now("stream"); err != nil {
		return 0, err
	}
	return d.Device.NewStream(name)
}

func (d *refusing) CreatePool(spec gpu.PoolSpec) (gpu.Pool, error) {
	if err := d.now("pool"); err != nil {
		return 0, err
	}
	return d.Device.CreatePool(spec)
}

func (d *refusing) Resize(p gpu.Pool, n int) error {
	if err := d.now("resize"); err != nil {
		return err
	}
	return d.Device.Resize(p, n)
}

// newRefusing makes lanes whose last rank refuses on request.
func newRefusing(t *testing.T) (*lanes, *refusing) {
	t.Helper()
	l := &lanes{fixture: newFixture(t, 3, 0), t: t}
	last := &refusing{Device: l.checks[2]}
	var err error
	l.Device, err = group.New(l.checks[0], l.checks[1], last)
	require.NoError(t, err)
	l.pool, err = l.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: pageBytes, DevicePages: pages,
		HostPages: pages, MaxDevicePages: 2 * pages})
	require.NoError(t, err)
	l.a, err = l.NewStream("a")
	require.NoError(t, err)
	l.b, err = l.NewStream("b")
	require.NoError(t, err)
	return l, last
}

// A rank that refuses work which the others have taken is not in their state any more:
// the group ends, and says which rank it was.
func TestRankThatDiverges(t *testing.T) {
	for _, call := range []string{"submit", "launch"} {
		t.Run(call, func(t *testing.T) {
			l, last := newRefusing(t)
			filled := l.fill(l.a, 0)
			last.call = call
			var err error
			if call == "submit" {
				_, err = l.Submit(l.b, &gpu.Batch{Waits: []gpu.Ticket{filled}, Copies: []gpu.Copy{l.out(0, 0)}})
			} else {
				_, err = l.Launch(l.a, gpu.Kernel{Label: "k"})
			}
			require.ErrorIs(t, err, gpu.ErrDeviceLost)
			require.ErrorIs(t, err, errRefused)
			require.ErrorContains(t, err, "rank 2 of 3")
			assert.Zero(t, l.sims[0].Pending())
			assert.Zero(t, l.sims[1].Pending())
			_, err = l.Fence(l.a)
			require.ErrorIs(t, err, gpu.ErrDeviceLost)
			// What the last rank had taken before is waited for: it still answers.
			require.ErrorIs(t, l.Sync(context.Background(), filled), gpu.ErrDeviceLost)
			assert.Zero(t, l.sims[2].Pending())
			require.NoError(t, l.Close())
		})
	}
}

// Calls that change nothing, or can be undone, are refused by the group as by one device.
func TestRefusalsThatCanBeUndone(t *testing.T) {
	l, last := newRefusing(t)
	ticket := l.fill(l.a, 0)
	before, err := l.Memory()
	require.NoError(t, err)
	refusals := map[string]func() error{
		"fence":  func() error { _, err := l.Fence(l.a); return err },
		"wait":   func() error { return l.Wait(l.b, ticket) },
		"stream": func() error { _, err := l.NewStream("c"); return err },
		"pool": func() error {
			_, err := l.CreatePool(gpu.PoolSpec{Name: "c", PageBytes: 64, DevicePages: 4})
			return err
		},
		"resize": func() error { return l.Resize(l.pool, 2*pages) },
	}
	for call, do := range refusals {
		last.call = call
		err := do()
		require.ErrorIs(t, err, errRefused, call)
		require.NotErrorIs(t, err, gpu.ErrDeviceLost, call)
		require.ErrorContains(t, err, "rank 2 of 3", call)
		memory, err := l.Memory()
		require.NoError(t, err)
		assert.Equal(t, before, memory, call)
	}
	last.call = ""
	_, err = l.Submit(l.b, &gpu.Batch{Copies: []gpu.Copy{l.out(pages, 0)}})
	require.Error(t, err, "the pool has not grown on any rank")
	for _, do := range refusals {
		require.NoError(t, do())
	}
	l.sync(l.submit(l.b, nil, l.out(0, 0)))
	l.wantHost(0, 0)
	l.clean(t)
	require.NoError(t, l.Close())
}

// A stream that one rank still works on is destroyed on none.
func TestStreamInUseOnOneRank(t *testing.T) {
	l := newLanes(t, 3)
	l.fill(l.a, 0)
	l.sims[0].Drain()
	l.sims[2].Drain()
	err := l.DestroyStream(l.a)
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.ErrorContains(t, err, "rank 1 of 3")
	l.sims[1].Drain()
	l.sync(l.fill(l.a, 1))
	require.NoError(t, l.DestroyStream(l.a))
	require.NoError(t, l.Close())
}

// Streams and tickets of the ranks become those of the group, and the other way round.
func TestHandoff(t *testing.T) {
	l := newLanes(t, 2)
	var own []gpu.Stream
	var events []gpu.Ticket
	for r := range 2 {
		s, err := l.Rank(r).NewStream("the host's")
		require.NoError(t, err)
		own = append(own, s)
		pool, err := l.PoolOf(r, l.pool)
		require.NoError(t, err)
		slot := gpu.Slot{Pool: pool, Tier: messages.Primary, Page: 3}
		event, err := l.checks[r].Launch(s, gpu.Kernel{
			Label: "the host's", Nanos: 1000, Writes: []gpu.Access{{Slot: slot}},
			Run: func(bytes gpu.PageBytes) {
				b := bytes(slot)
				for i := range b {
					b[i] = mark(r, 3)
				}
			},
		})
		require.NoError(t, err)
		events = append(events, event)
	}
	joined, err := l.Join(events...)
	require.NoError(t, err)
	out := l.submit(l.b, []gpu.Ticket{joined}, l.out(3, 0))

	s, err := l.Adopt("the host's", own...)
	require.NoError(t, err)
	fence, err := l.Fence(s)
	require.NoError(t, err)
	again := l.submit(l.a, []gpu.Ticket{fence}, l.out(3, 1))
	for r := range 2 { // each rank's host waits for its own part
		part, err := l.TicketOf(r, again)
		require.NoError(t, err)
		require.NoError(t, l.Rank(r).Wait(own[r], part))
	}
	l.sync(out)
	l.sync(again)
	l.wantHost(0, 3)
	l.wantHost(1, 3)
	_, err = l.Join(events[0])
	require.EqualError(t, err, "group: 1 tickets for 2 ranks")
	_, err = l.Adopt("few", own[0])
	require.EqualError(t, err, "group: stream few: 1 streams for 2 ranks")
	_, err = l.Adopt("unknown", own[0], own[1]+99)
	require.Error(t, err)
	// Adopted streams are not asked whether they are idle; the ranks do that.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	last, err := l.Fence(s)
	require.NoError(t, err)
	require.NoError(t, l.Sync(ctx, last))
	for _, m := range l.sims {
		m.Drain()
	}
	require.NoError(t, l.DestroyStream(s))
	_, err = l.StreamOf(0, s)
	require.Error(t, err)
	_, err = l.PoolOf(0, l.pool+9)
	require.Error(t, err)
	l.clean(t)
	require.NoError(t, l.Close())
}

// Memory of the application is cut into the parts of the ranks.
func TestMemoryOfTheHost(t *testing.T) {
	l := newLanes(t, 2)
	memory := make([]byte, 2*3*64)
	for i := range memory {
		memory[i] = byte(i)
	}
	spec := gpu.PoolSpec{Name: "given", PageBytes: 64, DevicePages: 2, HostPages: 3,
		HostMemory: memory}
	p, err := l.CreatePool(spec)
	require.NoError(t, err)
	assert.Equal(t, memory[2*64:3*64], l.HostShare(0, p, 2))
	assert.Equal(t, memory[3*64:4*64], l.HostShare(1, p, 0))
	assert.Nil(t, l.HostShare(2, p, 0))
	assert.Nil(t, l.HostShare(0, p+9, 0))
	gpu.WriteHostPage(l, p, 1, []byte(fmt.Sprintf("%-64s%-64s", "rank 0", "rank 1")))
	assert.Equal(t, "rank 1", string(l.HostShare(1, p, 1)[:6]))
	require.NoError(t, l.DestroyPool(p))
	assert.Error(t, l.DestroyPool(p), "a pool ends once")
	spec.HostMemory = memory[1:]
	_, err = l.CreatePool(spec)
	require.ErrorContains(t, err, "host memory of 383 bytes for 3 pages of 64 on each of 2 ranks")
	spec.HostMemory, spec.Tensors = nil, []gpu.Tensor{{Address: 64, PageBytes: 64, Stride: 64}}
	_, err = l.CreatePool(spec)
	require.ErrorContains(t, err, "rank 1 has no tensor")
	spec.Tensors = append(spec.Tensors, gpu.Tensor{Address: 64, PageBytes: 64, Stride: 64, Rank: 2})
	_, err = l.CreatePool(spec)
	require.ErrorContains(t, err, "tensor 1 is of rank 2, there are 2")
	require.NoError(t, l.Close())
}
