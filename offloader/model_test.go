package offloader

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// runModel drives the offloader through random Moves against the oracle of
// host memory and the machine that finds hazards.
func runModel(t *rapid.T) {
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
	cfg := worldConfig()
	cfg.Pools[1].HostPages = rapid.IntRange(0, 6).Draw(t, "host pages")
	for i := range cfg.Pools {
		cfg.Pools[i].SparePages = rapid.IntRange(0, 3).Draw(t, "spare pages")
		cfg.Pools[i].Policy = policyOf(rapid.Bool().Draw(t, "forecast"))
	}
	shares := []windows.Quota{0, windows.NoQuota / 5, windows.NoQuota / 2, windows.NoQuota}
	cfg.Quotas = rapid.SliceOfN(rapid.SampledFrom(shares), 0, 4).Draw(t, "quotas")
	w := newWorld(cfg, worldPages, pick)
	w.faults = rapid.SampledFrom([]int{0, 0, 5, 2}).Draw(t, "faults")
	if rapid.Bool().Draw(t, "passed") {
		cfg.Passed = w.passed
		w.o = New(cfg)
	}
	t.Repeat(map[string]func(*rapid.T){
		"move":  func(t *rapid.T) { hold(t, w, w.step()) },
		"ahead": func(t *rapid.T) { hold(t, w, w.aheadOfDemand()) },
		"pass":  func(t *rapid.T) { w.pass() },
	})
}

func hold(t *rapid.T, w *world, err error) {
	if err != nil {
		t.Fatalf("%v\n%s", err, w.o)
	}
}

// pass makes the host see one operation done, with all operations before it.
func (w *world) pass() {
	stream := 1 + w.pick(allStreams)
	if n := len(w.m.clocks[stream]); n > 0 {
		seen := w.m.clocks[stream][w.pick(n)]
		w.m.passed.join(&seen)
	}
}

// worldPages are the device pages of each pool.
var worldPages = []int{8, 6}

func (w *world) passed(t messages.Ticket) bool { return w.m.passed[t.Stream] >= t.Seq }

func TestModel(t *testing.T) { rapid.Check(t, runModel) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(runModel)) }

// random is a world that a seed drives: fast enough for thousands of Moves.
func random(seed uint64, cfg Config, device []int) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	return newWorld(cfg, device, r.IntN)
}

func TestLongRuns(t *testing.T) {
	for seed := range uint64(20) {
		cfg := worldConfig()
		if seed%4 >= 2 {
			cfg.Quotas = []windows.Quota{windows.NoQuota, windows.NoQuota / 4, windows.NoQuota / 2}
		}
		cfg.Pools[0].Policy = policyOf(seed%5 >= 3)
		w := random(seed, cfg, worldPages)
		w.faults = []int{0, 4}[seed%2]
		if seed%3 == 0 {
			cfg.Passed = w.passed
			w.o = New(cfg)
		}
		for range 100 {
			require.NoError(t, w.step(), "seed %d", seed)
			require.NoError(t, w.aheadOfDemand(), "seed %d", seed)
			w.pass()
		}
	}
}

// TestCrowdedHostMemory plays Moves whose victims displace many contents each, of pieces that are
// often worth the same.
func TestCrowdedHostMemory(t *testing.T) {
	choices := 0
	for seed := range uint64(16) {
		cfg := worldConfig()
		for i := range cfg.Pools {
			cfg.Pools[i].HostPages, cfg.Pools[i].Policy = 14, policyOf(seed%4 > 0)
		}
		if seed%3 == 0 {
			cfg.Quotas = []windows.Quota{windows.NoQuota, windows.NoQuota / 4, windows.NoQuota / 2}
		}
		w := random(seed, cfg, []int{40, 40})
		w.crowded = true
		for range 150 {
			require.NoError(t, w.step(), "seed %d", seed)
			w.pass()
			for i := range w.move.Pools {
				for _, out := range w.move.Pools[i].Outcomes {
					if out.Displaced != protocol.NoBlock {
						choices++
					}
				}
			}
		}
	}
	assert.Greater(t, choices, 20_000)
}

// Each wait is needed: without it the machine finds a hazard.
func TestEachWaitIsNeeded(t *testing.T) {
	for _, name := range WaitNames() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				cfg := worldConfig()
				cfg.SkipWait = name
				w := random(seed, cfg, worldPages)
				for range 60 {
					if err := w.step(); err != nil {
						require.ErrorContains(t, err, "is not ordered after", "seed %d", seed)
						return
					}
				}
			}
			t.Fatal("nothing noticed that the wait was left out")
		})
	}
}
