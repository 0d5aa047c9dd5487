package encoderdecoder_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/actors/coordinator"
	"github.com/kvactor/kvactor/actors/enginetest"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/windows"
)

func TestMain(m *testing.M) {
	code := m.Run()
	system().Shutdown()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// system is the actor system of all tests: making one costs milliseconds.
var system = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(
			func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond))
})

const (
	tpb  = 4  // tokens per block
	full = 64 // the longest sequence, prompt and answer
	long = 30 // the longest encoder input
)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	require.TestingT
	Helper()
}

// setup is what a rig is made of.
type setup struct {
	windows []int
	pages   []windows.PageCounts // the cross pool last
	change  func(*windows.Config)
	dtype   windows.DType
	now     *time.Duration // nil: time stands still
	store   *actors.StoreConfig
	room    int // of the waiting room
}

// rig is the engine of an encoder–decoder model on a simulated device that a
// hazard checker watches, with a host that writes and checks every byte.
type rig struct {
	*actors.Engine
	t       tester
	points  enginetest.Failpoints
	sim     *sim.Device
	device  *check.Device
	stream  gpu.Stream // of the host's kernels
	inspect gpu.Stream
	layouts []host.Layout
	decoder *host.Writer // of the decoder's pools
	encoder *host.Writer // of the cross pool
	last    int          // the cross pool's number
	running []*hostSequence
	wrong   []string // found by kernels and by the hazard checker

	unwritten bool // the host writes nothing, so copies read what no one has written
}

// hostSequence is what the host knows of a running sequence.
type hostSequence struct {
	id       messages.SequenceID
	request  messages.AdmitRequest
	admitted messages.Admitted
	chains   []host.Chain // of the decoder's tokens
	cross    []host.Chain // of the encoder's
	computed int
	ready    []gpu.Ticket
	after    gpu.Ticket
	written  bool // the cross KV is in the pages
}

// model has one KV head in the decoder and two in the cross attention.
func model(layers int, dtype windows.DType) windows.Model {
	return windows.Model{
		Layers: layers, KVHeads: []int{1}, HeadDim: 8, DType: dtype, MaxSeqLen: full,
		CrossLayers: layers, CrossKVHeads: 2, EncoderMaxLen: long,
	}
}

func (s *setup) config(device gpu.Device) actors.Config {
	if s.windows == nil {
		s.windows = []int{full}
	}
	if s.dtype == "" {
		s.dtype = windows.Float16
	}
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.CrossKVCacheFraction = tpb, s.windows, 0.5
	if s.change != nil {
		s.change(&cache)
	}
	return actors.Config{Model: model(len(s.windows), s.dtype), Cache: cache, Pages: s.pages,
		Device: device}
}

func newRig(t tester, s setup) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	r.sim, err = sim.New(sim.Config{MemoryBytes: 1 << 24})
	require.NoError(t, err)
	r.device = check.Wrap(r.sim, check.Options{OnProblem: func(p string) {
		if !r.unwritten || !strings.Contains(p, "reads what nothing has written") {
			r.wrong = append(r.wrong, p)
		}
	}})
	config := s.config(r.device)
	options := []actors.Option{enginetest.WithFailpoints(&r.points),
		actors.WithClock(func() time.Duration {
			if s.now == nil {
				return 0
			}
			return *s.now
		})}
	if s.store != nil {
		options = append(options, actors.WithStore(*s.store))
	}
	if s.room > 0 {
		options = append(options, actors.WithWaitingRoom(s.room))
	}
	r.Engine, err = actors.Spawn(system().Root, config, options...)
	require.NoError(t, err)
	pools, err := windows.Pools(config.Model, config.Cache)
	require.NoError(t, err)
	own, _ := windows.CrossPool(config.Model, config.Cache)
	r.last = len(pools)
	for _, p := range append(pools, own) {
		r.layouts = append(r.layouts, host.NewLayout(p))
	}
	r.stream, err = r.device.NewStream("compute")
	require.NoError(t, err)
	r.inspect, err = r.sim.NewStream("inspect")
	require.NoError(t, err)
	handles := r.DevicePools()
	writer := func(from, to int) *host.Writer {
		return host.NewWriter(host.WriterConfig{
			Launcher: r.device, Stream: r.stream, Pools: handles[from:to], Layouts: r.layouts[from:to],
			NanosPerToken: 1000,
		})
	}
	r.decoder, r.encoder = writer(0, r.last), writer(r.last, r.last+1)
	return r
}

// end releases everything and closes the engine, which must give all memory back.
func (r *rig) end() {
	r.t.Helper()
	for len(r.running) > 0 {
		r.release(r.running[0])
	}
	r.sim.Drain()
	leaked, err := r.Close(context.Background())
	require.NoError(r.t, err)
	assert.Zero(r.t, leaked)
	memory, err := r.device.Memory()
	require.NoError(r.t, err)
	assert.Equal(r.t, memory.Total, memory.Free, "device memory that was not given back")
	assert.Empty(r.t, r.wrong)
	require.NoError(r.t, r.device.Close())
}

// run of n consecutive tokens.
func run(from, n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(from + i)
	}
	return tokens
}

// ask is a request with an encoder input.
func ask(encoder, tokens []messages.Token) messages.AdmitRequest {
	return messages.AdmitRequest{Encoder: encoder, Tokens: tokens}
}

// admit takes a sequence in and computes nothing.
func (r *rig) admit(request messages.AdmitRequest) (*hostSequence, error) {
	r.t.Helper()
	a, err := enginetest.Again(func() (messages.Admitted, error) {
		return r.Admit(context.Background(), request)
	})
	if err != nil {
		assert.Zero(r.t, a.Sequence)
		return nil, err
	}
	return r.begin(request, a), nil
}

// begin notes an admitted sequence.
func (r *rig) begin(request messages.AdmitRequest, a messages.Admitted) *hostSequence {
	ns := request.Namespace
	ns.Encoder = coordinator.EncoderKey(request.Encoder, request.EncoderItems)
	l := &hostSequence{
		id: a.Sequence, request: request, admitted: a, computed: a.ReusedTokens, ready: a.Ready,
		chains: host.Chains(messages.Prefix{Namespace: ns, Tokens: request.Tokens,
			Multimodal: request.Multimodal}),
		cross:   host.Chains(messages.Prefix{Namespace: ns, Tokens: request.Encoder}),
		written: a.Cross.ReusedTokens == len(request.Encoder),
	}
	r.running = append(r.running, l)
	require.Len(r.t, a.Cross.Table, (len(request.Encoder)+tpb-1)/tpb)
	require.Equal(r.t, [][]messages.PageID{a.Cross.Table}, a.Tables[r.last])
	return l
}

// start admits a sequence, computes its prompt and commits it.
func (r *rig) start(request messages.AdmitRequest) *hostSequence {
	r.t.Helper()
	l, err := r.admit(request)
	require.NoError(r.t, err)
	r.compute(l, len(request.Tokens))
	return l
}

// compute runs the encoder if it must, then the decoder up to n tokens.
func (r *rig) compute(l *hostSequence, n int) {
	r.t.Helper()
	r.encode(l)
	r.attend(l)
	tables, err := r.TablesOf(context.Background(), l.id)
	require.NoError(r.t, err)
	table := host.Beam(tables[:r.last], 0)
	after, err := r.decoder.Launch(host.Step{
		Label: "decode " + l.id.String(), Waits: l.ready,
		Reads:  []host.Span{{Chains: l.chains, To: l.computed, Table: table}},
		Writes: []host.Span{{Chains: l.chains, From: l.computed, To: n, Table: table}},
	})
	require.NoError(r.t, err)
	if !after.IsZero() {
		l.after, l.ready = after, nil
	}
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Commit(context.Background(),
			[]messages.CommitStep{{Sequence: l.id, Computed: n, After: l.after}})
	})
	require.NoError(r.t, err)
	require.NoError(r.t, results[0].Err)
	l.computed, l.ready = n, append(l.ready, results[0].Ready...)
}

// encode writes the cross KV that was not reused.
func (r *rig) encode(l *hostSequence) {
	r.t.Helper()
	if l.written {
		return
	}
	c := l.admitted.Cross
	_, err := r.encoder.Launch(host.Step{
		Label: "encode " + l.id.String(), Waits: c.Ready,
		Writes: []host.Span{{Chains: l.cross, From: c.ReusedTokens, To: len(l.cross),
			Table: host.Table{c.Table}}},
	})
	require.NoError(r.t, err)
	l.written = true
}

// attend reads the cross KV, as every decoder step does.
func (r *rig) attend(l *hostSequence) {
	r.t.Helper()
	c, handle := l.admitted.Cross, r.DevicePools()[r.last]
	k := gpu.Kernel{Label: "attend " + l.id.String(), Waits: c.Ready}
	for _, page := range c.Table {
		k.Reads = append(k.Reads, gpu.Access{Slot: gpu.Slot{Pool: handle, Page: page}})
	}
	k.Run = func(bytes gpu.PageBytes) {
		for i, chain := range l.cross {
			if err := r.layouts[r.last].Verify(bytes(k.Reads[i/tpb].Slot), i%tpb, chain); err != nil {
				r.wrong = append(r.wrong, fmt.Sprintf("cross KV of %v, token %d: %v", l.id, i, err))
				return
			}
		}
	}
	after, err := r.device.Launch(r.stream, k)
	require.NoError(r.t, err)
	l.after = after
}

// decode appends a sampled token and computes the one before it.
func (r *rig) decode(l *hostSequence, token messages.Token) error {
	r.t.Helper()
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Append(context.Background(),
			[]messages.AppendStep{{Sequence: l.id, Tokens: []messages.Token{token}}})
	})
	require.NoError(r.t, err)
	if results[0].Err != nil {
		return results[0].Err
	}
	l.chains = append(l.chains, l.chains[len(l.chains)-1].Next(token, messages.Cover{}))
	l.ready = append(l.ready, results[0].Ready...)
	r.compute(l, len(l.chains)-1)
	return nil
}

// fork makes n sequences like one.
func (r *rig) fork(l *hostSequence, n int) []*hostSequence {
	r.t.Helper()
	ids, err := r.ForkOne(context.Background(), l.id, n)
	require.NoError(r.t, err)
	require.Len(r.t, ids, n)
	var forks []*hostSequence
	for _, id := range ids {
		f := *l
		f.id, f.chains = id, append([]host.Chain(nil), l.chains...)
		forks = append(forks, &f)
		r.running = append(r.running, &f)
	}
	return forks
}

// release ends a sequence.
func (r *rig) release(l *hostSequence) {
	r.t.Helper()
	results, err := enginetest.Again(func() ([]messages.StepResult, error) {
		return r.Release(context.Background(), []messages.ReleaseStep{{Sequence: l.id, After: l.after}})
	})
	require.NoError(r.t, err)
	require.NoError(r.t, results[0].Err)
	r.forget(l)
}

func (r *rig) forget(l *hostSequence) {
	for i := range r.running {
		if r.running[i] == l {
			r.running = append(r.running[:i], r.running[i+1:]...)
			return
		}
	}
}

// store leaves a prompt and its encoder input in the cache.
func (r *rig) store(request messages.AdmitRequest) *hostSequence {
	r.t.Helper()
	l := r.start(request)
	r.release(l)
	return l
}

// verify holds the engine against itself and every byte of all pages against
// what it should be.
func (r *rig) verify() {
	r.t.Helper()
	ctx := context.Background()
	r.sim.Drain()
	require.NoError(r.t, r.Check(ctx))
	blocks, err := r.Contents(ctx)
	require.NoError(r.t, err)
	inspector := host.Inspector{Launcher: r.sim, Stream: r.inspect, Drain: r.sim.Drain}
	handles := r.DevicePools()
	v := host.Verifier{Layouts: r.layouts, Read: func(pool messages.PoolID, tier messages.Tier,
		page messages.PageID) []byte {
		return inspector.Bytes(gpu.Slot{Pool: handles[pool], Tier: tier, Page: page})
	}}
	claims := host.Claims{Blocks: blocks}
	for _, l := range r.running {
		tables, err := r.TablesOf(ctx, l.id)
		require.NoError(r.t, err)
		require.Equal(r.t, l.admitted.Cross.Table, tables[r.last][0], "the cross table stays as it is")
		claims.Sequences = append(claims.Sequences, host.Held{
			Name: l.id.String(), Computed: l.computed, Beams: [][]host.Chain{l.chains},
			Tables: tables[:r.last],
		})
		if l.written {
			own := make(messages.Tables, r.last+1)
			own[r.last] = tables[r.last]
			claims.Sequences = append(claims.Sequences, host.Held{
				Name: "cross " + l.id.String(), Computed: len(l.cross), Beams: [][]host.Chain{l.cross},
				Tables: own,
			})
		}
	}
	_, problems := v.Verify(claims)
	require.Empty(r.t, problems)
	require.Empty(r.t, append(r.wrong, append(r.decoder.Problems(), r.encoder.Problems()...)...))
}

// picture is what a refused request must leave as it was.
func (r *rig) picture() string {
	r.t.Helper()
	stats, err := r.Stats(context.Background())
	require.NoError(r.t, err)
	blocks, err := r.Contents(context.Background())
	require.NoError(r.t, err)
	// who asks, and not what is held
	stats.Rounds, stats.Waiting, stats.Calls = 0, 0, inspect.CallStats{}
	// its goroutines go on by themselves
	stats.Store = nil
	// any round may copy ahead, also one that refuses
	for p := range stats.Pools {
		stats.Pools[p].AheadPages, stats.Pools[p].BytesOffloaded = 0, 0
	}
	return fmt.Sprintf("%+v\n%+v", stats, blocks)
}

// assertCross compares used, cached and free device pages of the cross pool.
func (r *rig) assertCross(used, cached, free int) {
	r.t.Helper()
	r.assertPool(r.last, used, cached, free)
}

func (r *rig) assertPool(p, used, cached, free int) {
	r.t.Helper()
	stats, err := r.Stats(context.Background())
	require.NoError(r.t, err)
	c := stats.Pools[p].Primary
	assert.Equal(r.t, [3]int{used, cached, free}, [3]int{c.Used, c.Cached, c.Free},
		"used, cached, free of pool %s", stats.Pools[p].Name)
}
