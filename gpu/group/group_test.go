package group_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/group"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// profiles are those of the ranks of a group, in turn: links of different speeds.
var profiles = []string{"h100-pcie5", "a100-pcie4", "gh200-c2c", "h200-pcie5"}

// fixture is a group of simulated devices, each under a hazard checker of its own.
type fixture struct {
	*group.Device
	sims   []*sim.Device
	checks []*check.Device
}

// newFixture makes a group of so many ranks, with schedules of their own.
func newFixture(t testing.TB, ranks int, seed int64) *fixture {
	t.Helper()
	f := &fixture{}
	var members []gpu.Device
	for r := range ranks {
		s, err := sim.New(sim.Config{MemoryBytes: 16 << 20, Profile: profiles[r%len(profiles)],
			Seed: seed * int64(r+1)})
		require.NoError(t, err)
		c := check.Wrap(s, check.Options{})
		f.sims, f.checks, members = append(f.sims, s), append(f.checks, c), append(members, c)
	}
	var err error
	f.Device, err = group.New(members...)
	require.NoError(t, err)
	return f
}

// Fail makes copies fail on rank 0, which is asked first: ranks after it take no more
// than rank 0 has, as the conformance suite demands of a device.
func (f *fixture) Fail(d gpu.Direction, n int) { f.sims[0].Fail(d, n) }

// clean demands that no rank has seen an access that nothing orders.
func (f *fixture) clean(t testing.TB) {
	t.Helper()
	for r, c := range f.checks {
		assert.Empty(t, c.Problems(), "rank %d", r)
	}
}

// A group is a device.
func TestConformance(t *testing.T) {
	for _, ranks := range []int{1, 2, 4, 8} {
		for _, seed := range []int64{0, 1} {
			t.Run(fmt.Sprintf("%d ranks, seed %d", ranks, seed), func(t *testing.T) {
				devicetest.Run(t, func(t *testing.T) gpu.Device {
					f := newFixture(t, ranks, seed)
					t.Cleanup(func() { f.clean(t) })
					return f
				})
			})
		}
	}
}

// A group is a device for a hazard checker around it, too, and so are ranks whose pools
// have other numbers than those of the group.
func TestConformanceOfOtherKinds(t *testing.T) {
	t.Run("checked as a whole", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device {
			f := newFixture(t, 3, 7)
			c := check.Wrap(f, check.Options{})
			t.Cleanup(func() { assert.Empty(t, c.Problems()); f.clean(t) })
			return c
		})
	})
	t.Run("other numbers", func(t *testing.T) {
		devicetest.Run(t, func(t *testing.T) gpu.Device {
			f := newFixture(t, 3, 7)
			for r := range 3 { // rank 0 has no pool and no stream before, rank 2 two
				for range r {
					_, err := f.Rank(r).CreatePool(gpu.PoolSpec{Name: "own", PageBytes: 64, DevicePages: 1})
					require.NoError(t, err)
					_, err = f.Rank(r).NewStream("own")
					require.NoError(t, err)
				}
			}
			t.Cleanup(func() { f.clean(t) })
			return f
		})
	})
}

// Random programs give the bytes of the model on every rank under many schedules, and
// the checker of every rank sees the hazards of a program that lacks waits.
func TestRandomPrograms(t *testing.T) {
	for seed := range uint64(40) {
		f := newFixture(t, 1+int(seed%8), int64(seed))
		devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 60}).Run(t, f)
		f.clean(t)
		require.NoError(t, f.Close())
	}
	found := 0
	for seed := range uint64(20) {
		f := newFixture(t, 3, int64(seed))
		p := devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 60, DropOneIn: 4})
		p.Start(t, f)
		for r, c := range f.checks {
			assert.Equal(t, p.Hazards() > 0, c.Count() > 0, "seed %d, rank %d", seed, r)
			found += c.Count()
		}
		require.NoError(t, f.Close())
	}
	require.NotZero(t, found)
}

// lanes is a pool of the group and two streams.
type lanes struct {
	*fixture
	t    testing.TB
	pool gpu.Pool
	a, b gpu.Stream
}

const (
	pageBytes = 4096
	pages     = 8 // in each tier
)

func newLanes(t testing.TB, ranks int) *lanes {
	t.Helper()
	l := &lanes{fixture: newFixture(t, ranks, 0), t: t}
	var err error
	l.pool, err = l.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: pageBytes, DevicePages: pages,
		HostPages: pages, MaxDevicePages: 2 * pages})
	require.NoError(t, err)
	l.a, err = l.NewStream("a")
	require.NoError(t, err)
	l.b, err = l.NewStream("b")
	require.NoError(t, err)
	return l
}

func (l *lanes) slot(tier messages.Tier, page int) gpu.Slot {
	return gpu.Slot{Pool: l.pool, Tier: tier, Page: messages.PageID(page)}
}

// out and in copy a whole page to host memory and back.
func (l *lanes) out(page, host int) gpu.Copy {
	return gpu.Copy{Src: l.slot(messages.Primary, page), Dst: l.slot(messages.Secondary, host),
		Bytes: pageBytes}
}

func (l *lanes) in(host, page int) gpu.Copy {
	return gpu.Copy{Src: l.slot(messages.Secondary, host), Dst: l.slot(messages.Primary, page),
		Bytes: pageBytes}
}

// submit queues copies.
func (l *lanes) submit(s gpu.Stream, waits []gpu.Ticket, copies ...gpu.Copy) gpu.Ticket {
	l.t.Helper()
	t, err := l.Submit(s, &gpu.Batch{Label: "test", Waits: waits, Copies: copies})
	require.NoError(l.t, err)
	return t
}

// fill runs a kernel that fills device pages on every rank with a byte of its own, page
// and rank.
func (l *lanes) fill(s gpu.Stream, list ...int) gpu.Ticket {
	l.t.Helper()
	k := gpu.Kernel{Label: "fill", Nanos: 1000}
	for _, page := range list {
		k.Writes = append(k.Writes, gpu.Access{Slot: l.slot(messages.Primary, page)})
	}
	k.RunRank = func(rank int, bytes gpu.PageBytes) {
		for _, w := range k.Writes {
			b := bytes(w.Slot)
			for i := range b {
				b[i] = mark(rank, int(w.Slot.Page))
			}
		}
	}
	t, err := l.Launch(s, k)
	require.NoError(l.t, err)
	return t
}

// mark is the byte of a page on a rank.
func mark(rank, page int) byte { return byte(16*(rank+1) + page) }

// wantHost demands that each share of a host page is what its rank has put into a page.
func (l *lanes) wantHost(host, page int) {
	l.t.Helper()
	defer l.HostRead(l.slot(messages.Secondary, host))()
	for rank := range l.Ranks() {
		share := l.HostShare(rank, l.pool, messages.PageID(host))
		require.Len(l.t, share, pageBytes)
		for _, v := range share {
			require.Equal(l.t, mark(rank, page), v, "rank %d, host page %d", rank, host)
		}
	}
}

// sync waits for a ticket.
func (l *lanes) sync(t gpu.Ticket) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(l.t, l.Sync(ctx, t))
}

// What a kernel of a rank has written goes to the rank's share of host memory and comes
// back to the same rank, whatever the speed of its link.
func TestSharesStayWithTheirRank(t *testing.T) {
	for _, ranks := range []int{1, 2, 4, 8} {
		l := newLanes(t, ranks)
		filled := l.fill(l.a, 0, 1, 2)
		out := l.submit(l.b, []gpu.Ticket{filled}, l.out(0, 5), l.out(1, 3), l.out(2, 4))
		wiped := l.fill(l.a, 6) // another page, so that the streams overlap
		back := l.submit(l.a, []gpu.Ticket{out, wiped}, l.in(5, 7), l.in(3, 0))
		again := l.submit(l.b, []gpu.Ticket{back}, l.out(7, 0), l.out(0, 1))
		l.sync(again)
		l.wantHost(5, 0)
		l.wantHost(0, 0)
		l.wantHost(1, 1)
		whole := gpu.AppendHostPage(nil, l, l.pool, 0)
		require.Len(t, whole, ranks*pageBytes)
		for rank := range ranks {
			require.Equal(t, mark(rank, 0), whole[rank*pageBytes])
		}
		l.clean(t)
		require.NoError(t, l.Close())
	}
}

// A ticket passes when it has passed on all ranks: one that is stalled holds it back, and
// nothing that the other ranks have to do.
func TestSlowRankDelaysOnlyItsTickets(t *testing.T) {
	l := newLanes(t, 4)
	slow, err := l.StreamOf(2, l.a)
	require.NoError(t, err)
	require.NoError(t, l.sims[2].Stall(slow, time.Hour))
	first := l.fill(l.a, 0)
	out := l.submit(l.a, nil, l.out(0, 0))
	other := l.fill(l.b, 1)
	for _, s := range l.sims {
		s.Advance(time.Second)
	}
	assert.False(t, l.Done(first))
	assert.False(t, l.Done(out))
	assert.True(t, l.Done(other), "another stream")
	for r, m := range l.checks {
		part, err := l.TicketOf(r, out)
		require.NoError(t, err)
		assert.Equal(t, r != 2, m.Done(part), "rank %d", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, l.Sync(ctx, out), context.Canceled)
	l.sync(out)
	assert.True(t, l.Done(out))
	l.wantHost(0, 0)
	l.clean(t)
	require.NoError(t, l.Close())
}

// Tickets are remembered until they have passed, however many there are, and forgotten
// then.
func TestManyTicketsUnderWay(t *testing.T) {
	l := newLanes(t, 2)
	var tickets []gpu.Ticket
	for i := range 1000 {
		tickets = append(tickets, l.submit(l.a, nil, l.in(0, i%pages)))
	}
	for _, ticket := range tickets {
		assert.False(t, l.Done(ticket))
	}
	l.sync(tickets[500])
	assert.True(t, l.Done(tickets[499]))
	assert.False(t, l.Done(tickets[999]))
	last := l.submit(l.b, tickets, l.out(1, 1))
	l.sync(last)
	for _, ticket := range tickets {
		require.True(t, l.Done(ticket))
		part, err := l.TicketOf(0, ticket)
		require.NoError(t, err)
		require.True(t, part.IsZero(), "a ticket that has passed is forgotten")
	}
	require.NoError(t, l.Close())
}

// A group in steady use allocates nothing of its own.
func TestSubmitAllocatesNothing(t *testing.T) {
	var members []gpu.Device
	for range 4 {
		members = append(members, &counting{})
	}
	d, err := group.New(members...)
	require.NoError(t, err)
	pool, err := d.CreatePool(gpu.PoolSpec{Name: "p", PageBytes: 64, DevicePages: 4, HostPages: 4})
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	b := &gpu.Batch{Copies: []gpu.Copy{{Src: gpu.Slot{Pool: pool},
		Dst: gpu.Slot{Pool: pool, Tier: messages.Secondary}, Bytes: 64}}}
	waits := make([]gpu.Ticket, 1)
	step := func() {
		b.Waits = waits
		ticket, err := d.Submit(s, b)
		if err != nil || !d.Done(ticket) {
			t.Fatal("not done", err)
		}
		waits[0] = ticket
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(1000, step))
	b.Waits = nil
	assert.Zero(t, testing.AllocsPerRun(1000, func() { // no one asks: the list makes its own room
		if _, err := d.Submit(s, b); err != nil {
			t.Fatal(err)
		}
	}))
}

// counting is a device on which everything is done at once.
type counting struct {
	gpu.Device
	seq uint64
}

func (c *counting) Info() gpu.Info {
	return gpu.Info{Backend: "counting"}
}
func (c *counting) NewStream(string) (gpu.Stream, error)      { return 1, nil }
func (c *counting) CreatePool(gpu.PoolSpec) (gpu.Pool, error) { return 0, nil }
func (c *counting) Done(gpu.Ticket) bool                      { return true }
func (c *counting) Submit(gpu.Stream, *gpu.Batch) (gpu.Ticket, error) {
	c.seq++
	return gpu.Ticket{Stream: 1, Seq: c.seq}, nil
}

// labelled is a device of a host whose type Go cannot compare: it has a slice.
type labelled struct {
	gpu.Device
	labels []string
}

// boxed is a device of a host that Go can compare unless what it holds cannot be.
type boxed struct {
	gpu.Device
	label any
}

// New compares its members, also those of a type that cannot be compared with ==.
func TestDevicesThatCannotBeCompared(t *testing.T) {
	one, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Profile: "h100-pcie5"})
	require.NoError(t, err)
	two, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Profile: "h100-pcie5"})
	require.NoError(t, err)
	for name, members := range map[string][]gpu.Device{
		"structs with slices": {labelled{Device: one, labels: []string{"left"}},
			labelled{Device: two, labels: []string{"right"}}},
		"beside one that can be": {labelled{Device: one}, boxed{Device: two}},
		"by what an interface holds": {boxed{Device: one, label: []string{"left"}},
			boxed{Device: two, label: []string{"right"}}},
		"only the second by what it has": {boxed{Device: one, label: "left"},
			boxed{Device: two, label: []string{"right"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := group.New(members...)
			require.NoError(t, err)
			assert.Equal(t, 2, d.Info().Ranks)
		})
	}
	_, err = group.New(boxed{Device: one, label: "left"}, boxed{Device: one, label: "left"})
	require.EqualError(t, err, "group: rank 1 is the same device as rank 0")
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
}

// Devices that cannot be one are refused.
func TestNew(t *testing.T) {
	one, err := sim.New(sim.Config{MemoryBytes: 1 << 20, Profile: "h100-pcie5"})
	require.NoError(t, err)
	two, err := sim.New(sim.Config{MemoryBytes: 1 << 19, Profile: "a100-pcie4"})
	require.NoError(t, err)
	pair, err := group.New(one, two)
	require.NoError(t, err)
	for want, members := range map[string][]gpu.Device{
		"group: 0 devices, there may be 1 to 64": {},
		"group: rank 1 is no device": {one,
			nil},
		"group: rank 1 is the same device as rank 0": {one,
			one},
		"group: rank 0 (2 × simulated h100-pcie5, simulated a100-pcie4) is itself a group of 2": {pair},
		"group: rank 1 () is of backend counting, rank 0 of sim": {one,
			&counting{}},
	} {
		_, err := group.New(members...)
		assert.EqualError(t, err, want)
	}
	info := pair.Info()
	assert.Equal(t, gpu.Info{
		Name: "2 × simulated h100-pcie5, simulated a100-pcie4", Backend: "sim",
		Link:   "h100-pcie5, a100-pcie4",
		Copies: "simulated", Completion: "simulated", Ranks: 2,
	}, info)
	memory, err := pair.Memory()
	require.NoError(t, err)
	assert.Equal(t, gpu.Memory{Free: 1 << 19, Total: 1 << 19}, memory, "that of the smaller rank")
	assert.Equal(t, 2, gpu.Ranks(check.Wrap(pair, check.Options{})))
	assert.Equal(t, 1, gpu.Ranks(one))
	_, err = pair.CreatePool(gpu.PoolSpec{Name: "big", PageBytes: 1 << 10, DevicePages: 600})
	require.ErrorIs(t, err, gpu.ErrOutOfMemory, "it fits on rank 0 alone")
	require.ErrorContains(t, err, "rank 1 of 2 (simulated a100-pcie4)")
	memory, err = one.Memory()
	require.NoError(t, err)
	assert.Equal(t, memory.Total, memory.Free, "rank 0 has its memory back")
	require.NoError(t, pair.Close())
}

// told is a device that describes itself otherwise.
type told struct {
	gpu.Device
	info gpu.Info
}

func (d told) Info() gpu.Info { return d.info }

// Where ranks differ in how they copy, the group names the slower way.
func TestInfoOfUnequalRanks(t *testing.T) {
	fast := gpu.Info{Backend: "x", Copies: "batch", Local: "kernel", Completion: "counters"}
	slow := gpu.Info{Backend: "x", Copies: "loop", Completion: "events"}
	for _, infos := range [][2]gpu.Info{{fast, slow}, {slow, fast}, {fast, fast}} {
		var members []gpu.Device
		for _, info := range infos {
			d, err := sim.New(sim.Config{MemoryBytes: 1 << 20})
			require.NoError(t, err)
			members = append(members, told{d, info})
		}
		d, err := group.New(members...)
		require.NoError(t, err)
		want := fast
		if infos[0] != infos[1] {
			want = slow
		}
		got := d.Info()
		assert.Equal(t, want, gpu.Info{Backend: got.Backend, Copies: got.Copies, Local: got.Local,
			Completion: got.Completion})
		require.NoError(t, d.Close())
	}
}
