package sim_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

// flat is a profile with round numbers: 10 GB/s each way, 12 both, 100 GB/s memory.
func flat() *sim.Profile {
	lane := sim.Lane{GBps: 10, Large: sim.Regime{GBps: 10}}
	return &sim.Profile{Name: "flat", Onboard: lane, Offload: lane, BothGBps: 12, HBMGBps: 100}
}

// lab is a device with a pool of 1 MB pages and two streams.
type lab struct {
	*sim.Device
	t    testing.TB
	pool gpu.Pool
	a, b gpu.Stream
}

const pageBytes = 1_000_000

func newLab(t testing.TB, c sim.Config) *lab {
	t.Helper()
	l := &lab{Device: open(t, c), t: t}
	var err error
	l.pool, err = l.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: pageBytes, DevicePages: 8,
		HostPages: 8})
	require.NoError(t, err)
	l.a, err = l.NewStream("a")
	require.NoError(t, err)
	l.b, err = l.NewStream("b")
	require.NoError(t, err)
	return l
}

func (l *lab) dev(i int) gpu.Slot {
	return gpu.Slot{Pool: l.pool, Page: messages.PageID(i)}
}

func (l *lab) host(i int) gpu.Slot {
	return gpu.Slot{Pool: l.pool, Tier: messages.Secondary, Page: messages.PageID(i)}
}

func (l *lab) move(s gpu.Stream, src, dst gpu.Slot, waits ...gpu.Ticket) gpu.Ticket {
	l.t.Helper()
	t, err := l.Submit(s, &gpu.Batch{Label: "move", Waits: waits,
		Copies: []gpu.Copy{{Src: src, Dst: dst, Bytes: pageBytes}}})
	require.NoError(l.t, err)
	return t
}

func (l *lab) timing(t gpu.Ticket) sim.Timing {
	l.t.Helper()
	x, ok := l.Timing(t)
	require.True(l.t, ok, "ticket %v has a timing", t)
	return x
}

func (l *lab) fill(page int, v byte) {
	b := l.HostBytes(l.pool, messages.PageID(page))
	for i := range b {
		b[i] = v
	}
}

func (l *lab) bytes(page int) byte {
	b := l.HostBytes(l.pool, messages.PageID(page))
	require.Equal(l.t, bytes.Repeat(b[:1], len(b)), b, "the page is of one value")
	return b[0]
}

const us = time.Microsecond

func TestTiming(t *testing.T) {
	cases := []struct {
		name string
		do   func(l *lab) gpu.Ticket
		want sim.Timing
	}{
		{"one page takes bytes over bandwidth", func(l *lab) gpu.Ticket {
			return l.move(l.a, l.host(0), l.dev(0))
		}, sim.Timing{Seq: 1, End: 100 * us}},
		{"one direction queues, also on two streams", func(l *lab) gpu.Ticket {
			l.move(l.a, l.host(0), l.dev(0))
			return l.move(l.b, l.host(1), l.dev(1))
		}, sim.Timing{Seq: 1, Start: 100 * us, End: 200 * us}},
		{"both directions share 12 of 20", func(l *lab) gpu.Ticket {
			l.move(l.a, l.host(0), l.dev(0))
			return l.move(l.b, l.dev(1), l.host(1))
		}, sim.Timing{Seq: 1, End: 166667}},
		{"and the rest goes at full speed when one is done", func(l *lab) gpu.Ticket {
			l.move(l.a, l.host(0), l.dev(0)) // ends at 166.667 µs: then 1 of b's 2 MB is left
			t, err := l.Submit(l.b, &gpu.Batch{Copies: []gpu.Copy{
				{Src: l.dev(1), Dst: l.host(1), Bytes: pageBytes}, {Src: l.dev(2), Dst: l.host(2),
					Bytes: pageBytes}}})
			require.NoError(l.t, err)
			return t
		}, sim.Timing{Seq: 1, End: 266667}},
		{"device memory reads and writes each byte", func(l *lab) gpu.Ticket {
			return l.move(l.a, l.dev(0), l.dev(1))
		}, sim.Timing{Seq: 1, End: 20 * us}},
		{"a kernel needs no engine", func(l *lab) gpu.Ticket {
			l.move(l.a, l.host(0), l.dev(0))
			t, err := l.Launch(l.b, gpu.Kernel{Nanos: 7000})
			require.NoError(l.t, err)
			return t
		}, sim.Timing{Seq: 1, End: 7 * us}},
		{"waits are met first", func(l *lab) gpu.Ticket {
			k, err := l.Launch(l.a, gpu.Kernel{Nanos: 30_000})
			require.NoError(l.t, err)
			return l.move(l.b, l.host(0), l.dev(0), k)
		}, sim.Timing{Seq: 1, Start: 30 * us, End: 130 * us}},
		{"an operation that waits does not hold the engine", func(l *lab) gpu.Ticket {
			k, err := l.Launch(l.a, gpu.Kernel{Nanos: 30_000})
			require.NoError(l.t, err)
			l.move(l.a, l.host(0), l.dev(0), k)
			return l.move(l.b, l.host(1), l.dev(1))
		}, sim.Timing{Seq: 1, End: 100 * us}},
		{"a stalled stream starts late", func(l *lab) gpu.Ticket {
			require.NoError(l.t, l.Stall(l.a, 40*us))
			return l.move(l.a, l.host(0), l.dev(0))
		}, sim.Timing{Seq: 1, Start: 40 * us, End: 140 * us}},
		{"submitted later, started later", func(l *lab) gpu.Ticket {
			l.Advance(5 * us)
			return l.move(l.a, l.host(0), l.dev(0))
		}, sim.Timing{Seq: 1, Submit: 5 * us, Start: 5 * us, End: 105 * us}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, sim.Config{Measured: flat()})
			ticket := c.do(l)
			require.NoError(t, l.Sync(context.Background(), ticket))
			assert.Equal(t, c.want, l.timing(ticket))
			assert.Equal(t, c.want.End, l.Now(), "time stands where the ticket passed")
		})
	}
}

func TestCallsAndDescriptorsCost(t *testing.T) {
	p := flat()
	p.CallNanos, p.SetupNanos, p.DescriptorNanos = 5000, 2000, 100
	p.Onboard.Large.Nanos, p.Onboard.SmallBelow, p.Onboard.Small = 300, 1000,
		sim.Regime{Nanos: 600, GBps: 1}
	submit := func(copies ...gpu.Copy) sim.Timing {
		l := newLab(t, sim.Config{Measured: p})
		for i := range copies {
			copies[i].Src.Tier, copies[i].Dst.Tier = messages.Secondary, messages.Primary
		}
		ticket, err := l.Submit(l.a, &gpu.Batch{Copies: copies})
		require.NoError(t, err)
		l.Drain()
		return l.timing(ticket)
	}
	at := func(offset, n int64) gpu.Copy {
		return gpu.Copy{SrcOffset: offset, DstOffset: offset, Bytes: n}
	}
	one := submit(at(0, 10_000))
	assert.Equal(t, sim.Timing{Seq: 1, Start: 5100, End: 5100 + 2000 + 300 + 1000}, one)
	small := submit(at(0, 500))
	assert.Equal(t, sim.Timing{Seq: 1, Start: 5100, End: 5100 + 2000 + 600 + 500}, small)
	apart := submit(at(0, 500), at(600, 500))
	assert.Equal(t, sim.Timing{Seq: 1, Start: 5200, End: 5200 + 2000 + 2*(600+500)}, apart)
	merged := submit(at(0, 500), at(500, 500))
	assert.Equal(t, sim.Timing{Seq: 1, Start: 5100, End: 5100 + 2000 + 300 + 100}, merged,
		"neighbours are one descriptor")
}

// Two submissions at one virtual time keep the host busy one after the other.
func TestCallsQueueOnTheHost(t *testing.T) {
	p := flat()
	p.CallNanos = 5000
	l := newLab(t, sim.Config{Measured: p})
	a, b := l.move(l.a, l.host(0), l.dev(0)), l.move(l.b, l.dev(1), l.dev(2))
	l.Drain()
	assert.Equal(t, 5*us, l.timing(a).Start)
	assert.Equal(t, 10*us, l.timing(b).Start)
}

func TestCountersAndBusy(t *testing.T) {
	l := newLab(t, sim.Config{Measured: flat()})
	l.move(l.a, l.host(0), l.dev(0))
	l.move(l.a, l.dev(0), l.dev(1))
	assert.Equal(t, 4, l.Pending(), "two operations of one copy each")
	l.Advance(50 * us)
	assert.InDelta(t, 1.0, l.Busy()[gpu.Onboard], 1e-9, "the copy under way counts")
	l.Advance(150 * us)
	assert.Equal(t, 200*us, l.Now())
	assert.InDelta(t, 0.5, l.Busy()[gpu.Onboard], 1e-9)
	assert.InDelta(t, 0.1, l.Busy()[gpu.Local], 1e-9)
	c := l.Counters()
	assert.Equal(t, sim.Traffic{Calls: 1, Copies: 1, Descriptors: 1, Bytes: pageBytes, Busy: 100 * us},
		c.Directions[gpu.Onboard])
	assert.Equal(t, sim.Traffic{Calls: 1, Copies: 1, Descriptors: 1, Bytes: pageBytes, Busy: 20 * us},
		c.Directions[gpu.Local])
	assert.Zero(t, c.Directions[gpu.Offload])
	assert.Zero(t, l.Pending())
}

func TestSeedsGiveLegalSchedules(t *testing.T) {
	ends := map[time.Duration]bool{}
	for seed := range int64(20) {
		l := newLab(t, sim.Config{Measured: flat(), Seed: seed})
		a := l.move(l.a, l.host(0), l.dev(0))
		b := l.move(l.b, l.dev(0), l.host(1), a)
		l.Drain()
		x, y := l.timing(a), l.timing(b)
		assert.GreaterOrEqual(t, x.End-x.Start, 100*us, "never faster than the device")
		assert.LessOrEqual(t, x.End-x.Start, 3200*us)
		assert.GreaterOrEqual(t, y.Start, x.End, "waits hold under every seed")
		ends[y.End] = true

		again := newLab(t, sim.Config{Measured: flat(), Seed: seed})
		a = again.move(again.a, again.host(0), again.dev(0))
		again.move(again.b, again.dev(0), again.host(1), a)
		again.Drain()
		assert.Equal(t, l.Now(), again.Now(), "a seed is one schedule")
	}
	assert.Greater(t, len(ends), 15)
}

func TestProfiles(t *testing.T) {
	for _, name := range sim.Profiles() {
		p, err := sim.NamedProfile(name)
		require.NoError(t, err)
		require.NoError(t, p.Validate(), name)
		var b bytes.Buffer
		require.NoError(t, p.Write(&b))
		back, err := sim.ReadProfile(&b)
		require.NoError(t, err)
		assert.Equal(t, p, back)

		// Large pages run at the speed of the link.
		const n, size = 64, 2 << 20
		for _, way := range []gpu.Direction{gpu.Onboard, gpu.Offload} {
			lane := p.Onboard
			if way == gpu.Offload {
				lane = p.Offload
			}
			took := p.Duration(sim.Transfer{Direction: way, Copies: n, Bytes: size})
			assert.InEpsilon(t, lane.GBps, float64(n*size)/float64(took), 0.02, "%s %s", name, way)
		}
	}
	_, err := sim.NamedProfile("abacus")
	assert.ErrorContains(t, err, "abacus")
	_, err = sim.New(sim.Config{MemoryBytes: 1, Profile: "abacus"})
	assert.Error(t, err)
	_, err = sim.New(sim.Config{})
	assert.ErrorContains(t, err, "0 bytes")
	_, err = sim.ReadProfile(bytes.NewBufferString(`{"name":"x"}`))
	assert.ErrorContains(t, err, "both_gbps")
	_, err = sim.ReadProfile(bytes.NewBufferString(`{"speed":1}`))
	assert.ErrorContains(t, err, "speed")
}
