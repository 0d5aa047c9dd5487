package replay

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	clocks "sync/atomic"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/windows"
)

// Config is one replay.
type Config struct {
	Trace string // path
	// Model and Costs are what the pages look like and what computing costs.
	Model          windows.Model
	Windows        []int // max_attention_window; nil: full attention
	Costs          cost.Model
	TokensPerBlock int // 0: the trace's own
	Pages          int // of each pool; with Atomic the blocks that fit
	HostPages      int // of each pool
	Policy         string
	// PrefillDoublesAt is that of windows.Config for the policy forecast; 0: all blocks take the same
	// work.
	PrefillDoublesAt int
	Limit            int // requests; 0: all
	// requests that wait to be prefetched before each try to admit, not with Atomic
	Prefetch int
	// NoKernels leaves out the simulated kernels, with Atomic only: no bytes are written or
	// checked. They run outside of the time that is measured, but they fill the processor's
	// caches with their own data, so that the engine's calls take up to twice as long.
	NoKernels bool
	// Intervals is how many parts Result.OverTime has; 0: none.
	Intervals int
	// Progress is called after each request; nil: no one looks.
	Progress func(*Result)
	// Observer makes what watches the engine; nil: nothing does.
	Observer func() *observer.Observer
}

// The modes, as Result names them.
const (
	ModeAtomic = "atomic"
	ModeTimed  = "timed"
)

// Limits of the command line.
const (
	MaxPages  = 1 << 24
	maxMemory = 64 << 30 // bytes of pages, device and host
)

// maxRunning and stepTokens are those of a server with one large GPU.
const (
	maxRunning = 64
	stepTokens = 8192
)

// session is an opened trace and engine.
type session struct {
	config Config
	reader *trace.Reader
	rig    *engine.Rig
	result Result
	start  time.Time
	line   timeline
	// arrival is that of the current request. An actor may ask for it on another
	// goroutine.
	arrival clocks.Int64
}

// open opens the trace and an engine with extra pages beyond the configured.
func open(c Config, mode string, extra int) (*session, error) {
	reader, err := trace.Open(c.Trace)
	if err != nil {
		return nil, err
	}
	s := &session{config: c, reader: reader, start: time.Now()}
	if s.config.TokensPerBlock == 0 {
		s.config.TokensPerBlock = reader.TokensPerBlock()
	}
	s.result = Result{
		Trace: filepath.Base(c.Trace), Mode: mode, Policy: c.Policy,
		TokensPerBlock: s.config.TokensPerBlock, Pages: c.Pages, HostPages: c.HostPages,
	}
	if s.rig, err = s.openRig(mode, extra); err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return s, nil
}

func (s *session) openRig(mode string, extra int) (*engine.Rig, error) {
	c := &s.config
	cache := windows.DefaultConfig()
	cache.TokensPerBlock = c.TokensPerBlock
	cache.MaxAttentionWindow = c.Windows
	if cache.EvictionPolicy = c.Policy; c.Policy == windows.Forecast {
		cache.PrefillDoublesAt = c.PrefillDoublesAt
	}
	// Whole blocks are what atomic replays count; their prompts have no others.
	cache.EnablePartialReuse = mode != ModeAtomic
	options := engine.Options{Model: c.Model, Cache: cache, Limit: maxMemory,
		Pages: windows.PageCounts{Primary: c.Pages + extra, Secondary: c.HostPages}}
	if mode == ModeAtomic {
		// Requests of this model take no time, so the engine's time is that of the trace.
		options.Clock = func() time.Duration { return time.Duration(s.arrival.Load()) }
	}
	if c.Observer != nil {
		options.Observer = c.Observer()
	}
	rig, err := engine.Open(options)
	if err != nil {
		return nil, err
	}
	s.result.Pools = len(rig.Pools)
	for _, p := range rig.Pools {
		s.result.PageBytes += p.PageBytes()
	}
	return rig, nil
}

// next reads the next request of the trace, nil at its end or the limit.
func (s *session) next() (*trace.Request, error) {
	if s.config.Limit > 0 && s.result.Requests >= s.config.Limit {
		return nil, nil
	}
	r, err := s.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return r, err
}

// progress notes that a request is counted, at a time of the replay.
func (s *session) progress(at time.Duration) {
	if s.config.Intervals > 0 {
		s.line.note(at, s.result.counted(s.rig.Sim))
	}
	if s.config.Progress != nil {
		s.config.Progress(&s.result)
	}
}

// close shuts everything down; cause is the error that ends the replay, if any. A replay whose
// context has ended has a result all the same: that of the requests before.
func (s *session) close(ctx context.Context, cause error) (*Result, error) {
	interrupted := cause != nil && ctx.Err() != nil && errors.Is(cause, ctx.Err())
	if interrupted {
		ctx, cause = context.WithoutCancel(ctx), nil
	}
	if cause == nil {
		cause = s.result.close(ctx, s.rig, s.start, !s.config.NoKernels)
	}
	if cause == nil && s.config.Intervals > 0 && s.result.Requests > 0 {
		// The copies that went on until the end belong to it.
		s.line.note(0, s.result.counted(s.rig.Sim))
		s.result.OverTime = s.line.intervals(s.config.Intervals)
	}
	// An engine is closed even if the replay was cancelled: others may go on in this process.
	leaked, err := s.rig.Shutdown(context.WithoutCancel(ctx))
	s.result.LeakedPages = leaked
	if err := errors.Join(cause, err, s.reader.Close()); err != nil {
		return nil, err
	}
	if interrupted {
		return &s.result, context.Canceled
	}
	return &s.result, nil
}

// Timed replays a trace at a server: requests arrive by their timestamps, and overlap.
func Timed(ctx context.Context, c Config) (*Result, error) {
	s, err := open(c, ModeTimed, 0)
	if err != nil {
		return nil, err
	}
	return s.serve(ctx)
}

// serve replays through a server.
func (s *session) serve(ctx context.Context) (*Result, error) {
	c := &s.config
	arrivals := &countedArrivals{Arrivals: Arrivals{Reader: s.reader, Limit: c.Limit}, session: s}
	step := max(stepTokens, s.config.TokensPerBlock)
	server, err := serve.New(serve.Config{
		Rig: s.rig, Name: "replay", Model: c.Costs, GPU: cost.H100(), MaxRunning: maxRunning,
		StepTokens: step,
		Prefetch:   c.Prefetch,
	}, arrivals)
	if err != nil {
		return s.close(ctx, err)
	}
	arrivals.server = server
	err = server.Run(ctx)
	s.result.timed(server.Totals())
	s.result.checked(server.Compute())
	return s.close(ctx, err)
}
