package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// stressSize says how hard a stress test presses.
type stressSize struct {
	hosts, sequences int // groups of sequences that each host runs, one after the other
	pages            windows.PageCounts
	faults           faults
	seed             uint64
}

// faults are what goes wrong around the hosts.
type faults uint8

const (
	copyFaults faults = 1 << iota // copies that the device refuses
	rebalances                    // memory that moves between the pools
)

// stress is one engine on a checked, simulated device, and everyone around it.
type stress struct {
	stressSize
	engine  *actors.Engine
	sim     *sim.Device
	checked *check.Device
	layouts []host.Layout
	compute gpu.Stream

	// door is held for reading while a host uses page tables, and
	// for writing by who moves pages: the quiet points.
	door   sync.RWMutex
	launch sync.Mutex // kernels are launched one at a time
	writer *host.Writer

	texts []messages.Prefix // what prompts begin with
	seen  coverage

	mu       sync.Mutex
	problems []string
	left     []*sequence // still running when the hosts have gone
}

const stressBlock = 8 // tokens

// newStress starts the engine: full attention and two windows, one with sinks.
func newStress(tb testing.TB, size stressSize) *stress {
	s := &stress{stressSize: size, seen: coverage{counts: map[string]int{}}}
	model := windows.Model{Layers: 3, KVHeads: []int{1, 2, 1}, HeadDim: 4, DType: windows.Float16,
		MaxSeqLen: 2048}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = stressBlock
	cache.MaxAttentionWindow = []int{2048, 64, 128}
	cache.SinkTokenLength = 4
	cache.EventBufferMaxSize = 1 << 10
	pools := must(windows.Pools(model, cache))
	counts := make([]windows.PageCounts, len(pools))
	for i, p := range pools {
		counts[i] = size.pages
		cache.HostCacheSize += int64(size.pages.Secondary) * p.PageBytes()
		s.layouts = append(s.layouts, host.NewLayout(p))
	}
	var err error
	s.sim, err = sim.New(sim.Config{MemoryBytes: 1 << 30, Seed: int64(size.seed)})
	require.NoError(tb, err)
	// A page that moves is copied whole, also where nothing is written yet; what
	// the bytes should be is verified in kernels and at the end.
	s.checked = check.Wrap(s.sim, check.Options{OnProblem: s.problem, IgnoreUnwritten: true})
	system := actor.NewActorSystem(actor.WithLoggerFactory(
		func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	s.engine, err = actors.Spawn(system.Root, actors.Config{Model: model, Cache: cache, Pages: counts,
		Device: s.checked}, actors.WithClock(s.sim.Now))
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_, _ = s.engine.Close(context.Background()) // again, unless the test has failed
		system.Shutdown()
	})
	s.compute, err = s.checked.NewStream("compute")
	require.NoError(tb, err)
	s.writer = host.NewWriter(host.WriterConfig{
		Launcher: s.checked, Stream: s.compute, Pools: s.engine.DevicePools(), Layouts: s.layouts,
		NanosPerToken: 200,
	})
	s.texts = stressTexts(dice(size.seed))
	return s
}

// stressTexts are what hosts ask for again and again: some with a salt, some
// with an image in them.
func stressTexts(r *rand.Rand) (texts []messages.Prefix) {
	for i := range 16 {
		p := messages.Prefix{Tokens: random(r, 40+r.IntN(300))}
		if i%4 == 3 {
			p.Namespace.Salt = fmt.Sprint("tenant ", i)
		}
		if i%5 == 4 {
			p.Multimodal = []messages.MultimodalItem{{Hash: [32]byte{byte(i)}, Start: 5, Length: 20}}
		}
		texts = append(texts, p)
	}
	return texts
}

func (s *stress) problem(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) < 20 {
		s.problems = append(s.problems, p)
	}
}

// run starts hosts, time and trouble until the hosts have run their sequences.
func (s *stress) run() {
	var hosts, others sync.WaitGroup
	var over atomic.Bool
	others.Go(func() {
		for !over.Load() {
			s.sim.Advance(20 * time.Microsecond)
			time.Sleep(50 * time.Microsecond)
		}
	})
	others.Go(func() { s.trouble(&over) })
	for i := range s.hosts {
		h := &guest{stress: s, dice: rand.New(rand.NewPCG(s.seed, uint64(i)+100))}
		hosts.Go(h.runSequences)
	}
	hosts.Wait()
	over.Store(true)
	others.Wait()
}

// trouble makes copies fail and moves memory between the pools.
func (s *stress) trouble(over *atomic.Bool) {
	r := dice(s.seed + 7)
	for i := 1; !over.Load(); i++ {
		time.Sleep(time.Duration(1+r.IntN(4)) * time.Millisecond)
		if s.faults&copyFaults != 0 {
			s.sim.Fail(gpu.Direction(r.IntN(int(gpu.Directions))), 1+r.IntN(2))
			s.seen.add("copy faults set")
		}
		if s.faults&rebalances != 0 && i%8 == 0 {
			s.rebalance(r)
		}
	}
}

// rebalance moves memory at a quiet point: no host uses tables, no
// kernel is under way.
func (s *stress) rebalance(r *rand.Rand) {
	fractions := map[string]float64{}
	total := 0.0
	pools := s.engine.Pools()
	for _, p := range pools {
		fractions[p.Name] = 1 + r.Float64()
		total += fractions[p.Name]
	}
	for name := range fractions {
		fractions[name] /= total
	}
	if r.IntN(3) == 0 {
		fractions = nil // by demand
	}
	s.door.Lock()
	defer s.door.Unlock()
	if err := s.rest(); err != nil {
		s.problem(err.Error())
	}
	moved, err := s.engine.Rebalance(context.Background(), fractions)
	// else a page was not copied
	if s.faults&copyFaults == 0 || !errors.Is(err, messages.ErrInternal) {
		s.refused("rebalance", err)
	}
	for _, m := range moved.Moved {
		s.seen.addN("held pages moved", len(m))
	}
}

// rest waits for all kernels.
func (s *stress) rest() error {
	end, err := s.checked.Fence(s.compute)
	if err != nil {
		return err
	}
	return s.checked.Sync(context.Background(), end)
}

// finish verifies every byte that is claimed, every invariant, and that nothing
// is left when all sequences are gone.
func (s *stress) finish(tb testing.TB) (pages int) {
	ctx := context.Background()
	s.sim.Drain()
	s.endLost(ctx)
	claims := host.Claims{Blocks: must(s.engine.Contents(ctx))}
	for i, q := range s.left {
		claims.Sequences = append(claims.Sequences, host.Held{
			Name: fmt.Sprint(i), Computed: q.computed, Beams: q.beams,
			Tables: must(s.engine.TablesOf(ctx, q.id)),
		})
	}
	verifier := host.Verifier{Layouts: s.layouts, Read: s.reader(tb)}
	pages, problems := verifier.Verify(claims)
	require.Empty(tb, s.problems)
	require.Empty(tb, problems)
	require.Empty(tb, s.writer.Problems(), "read by kernels")
	require.NoError(tb, s.engine.Check(ctx))
	for _, q := range s.left {
		results, err := s.engine.Release(ctx, []messages.ReleaseStep{{Sequence: q.id, After: q.last}})
		require.NoError(tb, err)
		require.NoError(tb, results[0].Err)
	}
	require.NoError(tb, s.engine.Check(ctx))
	stats := must(s.engine.Stats(ctx))
	require.Zero(tb, stats.Sequences)
	for _, p := range stats.Pools {
		require.Zero(tb, p.Primary.Used, p.Name)
		s.seen.addN("pages evicted", int(p.Evicted))
		s.seen.addN("pages offloaded", int(p.Offloaded))
		s.seen.addN("pages onboarded", int(p.Onboarded))
		s.seen.addN("blocks reused whole", int(p.ReusedFull))
		s.seen.addN("blocks reused in part", int(p.ReusedPartial))
	}
	require.NoError(tb, s.rest()) // memory goes with the engine
	leaked, err := s.engine.Close(ctx)
	require.NoError(tb, err)
	require.Zero(tb, leaked, "leaked pages")
	require.NoError(tb, s.checked.Close())
	require.Empty(tb, s.problems)
	return pages
}

// endLost ends the sequences whose pages could not be moved or copied: the
// engine says so of each, once.
func (s *stress) endLost(ctx context.Context) {
	kept := s.left[:0]
	for _, q := range s.left {
		if _, err := s.engine.TablesOf(ctx, q.id); !errors.Is(err, messages.ErrSequenceLost) {
			kept = append(kept, q)
			continue
		}
		results := must(s.engine.Release(ctx, []messages.ReleaseStep{{Sequence: q.id, After: q.last}}))
		if !errors.Is(results[0].Err, messages.ErrSequenceLost) {
			s.problem(fmt.Sprintf("release of a lost sequence: %v", results[0].Err))
		}
		s.seen.addN("sequences lost", 1)
	}
	s.left = kept
}

// reader gives the bytes of pages at rest: the memory that a kernel is given
// stays valid on this device.
func (s *stress) reader(tb testing.TB) host.Read {
	var bytes gpu.PageBytes
	_, err := s.checked.Launch(s.compute, gpu.Kernel{Label: "verify",
		Run: func(b gpu.PageBytes) { bytes = b }})
	require.NoError(tb, err)
	s.sim.Drain()
	pools := s.engine.DevicePools()
	return func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
		return bytes(gpu.Slot{Pool: pools[pool], Tier: tier, Page: page})
	}
}

// BenchmarkStress is hundreds of hosts at once, meant for the race detector:
//
//	go test -race -run=NONE -bench=Stress ./bench
func BenchmarkStress(b *testing.B) {
	size := stressSize{hosts: 256, sequences: 8, pages: windows.PageCounts{Primary: 2500,
		Secondary: 1200}, faults: copyFaults | rebalances, seed: 1}
	if quick() {
		size.sequences = 2
	}
	benchStress(b, size)
}

func benchStress(b *testing.B, size stressSize) {
	total, pages := coverage{counts: map[string]int{}}, 0
	for b.Loop() {
		s := newStress(b, size)
		s.run()
		pages += s.finish(b)
		for what, n := range s.seen.counts {
			total.addN(what, n)
		}
		size.seed++
	}
	total.addN("pages verified at the end", pages)
	fmt.Printf("covered by %d runs of %d hosts:\n%s", b.N, size.hosts, total.String())
	b.ReportMetric(float64(total.counts["admit"])/b.Elapsed().Seconds(), "admissions/s")
}

// TestStress is a short one of few hosts, so that every test run has one.
func TestStress(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, faults := range map[string]faults{
		"calm": 0, "faults": copyFaults, "rebalances": rebalances, "both": copyFaults | rebalances,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				s := newStress(t, stressSize{
					hosts: 24, sequences: 4, pages: windows.PageCounts{Primary: 300, Secondary: 150},
					faults: faults, seed: seed,
				})
				s.run()
				require.NotZero(t, s.finish(t))
				require.NotZero(t, s.seen.counts["pages offloaded"], s.seen.String())
			}
		})
	}
}

// coverage counts what a stress test has done.
type coverage struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *coverage) add(what string) { c.addN(what, 1) }

func (c *coverage) addN(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what] += n
}

// String is a table of three columns, the most frequent first.
func (c *coverage) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 8, 1, ' ', 0)
	keys := byCount(c.counts)
	rows := (len(keys) + 2) / 3
	for row := range rows {
		for i := row; i < len(keys); i += rows {
			fmt.Fprintf(table, "%8d %s\t", c.counts[keys[i]], keys[i])
		}
		fmt.Fprintln(table)
	}
	table.Flush()
	return text.String()
}
