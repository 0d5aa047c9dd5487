package actors_test

import (
	"context"
	"log/slog"
	"sync/atomic"
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
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tpb  = 4   // tokens per block
	full = 512 // the longest sequence
)

// newSystem makes an actor system that says nothing.
func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(deadLetterInterval))
}

// setup is what a rig is made of; the zero value is one pool of full attention
// with eight device pages.
type setup struct {
	windows []int // of the layers
	pages   []windows.PageCounts
	change  func(*windows.Config)
	model   func(*windows.Model)
	memory  []actors.PoolMemory
	ranks   int                  // devices; 0: one
	parent  actor.SpawnerContext // nil: the root of a system of its own
}

// rig is an engine on a simulated device that a hazard checker watches.
type rig struct {
	*actors.Engine
	t       testing.TB
	points  enginetest.Failpoints
	sim     simgroup.Simulated
	device  *stallable
	streams []gpu.Stream // of the host's kernels
	writer  *host.Writer
	layouts []host.Layout
	system  *actor.ActorSystem
}

// stallable is a device whose copies can be made to wait on the processor, as
// no device should: the engine is at work then for as long as a test likes.
type stallable struct {
	*check.Device
	stalled atomic.Pointer[stall]
	stuck   atomic.Pointer[stall] // waits for the device do not end
	late    atomic.Bool           // no copy counts as done before it is waited for
	taken   atomic.Int32          // pools that were made
	given   atomic.Int32          // pools whose memory was given back
	submits func()                // is called by each Submit; nil: nothing is
}

// CreatePool counts.
func (d *stallable) CreatePool(s gpu.PoolSpec) (gpu.Pool, error) {
	d.taken.Add(1)
	return d.Device.CreatePool(s)
}

// Done is false while copies are late.
func (d *stallable) Done(t gpu.Ticket) bool { return !d.late.Load() && d.Device.Done(t) }

// DestroyPool counts.
func (d *stallable) DestroyPool(p gpu.Pool) error {
	d.given.Add(1)
	return d.Device.DestroyPool(p)
}

type stall struct{ reached, released chan struct{} }

// Submit waits while the device is stalled.
func (d *stallable) Submit(s gpu.Stream, b *gpu.Batch) (gpu.Ticket, error) {
	if d.submits != nil {
		d.submits()
	}
	if w := d.stalled.Swap(nil); w != nil {
		close(w.reached)
		<-w.released
	}
	return d.Device.Submit(s, b)
}

// Sync waits without end while the device is stuck.
func (d *stallable) Sync(ctx context.Context, t gpu.Ticket) error {
	if w := d.stuck.Load(); w != nil {
		select {
		case <-w.released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d.Device.Sync(ctx, t)
}

// stick makes waits for the device last until release.
func (d *stallable) stick() *stall {
	w := &stall{released: make(chan struct{})}
	d.stuck.Store(w)
	return w
}

// stall makes the next submission wait for release.
func (d *stallable) stall() *stall {
	w := &stall{make(chan struct{}), make(chan struct{})}
	d.stalled.Store(w)
	return w
}

func modelOf(layers int) windows.Model {
	return windows.Model{Layers: layers, KVHeads: []int{1}, HeadDim: 4, DType: windows.Float16,
		MaxSeqLen: full}
}

// config makes the configuration of a setup on a device.
func (s *setup) config(device gpu.Device) actors.Config {
	if s.windows == nil {
		s.windows = []int{full}
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
	if s.model != nil {
		s.model(&model)
	}
	return actors.Config{Model: model, Cache: cache, Pages: s.pages, Memory: s.memory, Device: device}
}

// simulate makes a device, or a group of devices of different speeds, each with a hazard
// checker of its own.
func simulate(t testing.TB, ranks int) simgroup.Simulated {
	t.Helper()
	config := sim.Config{MemoryBytes: 1 << 24}
	if ranks == 0 {
		d, err := sim.New(config)
		require.NoError(t, err)
		return d
	}
	g, err := simgroup.New(simgroup.Config{
		Config: config, Ranks: ranks, Profiles: []string{"h100-pcie5", "a100-pcie4", "gh200-c2c"},
		Wrap: func(rank int, d *sim.Device) gpu.Device {
			return check.Wrap(d,
				check.Options{OnProblem: func(p string) { t.Errorf("rank %d: %s", rank, p) }})
		},
	})
	require.NoError(t, err)
	return g
}

// newRig starts an engine; close ends it.
func newRig(t testing.TB, s setup, list ...actors.Option) *rig {
	t.Helper()
	d := simulate(t, s.ranks)
	device := &stallable{Device: check.Wrap(d,
		check.Options{OnProblem: func(p string) { t.Error(p) }})}
	r := &rig{t: t, sim: d, device: device}
	if s.parent == nil {
		r.system = newSystem()
		s.parent = r.system.Root
	}
	config := s.config(device)
	var err error
	r.Engine, err = actors.Spawn(s.parent, config, append(list,
		enginetest.WithFailpoints(&r.points))...)
	require.NoError(t, err)
	pools, err := windows.Pools(config.Model, config.Cache)
	require.NoError(t, err)
	for _, p := range pools {
		r.layouts = append(r.layouts, host.NewLayout(p))
	}
	r.writer = r.newWriter("compute")
	return r
}

// newWriter makes a stream of kernels for one host.
func (r *rig) newWriter(name string) *host.Writer {
	stream, err := r.device.NewStream(name)
	require.NoError(r.t, err)
	r.streams = append(r.streams, stream)
	return host.NewWriter(host.WriterConfig{
		Launcher: r.device, Stream: stream, Pools: r.DevicePools(), Layouts: r.layouts,
		NanosPerToken: 1000,
		Ranks:         gpu.Ranks(r.device),
	})
}

// awaitKernels waits for all kernels of the host.
func (r *rig) awaitKernels() {
	r.t.Helper()
	for _, s := range r.streams {
		last, err := r.device.Fence(s)
		require.NoError(r.t, err)
		require.NoError(r.t, r.device.Sync(context.Background(), last))
	}
}

// close ends the engine, which must give everything back.
func (r *rig) close() {
	r.t.Helper()
	r.awaitKernels()
	_, err := r.Close(context.Background())
	assert.NoError(r.t, err)
	r.ended()
}

// ended checks that nothing is left of the engine.
func (r *rig) ended() {
	r.t.Helper()
	memory, err := r.device.Memory()
	require.NoError(r.t, err)
	assert.Equal(r.t, memory.Total, memory.Free, "device memory that was not given back")
	assert.Empty(r.t, r.writer.Problems())
	require.NoError(r.t, r.device.Close())
	if r.system != nil {
		shutdown(r.system)
	}
}

// shutdown ends a system, and waits for the library to have counted its dead
// letters.
func shutdown(system *actor.ActorSystem) {
	time.Sleep(2 * deadLetterInterval)
	system.Shutdown()
}

const deadLetterInterval = time.Millisecond

// sequence is what a host knows of a running sequence.
type sequence struct {
	id       messages.SequenceID
	chains   []host.Chain
	prompt   int
	computed int
	ready    []gpu.Ticket
	last     gpu.Ticket
}

// run of n consecutive tokens.
func run(from, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(from + i)
	}
	return tokens
}

// start admits a prompt, computes and commits it.
func (r *rig) start(tokens []messages.Token) (*sequence, error) {
	a, err := enginetest.Again(func() (messages.Admitted, error) {
		return r.Admit(context.Background(), messages.AdmitRequest{Tokens: tokens})
	})
	if err != nil {
		return nil, err
	}
	s := admitted(messages.AdmitRequest{Tokens: tokens}, &a)
	return s, r.compute(r.writer, s, len(tokens))
}

// admitted is the host's view of an admission.
func admitted(r messages.AdmitRequest, a *messages.Admitted) *sequence {
	return &sequence{
		id: a.Sequence, prompt: len(r.Tokens), computed: a.ReusedTokens, ready: a.Ready,
		chains: host.Chains(messages.Prefix{Namespace: r.Namespace, Tokens: r.Tokens,
			Multimodal: r.Multimodal}),
	}
}

// compute writes the KV of the tokens up to n and commits them.
func (r *rig) compute(w *host.Writer, s *sequence, n int) error {
	tables, err := r.TablesOf(context.Background(), s.id)
	if err != nil {
		return err
	}
	table := host.Beam(tables, 0)
	step := host.Step{
		Label: "compute " + s.id.String(), Waits: s.ready,
		Reads:  []host.Span{{Chains: s.chains, To: s.computed, Table: table}},
		Writes: []host.Span{{Chains: s.chains, From: s.computed, To: n, Table: table}},
	}
	for p := range r.layouts {
		if r.layouts[p].HoldsStates() && n > s.computed {
			step.States = append(step.States, host.StateUpdate{
				Pool: messages.PoolID(p), Page: table[p][0], From: host.StateAfter(s.chains, s.computed),
				To: host.StateAfter(s.chains, n),
			})
		}
	}
	ticket, err := w.Launch(step)
	if err != nil {
		return err
	}
	if n > s.computed { // else there was no kernel, and nothing has waited
		s.ready, s.last = nil, ticket
	}
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Commit(context.Background(),
			[]messages.CommitStep{{Sequence: s.id, Computed: n, After: ticket}})
	})
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil {
		return err
	}
	s.computed = n
	s.ready = append(s.ready, results[0].Ready...)
	return nil
}

// decode appends a sampled token and computes the one before it.
func (r *rig) decode(w *host.Writer, s *sequence, token messages.Token) error {
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Append(context.Background(),
			[]messages.AppendStep{{Sequence: s.id, Tokens: []messages.Token{token}}})
	})
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil {
		return err
	}
	s.chains = append(s.chains, s.chains[len(s.chains)-1].Next(token, messages.Cover{}))
	s.ready = append(s.ready, results[0].Ready...)
	return r.compute(w, s, len(s.chains)-1)
}

// release ends a sequence.
func (r *rig) release(s *sequence) error {
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Release(context.Background(), []messages.ReleaseStep{{Sequence: s.id, After: s.last}})
	})
	if err != nil {
		return err
	}
	return results[0].Err
}

// store leaves a prompt in the cache.
func (r *rig) store(tokens []messages.Token) {
	r.t.Helper()
	s, err := r.start(tokens)
	require.NoError(r.t, err)
	require.NoError(r.t, r.release(s))
}

// verify holds the engine against itself and every byte of the tree's and the
// sequences' pages against what they should be.
func (r *rig) verify(running ...*sequence) {
	r.t.Helper()
	ctx := context.Background()
	r.sim.Drain()
	require.NoError(r.t, r.Check(ctx))
	blocks, err := r.Contents(ctx)
	require.NoError(r.t, err)
	claims := host.Claims{Blocks: blocks}
	for _, s := range running {
		tables, err := r.TablesOf(ctx, s.id)
		require.NoError(r.t, err)
		claims.Sequences = append(claims.Sequences, host.Held{
			Name: s.id.String(), Computed: s.computed, Beams: [][]host.Chain{s.chains}, Tables: tables,
		})
	}
	for rank, device := range simgroup.Sims(r.sim) {
		assert.Empty(r.t, r.wrong(rank, device, claims), "rank %d", rank)
	}
}

// wrong are the claimed pages of a rank that hold something else.
func (r *rig) wrong(rank int, device *sim.Device, claims host.Claims) []string {
	r.t.Helper()
	stream, err := device.NewStream("inspect")
	require.NoError(r.t, err)
	inspector := host.Inspector{Launcher: device, Stream: stream, Drain: device.Drain}
	handles := r.DevicePools()
	v := host.Verifier{
		Layouts: host.OfRank(r.layouts, rank),
		Read: func(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
			return inspector.Bytes(gpu.Slot{Pool: handles[pool], Tier: tier, Page: page})
		},
	}
	_, problems := v.Verify(claims)
	return problems
}
