package check_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/devicetest"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
)

func newSim(t testing.TB, seed int64) *sim.Device {
	t.Helper()
	d, err := sim.New(sim.Config{MemoryBytes: 64 << 20, Seed: seed})
	require.NoError(t, err)
	return d
}

// The conformance suite is free of hazards, so the checker finds none, and it
// changes nothing of what the device does.
func TestConformance(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) gpu.Device {
		d := check.Wrap(newSim(t, 0), check.Options{})
		t.Cleanup(func() { assert.Empty(t, d.Problems()) })
		return d
	})
}

// Programs with all their waits have no hazard and produce the same bytes under
// every seed.
func TestProgramsWithAllWaits(t *testing.T) {
	for seed := range uint64(25) {
		p := devicetest.Generate(devicetest.Shape{Seed: seed, Steps: 60})
		require.Zero(t, p.Hazards())
		for schedule := range int64(3) {
			d := check.Wrap(newSim(t, schedule), check.Options{})
			p.Run(t, d)
			require.Empty(t, d.Problems(), "program %d, schedule %d", seed, schedule)
		}
	}
}

// Programs that lack waits are reported exactly when a search through the graph
// of their order finds a hazard, no matter what the bytes do.
func TestAgreesWithSearch(t *testing.T) {
	found := 0
	const programs = 250
	for seed := range uint64(programs) {
		if agree(t, devicetest.Shape{Seed: seed, Steps: 4 + int(seed%30), DropOneIn: 3 + int(seed%17)}) {
			found++
		}
	}
	assert.Greater(t, found, 50)
	assert.Less(t, found, programs-50)
}

// agree demands one verdict of checker and search.
func agree(t *testing.T, s devicetest.Shape) (hazard bool) {
	p := devicetest.Generate(s)
	d := check.Wrap(newSim(t, int64(s.Seed)), check.Options{})
	p.Start(t, d)
	hazards := p.Hazards()
	require.Equal(t, hazards > 0, d.Count() > 0, "program %+v has %d hazards; reported: %v", s,
		hazards, d.Problems())
	return hazards > 0
}

func FuzzAgreesWithSearch(f *testing.F) {
	f.Add(uint64(1), uint8(20), uint8(5))
	f.Add(uint64(99), uint8(60), uint8(40))
	f.Fuzz(func(t *testing.T, seed uint64, steps, dropOneIn uint8) {
		agree(t, devicetest.Shape{Seed: seed, Steps: int(steps), DropOneIn: int(dropOneIn)})
	})
}

// bench is a checked device with one pool and two streams.
type bench struct {
	*check.Device
	t    *testing.T
	pool gpu.Pool
	a, b gpu.Stream
}

const pageBytes = 1024

func newBench(t *testing.T) *bench {
	d := check.Wrap(newSim(t, 0), check.Options{})
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: pageBytes, DevicePages: 8,
		HostPages: 8})
	require.NoError(t, err)
	x := &bench{Device: d, t: t, pool: p}
	x.a, err = d.NewStream("onboard")
	require.NoError(t, err)
	x.b, err = d.NewStream("offload")
	require.NoError(t, err)
	for i := range 8 {
		x.HostWrite(x.host(i))()
	}
	return x
}

func (x *bench) host(i int) gpu.Slot {
	return gpu.Slot{Pool: x.pool, Tier: messages.Secondary, Page: messages.PageID(i)}
}

func (x *bench) dev(i int) gpu.Slot {
	return gpu.Slot{Pool: x.pool, Tier: messages.Primary, Page: messages.PageID(i)}
}

func (x *bench) copy(s gpu.Stream, c gpu.Copy, waits ...gpu.Ticket) gpu.Ticket {
	x.t.Helper()
	if c.Bytes == 0 {
		c.Bytes = pageBytes
	}
	t, err := x.Submit(s, &gpu.Batch{Label: "move", Waits: waits, Copies: []gpu.Copy{c}})
	require.NoError(x.t, err)
	return t
}

func (x *bench) one(words ...string) {
	x.t.Helper()
	require.Len(x.t, x.Problems(), 1)
	for _, w := range words {
		assert.Contains(x.t, x.Problems()[0], w)
	}
}

func TestReportNamesBothSidesAndTheEdge(t *testing.T) {
	x := newBench(t)
	x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
	x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
	x.one(`pool kv primary page 0: copy "move" (stream offload, operation 1) reads what ` +
		`copy "move" (stream onboard, operation 1) wrote; ` +
		`nothing orders offload after operation 1 of onboard: offload has waited for nothing of onboard`)
}

// hazards are programs with at most one missing edge.
var hazards = []struct {
	name string
	do   func(x *bench)
	want []string // words of the one problem; nil: there is none
}{
	{"write after read", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)}, in)
		x.copy(x.a, gpu.Copy{Src: x.host(2), Dst: x.dev(0)})
	}, []string{"page 0", "writes what", "read;", "onboard has waited for nothing of offload"}},
	{"write after read, waited for", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		out := x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)}, in)
		x.copy(x.a, gpu.Copy{Src: x.host(2), Dst: x.dev(0)}, out)
	}, nil},
	{"write after write", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.copy(x.b, gpu.Copy{Src: x.host(1), Dst: x.dev(0)})
	}, []string{"writes what", "wrote;"}},
	{"two readers", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.copy(x.a, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(2)}, in)
	}, nil},
	{"a wait for an earlier operation only", func(x *bench) {
		early := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.copy(x.a, gpu.Copy{Src: x.host(1), Dst: x.dev(1)})
		x.copy(x.b, gpu.Copy{Src: x.dev(1), Dst: x.host(2)}, early)
	}, []string{"page 1", "offload has waited for onboard up to operation 1"}},
	{"different tokens of a page", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0), Bytes: 100})
		x.copy(x.b, gpu.Copy{Src: x.host(1), Dst: x.dev(0), SrcOffset: 100, DstOffset: 100, Bytes: 100})
	}, nil},
	{"overlapping tokens of a page", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0), Bytes: 101})
		x.copy(x.b, gpu.Copy{Src: x.host(1), Dst: x.dev(0), SrcOffset: 100, DstOffset: 100, Bytes: 100})
	}, []string{"bytes [100, 200)", "writes what"}},
	{"unwritten", func(x *bench) {
		x.copy(x.b, gpu.Copy{Src: x.dev(3), Dst: x.host(1)})
	}, []string{"primary page 3", "reads what nothing has written"}},
	{"unwritten, copied on the device only", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.dev(3), Dst: x.dev(4)})
		x.copy(x.a, gpu.Copy{Src: x.dev(4), Dst: x.dev(5)})
	}, nil},
	{"unwritten, copied on the device and read there", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.dev(3), Dst: x.dev(4)})
		x.copy(x.a, gpu.Copy{Src: x.dev(4), Dst: x.host(1)})
	}, []string{"primary page 4", "reads what nothing has written"}},
	{"unwritten, copied on the device and read there in part", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.dev(3), Dst: x.dev(4)})
		x.copy(x.a, gpu.Copy{Src: x.dev(4), Dst: x.host(1), SrcOffset: 100, Bytes: 100})
	}, []string{"primary page 4", "reads what nothing has written"}},
	{"unwritten, copied on the device and written there", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.dev(3), Dst: x.dev(4)})
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(4)})
		x.copy(x.a, gpu.Copy{Src: x.dev(4), Dst: x.host(1)})
	}, nil},
	{"partly written", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0), Bytes: 8})
		x.copy(x.a, gpu.Copy{Src: x.dev(0), Dst: x.dev(1)})
	}, nil},
	{"through the host", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		require.NoError(x.t, x.Sync(context.Background(), in))
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
	}, nil},
	{"asked before it was done", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		require.False(x.t, x.Done(in))
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
	}, []string{"reads what"}},
	{"through a third stream's fence", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		c, err := x.NewStream("third")
		require.NoError(x.t, err)
		require.NoError(x.t, x.Wait(c, in))
		f, err := x.Fence(c)
		require.NoError(x.t, err)
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)}, f)
	}, nil},
	{"a fence from before the wait", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		c, err := x.NewStream("third")
		require.NoError(x.t, err)
		f, err := x.Fence(c)
		require.NoError(x.t, err)
		require.NoError(x.t, x.Wait(c, in))
		x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(1)}, f)
	}, []string{"reads what"}},
	{"host reads while a copy writes", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.copy(x.a, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
		x.HostRead(x.host(1))()
	}, []string{"secondary page 1", "host access (host, 9) reads what",
		"host has waited for nothing of onboard"}},
	{"copy into a page the host still reads", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		end := x.HostRead(x.host(1))
		x.HostRead(x.host(2))() // an inner scope that ends does not end the outer
		x.copy(x.a, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
		end()
	}, []string{"writes what host access", "the host's scope was still open"}},
	{"copy into a page the host has read", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.HostRead(x.host(1))()
		x.copy(x.a, gpu.Copy{Src: x.dev(0), Dst: x.host(1)})
	}, nil},
	{"host writes what a copy reads", func(x *bench) {
		x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
		x.HostWrite(x.host(0))()
	}, []string{"host access (host, 9) writes what copy"}},
	{"memory taken away too early", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(7)})
		x.Unwrap().(*sim.Device).Drain() // it has passed, but the host cannot know
		require.NoError(x.t, x.Resize(x.pool, 4))
		_ = in
	}, []string{"page 7", "release of memory (host", "writes what"}},
	{"memory taken away in time", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(7)})
		require.NoError(x.t, x.Sync(context.Background(), in))
		require.NoError(x.t, x.Resize(x.pool, 4))
		require.NoError(x.t, x.Resize(x.pool, 8))
		require.NoError(x.t, x.DestroyPool(x.pool))
	}, nil},
	{"page that came back", func(x *bench) {
		in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(7)})
		require.NoError(x.t, x.Sync(context.Background(), in))
		require.NoError(x.t, x.Resize(x.pool, 4))
		require.NoError(x.t, x.Resize(x.pool, 8))
		x.copy(x.a, gpu.Copy{Src: x.dev(7), Dst: x.host(0)})
	}, []string{"page 7", "nothing has written"}},
}

func TestHazards(t *testing.T) {
	for _, c := range hazards {
		t.Run(c.name, func(t *testing.T) {
			x := newBench(t)
			c.do(x)
			if c.want == nil {
				assert.Empty(t, x.Problems())
				return
			}
			x.one(c.want...)
		})
	}
}

// The place of a destroyed stream is used again; its operations stay in order
// before everything later, and those of the new stream are not taken for them.
func TestDestroyedStreams(t *testing.T) {
	x := newBench(t)
	in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
	require.ErrorIs(t, x.DestroyStream(x.a), gpu.ErrInUse)
	require.NoError(t, x.Sync(context.Background(), in))
	require.NoError(t, x.DestroyStream(x.a))
	c, err := x.NewStream("next")
	require.NoError(t, err)
	x.copy(c, gpu.Copy{Src: x.dev(0), Dst: x.host(1)}, in)
	require.Empty(t, x.Problems())
	x.copy(c, gpu.Copy{Src: x.host(2), Dst: x.dev(1)})
	x.copy(x.b, gpu.Copy{Src: x.dev(1), Dst: x.host(3)}, in)
	x.one("page 1", `copy "move" (stream next, operation 2) wrote`,
		"offload has waited for nothing of next")
}

// An engine that is opened and closed for years does not make clocks longer.
func TestDestroyedStreamsCostNothing(t *testing.T) {
	x := newBench(t)
	for range 100 {
		s, err := x.NewStream("short")
		require.NoError(t, err)
		require.NoError(t,
			x.Sync(context.Background(), x.copy(s, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})))
		require.NoError(t, x.DestroyStream(s))
	}
	assert.Empty(t, x.Problems())
	assert.LessOrEqual(t, check.Actors(x.Device), 4, "the host, two streams, a short one")
}

func TestKernels(t *testing.T) {
	x := newBench(t)
	whole := func(i int) []gpu.Access { return []gpu.Access{{Slot: x.dev(i)}} }
	in := x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0)})
	k, err := x.Launch(x.b, gpu.Kernel{Label: "attention", Waits: []gpu.Ticket{in}, Reads: whole(0),
		Writes: whole(1)})
	require.NoError(t, err)
	require.Empty(t, x.Problems())
	x.copy(x.a, gpu.Copy{Src: x.host(1), Dst: x.dev(0)})
	x.one(`copy "move" (stream onboard, operation 2) writes ` +
		`what kernel "attention" (stream offload, operation 1) read`)
	x.copy(x.a, gpu.Copy{Src: x.dev(1), Dst: x.host(1)}, k)
	assert.Equal(t, 1, x.Count())
}

// A batch of many pages behind one missing wait is one problem.
func TestOneProblemForEachPairOfOperations(t *testing.T) {
	x := newBench(t)
	var in, out []gpu.Copy
	for i := range 4 {
		in = append(in, gpu.Copy{Src: x.host(i), Dst: x.dev(i), Bytes: pageBytes})
		out = append(out, gpu.Copy{Src: x.dev(i), Dst: x.host(i + 4), Bytes: pageBytes})
	}
	_, err := x.Submit(x.a, &gpu.Batch{Label: "in", Copies: in})
	require.NoError(t, err)
	_, err = x.Submit(x.b, &gpu.Batch{Label: "out", Copies: out})
	require.NoError(t, err)
	x.one("page 0")
}

// Each page of a run is watched.
func TestRunsAreWatchedPageByPage(t *testing.T) {
	x := newBench(t)
	x.copy(x.a, gpu.Copy{Src: x.host(0), Dst: x.dev(0), Pages: 4, Bytes: 4 * pageBytes})
	x.copy(x.b, gpu.Copy{Src: x.host(4), Dst: x.dev(4), Pages: 2, Bytes: 2 * pageBytes})
	require.Empty(t, x.Problems())
	x.copy(x.b, gpu.Copy{Src: x.dev(2), Dst: x.host(6), Pages: 1, Bytes: pageBytes})
	x.one("page 2", `copy "move" (stream onboard, operation 1) wrote`)
}

// The copies that a failed batch did queue are watched, the rest is not.
func TestFailureInBatch(t *testing.T) {
	x := newBench(t)
	x.Unwrap().(*sim.Device).Fail(gpu.Offload, 1)
	_, err := x.Submit(x.a, &gpu.Batch{Label: "half", Copies: []gpu.Copy{
		{Src: x.host(0), Dst: x.dev(0), Bytes: pageBytes}, {Src: x.dev(2), Dst: x.host(3),
			Bytes: pageBytes}}})
	require.ErrorIs(t, err, gpu.ErrCopyFailed)
	require.Empty(t, x.Problems())
	x.copy(x.b, gpu.Copy{Src: x.dev(0), Dst: x.host(3)})
	x.one("page 0", `copy "half" (stream onboard, operation 1) wrote`)
}

func TestOptions(t *testing.T) {
	var seen []string
	d := check.Wrap(newSim(t, 0), check.Options{IgnoreUnwritten: true,
		OnProblem: func(p string) { seen = append(seen, p) }})
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 64, DevicePages: 2, HostPages: 2})
	require.NoError(t, err)
	a, err := d.NewStream("a")
	require.NoError(t, err)
	b, err := d.NewStream("b")
	require.NoError(t, err)
	c := gpu.Copy{Src: gpu.Slot{Pool: p}, Dst: gpu.Slot{Pool: p, Tier: messages.Secondary}, Bytes: 64}
	for _, s := range []gpu.Stream{a, b} {
		_, err = d.Submit(s, &gpu.Batch{Copies: []gpu.Copy{c}})
		require.NoError(t, err)
	}
	require.Len(t, seen, 1)
	assert.True(t, strings.HasPrefix(seen[0], "pool kv secondary page 0: copy (stream b"), seen[0])
	assert.Equal(t, seen, d.Problems())
}
