package survival_test

import (
	"context"
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
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tpb  = 4       // tokens per block
	long = 1 << 20 // the longest sequence
)

var ctx = context.Background()

// setup is what a rig is made of; the zero value is one pool of full attention
// with eight device pages.
type setup struct {
	windows []int // of the layers
	pages   []windows.PageCounts
	change  func(*windows.Config)
	clock   func() time.Duration
	encodes bool // an encoder–decoder model, with eight pages for the cross pool
	states  bool // a recurrent layer more; its pages are the last ones
}

// rig is an engine on a simulated device.
type rig struct {
	*actors.Engine
	t      testing.TB
	points enginetest.Failpoints
	device *sim.Device
	system *actor.ActorSystem
}

func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
}

func modelOf(layers int) windows.Model {
	return windows.Model{Layers: layers, KVHeads: []int{1}, HeadDim: 1, DType: windows.Int8,
		MaxSeqLen: long}
}

func (s *setup) config(t testing.TB) actors.Config {
	t.Helper()
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 28, Poison: sim.PoisonOff})
	require.NoError(t, err)
	if s.windows == nil {
		s.windows = []int{long}
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow = tpb, s.windows
	if s.change != nil {
		s.change(&cache)
	}
	if s.pages == nil {
		s.pages = []windows.PageCounts{{Primary: 8}}
	}
	model := modelOf(len(s.windows))
	if s.states {
		model.KVHeads = append(slices.Repeat(model.KVHeads, model.Layers), 0)
		model.States = []windows.State{{Layers: []int{model.Layers}, Bytes: 64}}
		model.Layers++
	}
	if s.encodes {
		model.CrossLayers, model.CrossKVHeads, model.EncoderMaxLen = 1, 1, 8*tpb
		cache.CrossKVCacheFraction = 0.5
		s.pages = append(s.pages, windows.PageCounts{Primary: 8})
	}
	return actors.Config{Model: model, Cache: cache, Pages: s.pages, Device: device}
}

// newRig starts an engine; close ends it.
func newRig(t testing.TB, s setup, list ...actors.Option) *rig {
	t.Helper()
	config := s.config(t)
	if s.clock != nil {
		list = append(list, actors.WithClock(s.clock))
	}
	r := &rig{t: t, system: newSystem(), device: config.Device.(*sim.Device)}
	var err error
	r.Engine, err = actors.Spawn(r.system.Root, config, append(list,
		enginetest.WithFailpoints(&r.points))...)
	require.NoError(t, err)
	return r
}

// close ends an engine that no one uses any more.
func (r *rig) close() {
	r.t.Helper()
	assert.NoError(r.t, r.Check(ctx))
	leaked, err := r.Close(ctx)
	require.NoError(r.t, err)
	assert.Zero(r.t, leaked, "pages that sequences still held")
	r.end()
}

// end ends the system of an engine that is closed.
func (r *rig) end() {
	r.system.Shutdown()
	// The library ends its throttles when their interval has passed.
	time.Sleep(5 * time.Millisecond)
	require.NoError(r.t, r.device.Close())
}

// used is the number of device pages that are held, by pool.
func (r *rig) used() []int {
	r.t.Helper()
	stats, err := r.Stats(ctx)
	require.NoError(r.t, err)
	var n []int
	for _, p := range stats.Pools {
		n = append(n, p.Primary.Used)
	}
	return n
}

// run of n consecutive tokens.
func run(from, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(from + i)
	}
	return tokens
}

func prompt(from, n int) messages.AdmitRequest {
	return messages.AdmitRequest{Tokens: run(from, n)}
}

// admit takes a sequence in that must fit.
func (r *rig) admit(q messages.AdmitRequest) messages.Admitted {
	r.t.Helper()
	a, err := enginetest.Again(func() (messages.Admitted, error) {
		return r.Admit(ctx, q)
	})
	require.NoError(r.t, err)
	return a
}

// compute commits the first n tokens of a sequence.
func (r *rig) compute(id messages.SequenceID, n int) {
	r.t.Helper()
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Commit(ctx, []messages.CommitStep{{Sequence: id, Computed: n}})
	})
	require.NoError(r.t, err)
	require.NoError(r.t, results[0].Err)
}

func (r *rig) release(ids ...messages.SequenceID) {
	r.t.Helper()
	var steps []messages.ReleaseStep
	for _, id := range ids {
		steps = append(steps, messages.ReleaseStep{Sequence: id})
	}
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Release(ctx, steps)
	})
	require.NoError(r.t, err)
	for _, result := range results {
		require.NoError(r.t, result.Err)
	}
}

// answer is what a call that runs beside the test came to.
type answer struct {
	admitted messages.Admitted
	err      error
}

// later admits beside the test.
func (r *rig) later(c context.Context, q messages.AdmitRequest) chan answer {
	done := make(chan answer, 1)
	go func() {
		a, err := enginetest.Again(func() (messages.Admitted, error) {
			return r.Admit(c, q)
		})
		done <- answer{a, err}
	}()
	return done
}
