package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/model"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/gpu/check"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// system is the actor system of the process. Its own log is silent: errors come
// back to the callers.
var system = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }),
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
})

// Config says how a model is run.
type Config struct {
	TokensPerBlock int                 // 0: 32
	Pages          int                 // of each pool on the device; 0: enough for two of the longest sequences
	HostPages      int                 // of each pool in host memory
	Chunk          int                 // tokens of a prompt that are computed at a time; 0: all
	NoReuse        bool                // store and match nothing
	DType          windows.DType       // of the cache; "": float32
	MaxLen         int                 // of a sequence; 0: what the model is made for, at most 8192
	Workers        int                 // that compute; 0: one for each processor
	Checked        bool                // report every access to pages that nothing orders
	Seed           int64               // of the device's schedule
	Options        []actors.Option     // of the engine
	Fetch          time.Duration       // that an admission waits for the engine's store, if it has one
	Trace          func(sim.Operation) // is told of each operation of the device; nil: nothing is
	// Adjust changes the cache configuration before the engine starts. Nil: not.
	Adjust func(*windows.Config)
}

// maxLen bounds the length of sequences unless Config.MaxLen says otherwise.
const maxLen = 8192

// settle fills in defaults.
func (c *Config) settle(m *model.Model) error {
	if c.TokensPerBlock == 0 {
		c.TokensPerBlock = 32
	}
	if c.DType == "" {
		c.DType = windows.Float32
	}
	if c.MaxLen == 0 {
		c.MaxLen = min(m.MaxLen, maxLen)
	}
	if c.Chunk < 0 || c.Pages < 0 || c.HostPages < 0 {
		return fmt.Errorf("chunks of %d tokens, %d pages, %d host pages: none may be negative", c.Chunk, c.Pages, c.HostPages)
	}
	if c.Chunk%c.TokensPerBlock != 0 {
		return fmt.Errorf("a chunk of %d tokens is not a multiple of %d, the tokens of a block", c.Chunk, c.TokensPerBlock)
	}
	c.NoReuse = c.NoReuse || m.Recurrent()
	return nil
}

// Runner is a model on an engine of its own. One goroutine at a time uses it.
type Runner struct {
	Model  *model.Model
	Engine *actors.Engine
	Config Config

	exec    *model.Executor
	workers *attention.Workers
	device  *sim.Device
	hazards *check.Device // nil: unchecked
	launch  gpu.Launcher
	sync    func(context.Context, gpu.Ticket) error
	compute gpu.Stream
	pools   []windows.Pool // by PoolID, the cross pool last
	handles []gpu.Pool
	pending []*kernel // launched, and not waited for yet
	guest   bool      // of an engine that another runner opened and closes
}

// Open starts an engine for a model.
func Open(m *model.Model, c Config) (*Runner, error) {
	if err := c.settle(m); err != nil {
		return nil, err
	}
	geometry, limits := m.Geometry(c.MaxLen, c.DType)
	cache := windows.DefaultConfig()
	cache.TokensPerBlock, cache.MaxAttentionWindow, cache.EnableBlockReuse = c.TokensPerBlock, limits, !c.NoReuse
	if m.Encodes() {
		cache.CrossKVCacheFraction = 0.5
	}
	if c.HostPages > 0 {
		cache.HostCacheSize = 1 // the exact count is below
	}
	if c.Adjust != nil {
		c.Adjust(&cache)
	}
	r := &Runner{Model: m, Config: c}
	var err error
	if r.pools, err = windows.Pools(geometry, cache); err != nil {
		return nil, err
	}
	if cross, ok := windows.CrossPool(geometry, cache); ok {
		r.pools = append(r.pools, cross)
	}
	if err := r.start(geometry, cache); err != nil {
		return nil, err
	}
	if err := r.scale(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// start makes the device, the engine and the executor.
func (r *Runner) start(geometry windows.Model, cache windows.Config) (err error) {
	counts, memory := make([]windows.Counts, len(r.pools)), int64(0)
	for i, p := range r.pools {
		pages := r.Config.Pages
		if pages == 0 {
			pages = 2 * ((r.Config.MaxLen-1)/p.TokensPerBlock + 2)
		}
		counts[i] = windows.Counts{Primary: pages, Secondary: r.Config.HostPages}
		memory += int64(pages) * p.PageBytes()
	}
	if r.device, err = sim.New(sim.Config{MemoryBytes: memory, Seed: r.Config.Seed, Trace: r.Config.Trace}); err != nil {
		return err
	}
	r.launch, r.sync = r.device, r.device.Sync
	device := gpu.Device(r.device)
	if r.Config.Checked {
		r.hazards = check.Wrap(r.device, check.Options{})
		device, r.launch, r.sync = r.hazards, r.hazards, r.hazards.Sync
	}
	if r.compute, err = device.NewStream("compute"); err != nil {
		return err
	}
	r.Engine, err = actors.Spawn(system().Root, actors.Config{Model: geometry, Cache: cache, Pages: counts, Device: device}, r.Config.Options...)
	if err != nil {
		return errors.Join(err, r.device.Close())
	}
	r.handles = r.Engine.DevicePools()
	r.workers = attention.NewWorkers(r.Config.Workers)
	r.exec, err = model.NewExecutor(r.Model, r.pools, r.workers)
	return err
}

// Another is a second host of the same engine, with a compute stream of its own.
// Close it before the runner that opened the engine.
func (r *Runner) Another() (*Runner, error) {
	other := *r
	other.guest, other.pending, other.workers = true, nil, attention.NewWorkers(r.Config.Workers)
	var err error
	if other.exec, err = model.NewExecutor(r.Model, r.pools, other.workers); err != nil {
		return nil, err
	}
	scales, err := r.Engine.Scales(context.Background())
	for _, s := range scales {
		other.exec.SetScales(s.Layer, s.Cross, s.K, s.V)
	}
	if err != nil {
		return nil, err
	}
	other.compute, err = r.watched().NewStream("another compute")
	return &other, err
}

// watched is the device as the engine sees it.
func (r *Runner) watched() gpu.Device {
	if r.hazards != nil {
		return r.hazards
	}
	return r.device
}

// scale sets the scales of 8-bit caches: what a fixed text, the same for every
// model, needs. So they are a function of the model alone.
func (r *Runner) scale() error {
	if r.Config.DType != windows.Int8 && r.Config.DType != windows.FP8 {
		return nil
	}
	scales, err := model.Calibrate(r.Model, r.Config.DType, r.workers)
	if err != nil {
		return err
	}
	if err := r.Engine.SetScales(context.Background(), scales); err != nil {
		return err
	}
	kept, err := r.Engine.Scales(context.Background())
	if err != nil {
		return err
	}
	for _, s := range kept {
		r.exec.SetScales(s.Layer, s.Cross, s.K, s.V)
	}
	return nil
}

// Close ends the engine and gives its memory back. Pages that sequences still
// held are an error.
func (r *Runner) Close() error {
	if r.guest {
		r.workers.Close()
		return nil
	}
	leaked, err := r.Engine.Close(context.Background())
	if err == nil && leaked > 0 {
		err = fmt.Errorf("%d pages leaked", leaked)
	}
	if r.workers != nil {
		r.workers.Close()
	}
	return errors.Join(err, r.device.Close())
}

// Hazards are the accesses so far that nothing ordered; none if they are not
// checked.
func (r *Runner) Hazards() []string {
	if r.hazards == nil {
		return nil
	}
	return r.hazards.Problems()
}

// Request is what a sequence is made of.
type Request struct {
	Tokens, Encoder []messages.Token
	Salt            string
	Adapter         *model.Adapter
	Beams           int
}

// namespace separates salts and adapters.
func (q *Request) namespace() messages.Namespace {
	n := messages.Namespace{Salt: q.Salt}
	if q.Adapter != nil {
		n.LoRA, n.HasLoRA = q.Adapter.Name, true
	}
	return n
}

// AdmitAll takes sequences in, in one call. Each that was refused has an error
// in its place.
func (r *Runner) AdmitAll(ctx context.Context, requests []Request) ([]*Sequence, []error, error) {
	asked := make([]messages.AdmitRequest, len(requests))
	for i := range requests {
		q := &requests[i]
		asked[i] = messages.AdmitRequest{
			Namespace: q.namespace(), Tokens: q.Tokens, Encoder: q.Encoder, BeamWidth: q.Beams, ChunkTokens: r.Config.Chunk,
			Fetch: r.Config.Fetch,
		}
	}
	results, err := r.Engine.AdmitBatch(ctx, asked)
	if err != nil {
		return nil, nil, err
	}
	out, errs := make([]*Sequence, len(results)), make([]error, len(results))
	for i, in := range results {
		if errs[i] = in.Err; in.Err == nil {
			out[i] = r.admitted(&requests[i], in)
		}
	}
	return out, errs, nil
}

// Admit takes one sequence in.
func (r *Runner) Admit(ctx context.Context, q Request) (*Sequence, error) {
	in, errs, err := r.AdmitAll(ctx, []Request{q})
	if err != nil {
		return nil, err
	}
	return in[0], errs[0]
}

// Append adds tokens to sequences, one list for each: sampled ones and drafts.
// A sequence that finds no page is left as it was and has an error in its place.
func (r *Runner) Append(ctx context.Context, batch []*Sequence, tokens [][]messages.Token) ([]error, error) {
	steps := make([]messages.AppendStep, len(batch))
	for i, s := range batch {
		steps[i] = messages.AppendStep{Sequence: s.id, Tokens: tokens[i]}
	}
	results, err := r.Engine.Append(ctx, steps)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(batch))
	for i, s := range batch {
		s.ready = append(s.ready, results[i].Ready...)
		if errs[i] = results[i].Err; errs[i] == nil {
			s.Tokens = append(s.Tokens, tokens[i]...)
		}
	}
	return errs, nil
}

// AppendBeams extends the beams of a sequence by a token each.
func (r *Runner) AppendBeams(ctx context.Context, s *Sequence, beams []messages.BeamStep) error {
	results, err := r.Engine.Append(ctx, []messages.AppendStep{{Sequence: s.id, Beams: beams}})
	if err != nil {
		return err
	}
	s.ready = append(s.ready, results[0].Ready...)
	if results[0].Err != nil {
		return results[0].Err
	}
	s.follow(beams)
	return nil
}

// Rewind drops the last n tokens of a sequence, which must not be committed.
func (r *Runner) Rewind(ctx context.Context, s *Sequence, n int) error {
	errs, err := r.RewindAll(ctx, []*Sequence{s}, []int{n})
	if err != nil {
		return err
	}
	return errs[0]
}

// RewindAll drops the last tokens of sequences, n[i] of batch[i], in one call. Each
// that was refused has an error in its place.
func (r *Runner) RewindAll(ctx context.Context, batch []*Sequence, n []int) ([]error, error) {
	m := &messages.Rewind{Steps: make([]messages.RewindStep, len(batch))}
	for i, s := range batch {
		if s.state != nil {
			return nil, refusals.New(messages.ErrNotSupported, "a rewind with recurrent layers: the engine keeps no states")
		}
		m.Steps[i] = messages.RewindStep{Sequence: s.id, Tokens: n[i]}
	}
	if err := r.Engine.Do(ctx, m); err != nil {
		return nil, err
	}
	if m.Err != nil {
		return nil, m.Err
	}
	errs := make([]error, len(batch))
	for i, s := range batch {
		s.ready = append(s.ready, m.Results[i].Ready...)
		if errs[i] = m.Results[i].Err; errs[i] == nil {
			s.Tokens = s.Tokens[:len(s.Tokens)-n[i]]
			s.computed = min(s.computed, len(s.Tokens))
		}
	}
	return errs, nil
}

// Fork makes sequences that go on from where one is.
func (r *Runner) Fork(ctx context.Context, s *Sequence, n int) ([]*Sequence, error) {
	if s.state != nil {
		if err := r.Wait(ctx); err != nil {
			return nil, err
		}
	}
	ids, err := r.Engine.ForkOne(ctx, s.id, n)
	if err != nil {
		return nil, err
	}
	out := make([]*Sequence, len(ids))
	for i, id := range ids {
		f := *s
		f.id, f.state = id, s.state.Clone()
		f.Tokens = append([]messages.Token(nil), s.Tokens...)
		f.ready = append([]gpu.Ticket(nil), s.ready...)
		out[i] = &f
	}
	return out, nil
}

// Release ends sequences; what is computed of them stays for others.
func (r *Runner) Release(ctx context.Context, batch ...*Sequence) error {
	steps := make([]messages.ReleaseStep, len(batch))
	for i, s := range batch {
		steps[i] = messages.ReleaseStep{Sequence: s.id, After: s.last}
	}
	results, err := r.Engine.Release(ctx, steps)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

// commit tells the engine that tokens are computed. A sequence that was lost has
// an error in its place.
func (r *Runner) commit(ctx context.Context, batch []*Sequence, upTo []int, after gpu.Ticket) ([]error, error) {
	steps := make([]messages.CommitStep, len(batch))
	for i, s := range batch {
		steps[i] = messages.CommitStep{Sequence: s.id, Computed: upTo[i], After: after}
	}
	results, err := r.Engine.Commit(ctx, steps)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(batch))
	for i, s := range batch {
		s.ready = append(s.ready[:0], results[i].Ready...)
		errs[i] = results[i].Err
	}
	return errs, nil
}

// tables reads the page tables of sequences.
func (r *Runner) tables(ctx context.Context, batch []*Sequence) ([]messages.TablesResult, error) {
	ids := make([]messages.SequenceID, len(batch))
	for i, s := range batch {
		ids[i] = s.id
	}
	return r.Engine.Tables(ctx, ids)
}
