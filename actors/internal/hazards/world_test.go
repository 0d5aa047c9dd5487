package hazards

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/group/simgroup"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tpb    = 4   // tokens per block
	maxLen = 512 // of a sequence
)

// setup is what a world is made of.
type setup struct {
	windows []int // max_attention_window; nil: one pool of full attention
	pages   windows.PageCounts
	states  windows.PageCounts // pages of recurrent states; none: the model has no such layer
	streams int                // of the host's kernels; 0: one
	seed    int64
	change  func(*windows.Config)
	// moves: pages are copied whole when they move, also what no one has written.
	moves bool
	ranks int // devices; 0: one
	// wrap is what the engine gets in place of the device that is checked; nil: the device.
	wrap    func(*check.Device) gpu.Device
	options []actors.Option
}

// world is an engine on a simulated device that the hazard checker watches,
// and the host's streams.
type world struct {
	*actors.Engine
	t       testing.TB
	points  enginetest.Failpoints
	sim     simgroup.Simulated
	device  *check.Device
	group   *simgroup.Device // nil: one device
	checks  []*check.Device  // of the ranks of the group
	streams []gpu.Stream
	writers []*host.Writer
	layouts []host.Layout
	system  *actor.ActorSystem
	lost    bool // the device is gone: nothing can be checked at the end
}

// config makes the configuration of a setup.
func (s *setup) config(device gpu.Device) actors.Config {
	if s.windows == nil {
		s.windows = []int{maxLen}
	}
	model := windows.Model{Layers: len(s.windows), KVHeads: []int{2}, HeadDim: 4,
		DType: windows.Float16, MaxSeqLen: maxLen}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = tpb, s.windows
	cache.EventBufferMaxSize = 1 << 16
	if s.change != nil {
		s.change(&cache)
	}
	pages := make([]windows.PageCounts, 0, len(s.windows))
	distinct := map[int]bool{}
	for _, w := range s.windows {
		if !distinct[w] {
			distinct[w] = true
			pages = append(pages, s.pages)
		}
	}
	if s.states != (windows.PageCounts{}) {
		s.recur(&model, &cache)
		pages = append(pages, s.states) // the state pool comes last
	}
	return actors.Config{Model: model, Cache: cache, Pages: pages, Device: device}
}

// recur adds a recurrent layer, which has no keys and values, behind the others.
func (s *setup) recur(model *windows.Model, cache *windows.Config) {
	model.States = []windows.State{{Layers: []int{model.Layers}, Bytes: 64}}
	model.KVHeads = append(slices.Repeat(model.KVHeads, model.Layers), 0)
	model.Layers++
	cache.MaxAttentionWindow = append(slices.Clone(s.windows), maxLen)
}

// newSystem makes an actor system that says nothing.
func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
}

// newWorld starts an engine; close ends it.
func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{t: t, system: newSystem()}
	var err error
	w.simulate(&s)
	w.device = check.Wrap(w.sim, check.Options{IgnoreUnwritten: s.moves})
	config := s.config(w.device)
	if s.wrap != nil {
		config.Device = s.wrap(w.device)
	}
	w.Engine, err = actors.Spawn(w.system.Root, config, append(s.options, actors.WithClock(w.sim.Now),
		enginetest.WithFailpoints(&w.points))...)
	require.NoError(t, err)
	pools, err := windows.Pools(config.Model, config.Cache)
	require.NoError(t, err)
	for _, p := range pools {
		w.layouts = append(w.layouts, host.NewLayout(p))
	}
	for i := range max(1, s.streams) {
		stream, err := w.device.NewStream(fmt.Sprint("compute ", i))
		require.NoError(t, err)
		w.streams = append(w.streams, stream)
		w.writers = append(w.writers, host.NewWriter(host.WriterConfig{
			Launcher: w.device, Stream: stream, Pools: w.DevicePools(), Layouts: w.layouts,
			NanosPerToken: 400, Ranks: s.ranks,
		}))
	}
	return w
}

// profiles are those of the ranks of a group, in turn.
var profiles = []string{"h100-pcie5", "a100-pcie4", "gh200-c2c"}

// simulate makes the device, or a group of devices of different speeds, each with a
// hazard checker of its own.
func (w *world) simulate(s *setup) {
	w.t.Helper()
	config := sim.Config{MemoryBytes: 1 << 24, Seed: s.seed}
	var err error
	if s.ranks == 0 {
		w.sim, err = sim.New(config)
		require.NoError(w.t, err)
		return
	}
	w.group, err = simgroup.New(simgroup.Config{
		Config: config, Ranks: s.ranks, Profiles: profiles,
		Wrap: func(_ int, d *sim.Device) gpu.Device {
			c := check.Wrap(d, check.Options{IgnoreUnwritten: s.moves})
			w.checks = append(w.checks, c)
			return c
		},
	})
	require.NoError(w.t, err)
	w.sim = w.group
}

// rest waits for all kernels of the host.
func (w *world) rest() {
	w.t.Helper()
	for _, s := range w.streams {
		last, err := w.device.Fence(s)
		require.NoError(w.t, err)
		require.NoError(w.t, w.device.Sync(context.Background(), last))
	}
}

// wrong is everything that checker and kernels have found, and all bytes that
// are not what they should be.
func (w *world) wrong(running ...*sequence) []string {
	w.t.Helper()
	problems := w.device.Problems()
	for rank, c := range w.checks {
		for _, p := range c.Problems() {
			problems = append(problems, fmt.Sprintf("rank %d: %s", rank, p))
		}
	}
	for _, writer := range w.writers {
		problems = append(problems, writer.Problems()...)
	}
	w.sim.Drain()
	var bytes []string
	for rank := range gpu.Ranks(w.sim) {
		v := host.Verifier{Layouts: host.OfRank(w.layouts, rank), Read: w.reader(rank)}
		_, wrong := v.Verify(w.claims(running))
		for _, p := range wrong {
			bytes = append(bytes, fmt.Sprintf("rank %d: %s", rank, p))
		}
	}
	for _, writer := range w.writers {
		problems = append(problems, writer.Problems()...)
	}
	return append(problems, bytes...)
}

// claims is what tree and sequences claim to hold.
func (w *world) claims(running []*sequence) host.Claims {
	w.t.Helper()
	blocks, err := w.Contents(context.Background())
	require.NoError(w.t, err)
	claims := host.Claims{Blocks: blocks}
	for _, q := range running {
		tables, err := w.TablesOf(context.Background(), q.id)
		require.NoError(w.t, err)
		claims.Sequences = append(claims.Sequences, host.Held{
			Name: q.id.String(), Computed: q.computed, Beams: [][]host.Chain{q.chains}, Tables: tables,
		})
	}
	return claims
}

// reader gives the bytes of a rank's pages at rest: on this device the memory that a
// kernel is given stays valid.
func (w *world) reader(rank int) host.Read {
	w.t.Helper()
	var bytes gpu.PageBytes
	_, err := w.sim.Launch(w.streams[0], gpu.Kernel{Label: "verify",
		RunRank: func(r int, b gpu.PageBytes) {
			if r == rank {
				bytes = b
			}
		}})
	require.NoError(w.t, err)
	w.sim.Drain()
	handles := w.DevicePools()
	return func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
		return bytes(gpu.Slot{Pool: handles[pool], Tier: tier, Page: page})
	}
}

// right demands that nothing is wrong.
func (w *world) right(running ...*sequence) {
	w.t.Helper()
	require.Empty(w.t, w.wrong(running...))
	require.NoError(w.t, w.Check(context.Background()))
}

// stats reads the counters of the pools, added up.
func (w *world) stats() (sum inspect.PoolCounters) {
	w.t.Helper()
	stats, err := w.Stats(context.Background())
	require.NoError(w.t, err)
	for _, p := range stats.Pools {
		sum.Evicted += p.Evicted
		sum.Offloaded += p.Offloaded
		sum.Dropped += p.Dropped
		sum.Onboarded += p.Onboarded
		sum.ReusedFull += p.ReusedFull
		sum.ReusedPartial += p.ReusedPartial
		sum.WaitingTakes += p.WaitingTakes
		sum.AheadPages += p.AheadPages
		sum.Checkpoints += p.Checkpoints
	}
	return sum
}

// close ends the engine, which must give everything back.
func (w *world) close() {
	w.t.Helper()
	if !w.lost {
		w.rest()
	}
	_, err := w.Close(context.Background())
	if !w.lost {
		assert.NoError(w.t, err)
		memory, err := w.device.Memory()
		require.NoError(w.t, err)
		assert.Equal(w.t, memory.Total, memory.Free, "device memory that was not given back")
	}
	require.NoError(w.t, w.device.Close())
	w.system.Shutdown()
}
