//go:build linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
)

// conversations are users who come back with all that was said so far, one after the other.
// Device memory has pages for a part of them, host memory for all.
type conversations struct {
	name                     string
	layers, heads, dim       int
	users, requests, longest int // of a conversation, in tokens
	device, host             int // pages
	think                    time.Duration
}

// clocked is a device with the time that its copies take, and a way to let time pass.
type clocked struct {
	gpu.Device
	now  func() time.Duration
	pass func(time.Duration)
}

// played is what a play of conversations has found.
type played struct {
	ready            []float64 // milliseconds of each admission until its pages may be used
	out, in          int64     // bytes
	reused, prompted int64     // tokens
}

func (p *played) String() string {
	at := func(share float64) float64 { return p.ready[int(share*float64(len(p.ready)-1))] }
	return fmt.Sprintf(
		"ready in %.2f ms (median), %.2f (p90), %.2f (p99); %d of %d tokens reused, %d MiB out, %d MiB in",
		at(0.5), at(0.9), at(0.99), p.reused, p.prompted, p.out>>20, p.in>>20)
}

// decisions are what does not depend on the time that copies take.
func (p *played) decisions() [4]int64 { return [4]int64{p.out, p.in, p.reused, p.prompted} }

// play runs the requests on a device: the same ones, and so the same decisions, on each.
func (c conversations) play(t *testing.T, d clocked) *played {
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock = 16
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: c.layers, KVHeads: []int{c.heads}, HeadDim: c.dim,
			DType: kvactor.Float16, MaxSeqLen: 1 << 16},
		Cache: cache, Device: d.Device,
		Pages: []kvactor.PageCounts{{Primary: c.device, Secondary: c.host}},
	})
	require.NoError(t, err)
	ctx, dice, found := context.Background(), rand.New(rand.NewPCG(3, 3)), &played{}
	said := make([][]kvactor.Token, c.users)
	for range c.requests {
		u := dice.IntN(c.users)
		if len(said[u]) > c.longest {
			said[u] = nil
		}
		for range 100 + dice.IntN(400) {
			said[u] = append(said[u], kvactor.Token(dice.IntN(100000)))
		}
		began := d.now()
		q, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: said[u]})
		require.NoError(t, err)
		for _, ticket := range q.Ready() {
			require.NoError(t, d.Sync(ctx, ticket))
		}
		found.ready = append(found.ready, (d.now()-began).Seconds()*1e3)
		require.NoError(t, q.Commit(ctx, q.Len(), kvactor.Ticket{}))
		require.NoError(t, q.Release(ctx, kvactor.Ticket{}))
		d.pass(c.think)
	}
	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, e.Check(ctx))
	page := e.Pools()[0].PageBytes()
	found.out, found.in = stats.Pools[0].Offloaded*page, stats.Pools[0].Onboarded*page
	found.reused, found.prompted = stats.ReusedTokens, stats.PromptTokens
	leaked, err := e.Close(ctx)
	require.NoError(t, err)
	require.Zero(t, leaked)
	slices.Sort(found.ready)
	return found
}

// engineAndSimulation plays conversations on the device and on simulated ones, and tells what
// admissions have waited for on each. The decisions are the same on all.
func engineAndSimulation(t *testing.T) {
	size := int(budget(t) >> 30) // 5 GiB of host memory each
	all := []conversations{
		{"pages of 2 MiB", 32, 8, 128, 12 * size, 150 * size, 3000, 250 * size, 2200 * size,
			5 * time.Millisecond},
		{"pages of 256 KiB", 32, 1, 128, 12 * size, 150 * size, 3000, 250 * size, 2200 * size,
			2 * time.Millisecond},
		{"pages of 16 KiB", 4, 1, 64, 12 * size, 150 * size, 3000, 250 * size, 2200 * size,
			2 * time.Millisecond},
	}
	if testing.Short() || size == 0 {
		all = []conversations{{"pages of 16 KiB", 4, 1, 64, 6, 20, 1000, 200, 600, 0}}
	}
	for _, c := range all {
		device := openDriver(t)
		began := time.Now()
		found := c.play(t, clocked{device, func() time.Duration { return time.Since(began) }, time.Sleep})
		require.NoError(t, device.Close())
		t.Logf("%s, %s: %s", c.name, device.name, found)
		for _, profile := range []string{"h100-measured", "h200-measured", sim.DefaultProfile} {
			d, err := sim.New(sim.Config{MemoryBytes: 64 << 30, Profile: profile, Poison: sim.PoisonOff})
			require.NoError(t, err)
			simulated := c.play(t, clocked{d, d.Now, d.Advance})
			require.NoError(t, d.Close())
			t.Logf("%s, %s: %s", c.name, profile, simulated)
			require.Equal(t, found.decisions(), simulated.decisions())
		}
	}
}
