package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// world is a hybrid model: full attention and two windows, 16 tokens a block.
type world struct {
	model  windows.Model
	cache  windows.Config
	counts []windows.Counts
}

func newWorld(pages int) world {
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = 16
	cache.MaxAttentionWindow = []int{1 << 30, 1024, 4096}
	w := world{
		model: windows.Model{Layers: 3, KVHeads: []int{1}, HeadDim: 1, DType: windows.Int8, MaxSeqLen: 1 << 20},
		cache: cache,
	}
	for range 3 {
		w.counts = append(w.counts, windows.Counts{Primary: pages})
	}
	return w
}

func (w world) direct(tb testing.TB) *direct.Engine {
	pools, err := windows.Pools(w.model, w.cache)
	require.NoError(tb, err)
	cores := direct.Cores{}
	oc := offloader.Config{MinPriority: 35}
	shapes := []tree.PoolShape{}
	for i, p := range pools {
		cores.Pools = append(cores.Pools, pool.New(p.Name, w.counts[i].Primary))
		shapes = append(shapes, tree.PoolShape{Window: p.Window, Sink: p.Sink})
		oc.Pools = append(oc.Pools, offloader.PoolConfig{
			Name: p.Name, DevicePages: w.counts[i].Primary, PageBytes: p.PageBytes(), Layers: 1, KVHeads: 1, HeadDim: 1, ElemBytes: 1, TokensPerBlock: 16,
		})
	}
	cores.Tree = tree.New(tree.Config{TokensPerBlock: 16, Pools: shapes})
	cores.Offloader = offloader.New(oc)
	return direct.New(coordinator.Config{
		Pools: pools, Counts: w.counts, TokensPerBlock: 16, MaxSeqLen: w.model.MaxSeqLen, Reuse: true, Partial: true, CopyOnPartial: true,
	}, cores)
}

func (w world) actors(tb testing.TB) *actors.Engine {
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 33, Poison: sim.PoisonOff})
	require.NoError(tb, err)
	e, err := actors.Spawn(system.Root, actors.Config{Model: w.model, Cache: w.cache, Pages: w.counts, Device: device})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_, err := e.Close(context.Background())
		require.NoError(tb, err)
		system.Shutdown()
	})
	return e
}

func prompt(from, n int) []messages.Token {
	t := make([]messages.Token, n)
	for i := range t {
		t[i] = messages.Token(from + i)
	}
	return t
}

// pair is one admission of a stored prompt and its release.
type pair struct {
	admit   messages.Admit
	release messages.Release
}

func newPair(tokens []messages.Token) *pair {
	return &pair{
		admit:   messages.Admit{Requests: []messages.AdmitRequest{{Tokens: tokens}}},
		release: messages.Release{Steps: make([]messages.ReleaseStep, 1)},
	}
}

func (p *pair) run(do func(any)) {
	do(&p.admit)
	p.release.Steps[0].Sequence = p.admit.Results[0].Sequence
	do(&p.release)
}

func BenchmarkAdmitRelease(b *testing.B) {
	for _, blocks := range []int{100, 1000, 6000} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			w := newWorld(3*blocks + 100)
			floor, engine := w.direct(b), w.actors(b)
			ctx := context.Background()
			doFloor := func(r any) { floor.Do(r) }
			doActors := func(r any) { require.NoError(b, engine.Do(ctx, r)) }
			a, f := newPair(prompt(0, blocks*16+1)), newPair(prompt(0, blocks*16+1))
			for _, x := range []struct {
				do func(any)
				p  *pair
			}{{doFloor, f}, {doActors, a}} {
				x.do(&x.p.admit)
				require.NoError(b, x.p.admit.Results[0].Err)
				x.do(&messages.Commit{Steps: []messages.CommitStep{{Sequence: x.p.admit.Results[0].Sequence, Computed: blocks * 16}}})
				x.p.release.Steps[0].Sequence = x.p.admit.Results[0].Sequence
				x.do(&x.p.release)
			}
			b.ReportAllocs()
			var ta, tf time.Duration
			b.ResetTimer()
			for range b.N {
				t0 := time.Now()
				f.run(doFloor)
				t1 := time.Now()
				a.run(doActors)
				ta += time.Since(t1)
				tf += t1.Sub(t0)
			}
			require.Equal(b, blocks*16, a.admit.Results[0].ReusedTokens)
			b.ReportMetric(float64(ta.Nanoseconds())/float64(b.N), "actors-ns")
			b.ReportMetric(float64(tf.Nanoseconds())/float64(b.N), "direct-ns")
			b.ReportMetric(float64(ta)/float64(tf), "x/floor")
		})
	}
}
