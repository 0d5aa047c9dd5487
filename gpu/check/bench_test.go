package check_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/messages"
)

// pingPong alternates batches of 64 pages between two streams over a device
// that does nothing, so that the checker's own cost is what is measured.
func pingPong(t testing.TB) (round func(), d *check.Device) {
	d = check.Wrap(&idle{}, check.Options{IgnoreUnwritten: true})
	p, err := d.CreatePool(gpu.PoolSpec{Name: "kv", PageBytes: 1 << 20, DevicePages: 64,
		HostPages: 64})
	require.NoError(t, err)
	var streams [2]gpu.Stream
	var batches [2]gpu.Batch
	for i := range streams {
		streams[i], err = d.NewStream("s")
		require.NoError(t, err)
		batches[i].Waits = make([]gpu.Ticket, 1)
		for page := range messages.PageID(64) {
			c := gpu.Copy{Src: gpu.Slot{Pool: p, Page: page}, Dst: gpu.Slot{Pool: p,
				Tier: messages.Secondary, Page: page}, Bytes: 1 << 20}
			if i == 1 {
				c.Src, c.Dst = c.Dst, c.Src
			}
			batches[i].Copies = append(batches[i].Copies, c)
		}
	}
	return func() {
		for i := range streams {
			ticket, err := d.Submit(streams[i], &batches[i])
			if err != nil {
				panic(err)
			}
			batches[1-i].Waits[0] = ticket
		}
	}, d
}

// idle is a device that issues tickets and does nothing.
type idle struct {
	gpu.Device
	streams gpu.Stream
	seq     uint64
}

func (d *idle) NewStream(string) (gpu.Stream, error)      { d.streams++; return d.streams, nil }
func (d *idle) CreatePool(gpu.PoolSpec) (gpu.Pool, error) { return 0, nil }
func (d *idle) Submit(s gpu.Stream, _ *gpu.Batch) (gpu.Ticket, error) {
	d.seq++
	return gpu.Ticket{Stream: s, Seq: d.seq}, nil
}

// No ticket is ever waited for here, so all that is remembered for tickets must stay
// within its bound.
func TestCheckingAllocatesNothingOnceWarm(t *testing.T) {
	round, d := pingPong(t)
	for range 9_000 { // more than are remembered
		round()
	}
	assert.Less(t, testing.AllocsPerRun(1000, round), 1.0)
	assert.Empty(t, d.Problems())
}

func BenchmarkCheck(b *testing.B) {
	round, _ := pingPong(b)
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/access")
}
