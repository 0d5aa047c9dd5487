package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/internal/direct"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader"
	"github.com/kvactor/kvactor/pool"
	"github.com/kvactor/kvactor/tree"
	"github.com/kvactor/kvactor/windows"
)

// tokensPerBlock is that of all benchmarks but replays.
const tokensPerBlock = 16

// shape is an engine to be measured.
type shape struct {
	windows        []int // max_attention_window; nil: one pool of full attention
	pages          int   // of each pool
	tokensPerBlock int   // 0: tokensPerBlock
	events         int   // event_buffer_max_size
	clock          func() time.Duration
	states         int    // pages of a state pool; 0: no recurrent layers
	policy         string // eviction_policy; "": the default
	heads          []int  // KV heads by layer, a pool for each number; nil: one everywhere
}

// hybrid has three pools, as models with local attention have: one layer in
// three attends to everything, the others to 1024 and to 4096 tokens.
func hybrid(pages int) shape {
	return shape{windows: []int{1 << 30, 1024, 4096}, pages: pages}
}

// full has one pool of full attention.
func full(pages int) shape { return shape{pages: pages} }

func (s shape) cache() windows.Config {
	c := windows.DefaultConfig()
	if c.TokensPerBlock = s.tokensPerBlock; c.TokensPerBlock == 0 {
		c.TokensPerBlock = tokensPerBlock
	}
	c.MaxAttentionWindow = s.windows
	c.EventBufferMaxSize = s.events
	if s.policy != "" {
		c.EvictionPolicy = s.policy
	}
	return c
}

func (s shape) model() windows.Model {
	m := windows.Model{Layers: max(1, len(s.windows), len(s.heads)), KVHeads: []int{1}, HeadDim: 1,
		DType: windows.Int8, MaxSeqLen: 1 << 20}
	if s.heads != nil {
		m.KVHeads = s.heads
	}
	if s.states > 0 {
		m.KVHeads = append(slices.Repeat(m.KVHeads, m.Layers), 0)
		m.States = []windows.State{{Layers: []int{m.Layers}, Bytes: 64}}
		m.Layers++
	}
	return m
}

func (s shape) counts() []windows.PageCounts {
	counts := slices.Repeat([]windows.PageCounts{{Primary: s.pages}},
		max(1, len(s.windows), len(s.heads)))
	if s.states > 0 {
		counts = append(counts, windows.PageCounts{Primary: s.states})
	}
	return counts
}

// do serves one request record; a request that is not served ends the run.
type do func(request any)

// direct makes coordinator and cores without actors.
func (s shape) direct() *direct.Engine {
	cache, counts := s.cache(), s.counts()
	pools := must(windows.Pools(s.model(), cache))
	var cores direct.Cores
	var shapes []tree.PoolShape
	offloading := offloader.Config{
		MinPriority: messages.DefaultPriority,
		Passed:      func(messages.Ticket) bool { return true },
	}
	for i, p := range pools {
		cores.Pools = append(cores.Pools, pool.New(p.Name, counts[i].Primary))
		shapes = append(shapes, tree.PoolShape{Window: p.Window, Sink: p.Sink})
		offloading.Pools = append(offloading.Pools, offloader.PoolConfig{
			Name: p.Name, PageBytes: p.PageBytes(), TokensPerBlock: p.TokensPerBlock,
			Regions: p.Regions(),
		})
	}
	cores.Tree = tree.New(tree.Config{TokensPerBlock: cache.TokensPerBlock, Pools: shapes})
	cores.Offloader = offloader.New(offloading)
	cores.Clock = s.clock
	cores.Submit = func(s *offloader.Submission) (messages.Ticket, int) {
		return messages.Ticket{Stream: messages.StreamID(s.Lane) + 1}, -1 // as on the quiet device
	}
	return direct.New(coordinator.Config{
		Pools: pools, Counts: counts, TokensPerBlock: cache.TokensPerBlock,
		MaxSeqLen: s.model().MaxSeqLen,
		Reuse:     true, Partial: true, CopyOnPartial: true,
	}, cores)
}

// spawn starts an engine that no one closes but the caller.
func (s shape) spawn() (e *actors.Engine, stop func()) {
	system := newSystem()
	e = s.spawnIn(system)
	return e, func() {
		must(e.Close(context.Background()))
		system.Shutdown()
	}
}

// newSystem is a host's actor system that says nothing.
func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
}

// spawnIn starts an engine in a host's actor system.
func (s shape) spawnIn(system *actor.ActorSystem) *actors.Engine {
	var options []actors.Option
	if s.clock != nil {
		options = append(options, actors.WithClock(s.clock))
	}
	return must(actors.Spawn(system.Root, actors.Config{
		Model: s.model(), Cache: s.cache(), Pages: s.counts(), Device: &quietDevice{},
	}, options...))
}

// actors starts an engine that ends with the benchmark.
func (s shape) actors(tb testing.TB) do {
	e, stop := s.spawn()
	tb.Cleanup(stop)
	return serve(e)
}

// serve sends records to an engine of actors.
func serve(e *actors.Engine) do {
	ctx := context.Background()
	return func(request any) {
		if err := e.Do(ctx, request.(messages.Request)); err != nil {
			panic(fmt.Sprintf("bench: %T was not served: %v", request, err))
		}
	}
}

// must is for set-ups, where an error is a bug of the benchmark.
func must[T any](x T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("bench: %v", err))
	}
	return x
}

// accept panics with a refusal.
func accept(err error) {
	if err != nil {
		panic(fmt.Sprintf("bench: refused: %v", err))
	}
}
