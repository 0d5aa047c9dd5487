package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/openai"
	"github.com/kvactor/kvactor/cmd/demo/internal/report"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/windows"
)

// serveFlags are those of demo serve.
type serveFlags struct {
	model, listen string
	config        runner.Config
	cache         cacheFlags
	limits        scheduler.Config
	timeout       time.Duration
	grace         time.Duration
	origins       []string
	reset         bool
	store         storeFlag
	watch         watchFlags
}

// serveBlock are the tokens of a block, unless the user says so.
const serveBlock = 16

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a language model over HTTP, in the form of OpenAI's API",
		Long: `serve runs an inference server whose keys and values lie in the engine's pages:
continuous batching, prompts in chunks, preemption, streaming. Any client of
OpenAI's API can talk to it: completions and chat completions, with vLLM's parameters
of sampling; docs/serving.md lists them, and others are refused. The usage tells how
many tokens of the prompt were cached; cache_salt separates tenants.

Beside the API it serves a page that shows the cache at work, at /, its numbers at
/stats, metrics for Prometheus at /metrics, and the blocks that the cache holds as
server-sent events at /events, without tokens and salts. --events publishes them over
ZeroMQ for routers, as vLLM does.

Without --model it serves SmolLM2, if it is where demo model get smollm2 says, and
else a tiny model that comes with the program. It listens on this machine only,
unless --listen says otherwise; there are no passwords.

--config takes a file of TensorRT-LLM's options, or its kv_cache_config alone; flags
come before it. The device's pages are those of --pages, which max_tokens bounds;
host_cache_size counts unless --host-pages is given.`,
		Example: `  demo serve
  demo serve --config options.yaml --set event_buffer_max_size=1024
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"model":"kvactor-tiny",
    "messages":[{"role":"user","content":"What is a KV cache?"}]}'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := cmp.Or(f.check(), f.cache.read(c.Flags(), &f.config, serveBlock))
			if err != nil {
				return statusError{err, statusUsage}
			}
			s, err := openService(c.Context(), &f, c.ErrOrStderr())
			if err != nil {
				return statusError{err, statusUsage}
			}
			return s.run(c.Context(), c.ErrOrStderr())
		},
	}
	f.add(c.Flags())
	return c
}

// add declares the flags.
func (f *serveFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.model, "model", "", modelHelp)
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080",
		"`address` to listen on; without a host, such as :8080, on this machine only")
	flags.IntVar(&f.config.Pages, "pages", 0,
		"device `pages` of each pool; 0: enough for two of the longest sequences")
	flags.IntVar(&f.config.HostPages, "host-pages", 1024,
		"`pages` of each pool in host memory; 0: none")
	flags.Int("tokens-per-block", serveBlock, "`tokens` of a block")
	flags.IntVar(&f.config.Chunk, "chunk", 64,
		"`tokens` of a prompt that are computed in a step, a multiple of a block")
	flags.IntVar(&f.config.MaxLen, "max-len", 0,
		"`tokens` of the longest sequence; 0: what the model is made for, at most 8192")
	flags.Bool("no-reuse", false, "store and reuse nothing")
	flags.String("policy", windows.PriorityLRU, "eviction `policy`: priority_lru, "+
		"or forecast where clients take turns with more than the cache holds")
	flags.String("dtype", string(windows.Float32), dtypeHelp)
	flags.IntVar(&f.limits.Running, "running", 16, "`sequences` that run at a time")
	flags.IntVar(&f.limits.Waiting, "waiting", 256,
		"`requests` that wait; more are refused with status 429")
	flags.IntVar(&f.limits.StepTokens, "step-tokens", 256, "prompt `tokens` that a step computes")
	flags.IntVar(&f.limits.Draft, "draft", 0,
		"`tokens` that are drafted by looking them up in the text so far; the answers are the same")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "`time` that a request may take")
	flags.DurationVar(&f.grace, "grace", 20*time.Second,
		"`time` that requests have to end after an interrupt")
	flags.StringSliceVar(&f.origins, "allowed-origins", nil,
		"`origins` whose pages browsers let read the answers; *: all")
	flags.BoolVar(&f.reset, "allow-reset", false,
		"serve POST /reset_prefix_cache, /invalidate_prefix_cache and /set_weights, by which any "+
			"client can empty the cache")
	f.cache.add(flags)
	f.store.add(flags)
	f.watch.add(flags)
}

// service is a server that listens.
type service struct {
	*language
	flags     *serveFlags
	runner    *runner.Runner
	scheduler *scheduler.Scheduler
	listener  net.Listener
	api       *openai.Server

	observer   *observer.Observer
	closeStore func() error
}

// check refuses values that no server can have.
func (f *serveFlags) check() error {
	c, l := &f.config, &f.limits
	if err := cmp.Or(
		atLeast("pages", c.Pages, 0), atLeast("host-pages", c.HostPages, 0),
		atLeast("max-len", c.MaxLen, 0),
		atLeast("chunk", c.Chunk, 1),
		atLeast("running", l.Running, 1), atLeast("waiting", l.Waiting, 1),
		atLeast("step-tokens", l.StepTokens, 1), atLeast("draft", l.Draft, 0),
	); err != nil {
		return err
	}
	switch {
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %s is not above 0", f.timeout)
	case f.grace < 0:
		return fmt.Errorf("--grace %s is negative", f.grace)
	}
	return nil
}

// openService opens everything that can be wrong.
func openService(ctx context.Context, f *serveFlags, notes io.Writer) (_ *service, err error) {
	f.store.notes = notes
	s := &service{flags: f}
	if s.language, err = openLanguage(f.model); err != nil {
		return nil, err
	}
	// Stores that fail and come back, and failures of actors.
	f.config.Options = append(f.config.Options, f.store.logger())
	if err := s.observe(); err != nil {
		return nil, err
	}
	if s.closeStore, err = f.store.attach(ctx, &f.config, s.files, s.path); err != nil {
		return nil, err
	}
	if s.runner, err = runner.Open(s.model, f.config); err != nil {
		return nil, errors.Join(err, s.closeStore())
	}
	if s.scheduler, err = scheduler.New(s.runner, f.limits); err == nil {
		if s.listener, err = page.Listen(ctx, f.listen); err != nil {
			err = fmt.Errorf("--listen: %w", err)
		}
	}
	if err == nil {
		err = s.observer.Attach(ctx, s.runner.Engine.Actors(), s.runner.Engine, s.runner.Engine.Pools())
	}
	if err != nil {
		return nil, s.close(err)
	}
	var all *kvactor.Engine
	if f.reset {
		all = s.runner.Engine
	}
	s.api = openai.New(s.scheduler, openai.Config{
		Name: s.name, Words: s.words, Form: s.form, MaxLen: s.runner.Config.MaxLen, Timeout: f.timeout,
		Operations: all, Origins: f.origins,
		Healthy: func(ctx context.Context) error {
			_, err := s.runner.Engine.Stats(ctx)
			return err
		},
	})
	return s, nil
}

// close ends everything that is open.
func (s *service) close(cause error) error {
	s.observer.Close(context.Background())
	if s.listener != nil {
		_ = s.listener.Close() // it may be closed already
	}
	return errors.Join(cause, s.runner.Close(), s.closeStore())
}

// run serves until the context ends or the engine fails. Then requests that run have
// the time of --grace; meanwhile new ones are told that the server is stopping.
func (s *service) run(ctx context.Context, notes io.Writer) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	engine, served := make(chan error, 1), make(chan error, 1)
	go func() { engine <- s.scheduler.Run(hard) }()
	web := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	web.RegisterOnShutdown(s.mountPage(hard))
	go func() { served <- web.Serve(s.listener) }()
	s.introduce(hard, notes)
	var failed error
	select {
	case <-ctx.Done():
		n := s.scheduler.Counters()
		fmt.Fprintf(notes,
			"stopping: %d running and %d waiting requests have %s to end; interrupt again to end at once\n",
			n.Running, n.Waiting, s.flags.grace)
	case failed = <-engine:
		engine <- nil
	case failed = <-served:
		served <- nil
	}
	s.scheduler.Stop()
	patience, end := context.WithTimeout(hard, s.flags.grace)
	defer end()
	// The listener is open until all answers are complete, or the time is over.
	select {
	case err := <-engine:
		failed = errors.Join(failed, err)
	case <-patience.Done():
		fmt.Fprintln(notes, "stopping: the time is over; what is left is ended")
		cancel() // the scheduler ends what is left, and its clients are told
		failed = errors.Join(failed, <-engine)
	}
	failed = errors.Join(failed, shutdown(patience, web))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		failed = errors.Join(failed, err)
	}
	fmt.Fprintln(notes, "stopped")
	return s.close(failed)
}

// introduce says what is served where.
func (s *service) introduce(ctx context.Context, notes io.Writer) {
	at := "http://" + s.listener.Addr().String()
	fmt.Fprintf(notes, "serving %s, %s parameters\n", s.name, report.Count(int64(s.model.Parameters)))
	fmt.Fprintf(notes, "  %s/v1  OpenAI's API\n", at)
	fmt.Fprintf(notes, "  %s/  a page that shows the cache\n", at)
	fmt.Fprintf(notes, "  %s/metrics  for Prometheus; /stats, /events, /health\n", at)
	if f := s.flags; f.watch.Events != "" {
		fmt.Fprintln(notes, "  blocks are published over ZeroMQ (--events)")
	}
	if s.flags.store.URL != "" {
		fmt.Fprintln(notes,
			"  pages are kept in a store (--store); a line here says when it fails "+
				"and when it answers again")
	}
	stats, err := s.runner.Engine.Stats(ctx)
	if err != nil {
		return // the first request says so, too
	}
	for i, p := range s.runner.Engine.Pools() {
		pages := &stats.Pools[i]
		fmt.Fprintf(notes, "  pool %s: %s pages of %s on the device, %s in host memory\n", pages.Name,
			report.Count(pages.Primary.Total), report.Bytes(p.PageBytes()),
			report.Count(pages.Secondary.Total))
	}
}

// shutdown closes a server whose answers are complete, when its clients have read them or
// the context has ended.
func shutdown(ctx context.Context, web *http.Server) error {
	if ctx.Err() != nil {
		last, end := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
		defer end()
		ctx = last
	}
	if web.Shutdown(ctx) != nil {
		return web.Close()
	}
	return nil
}

// lastWrites is how long clients have to read that the server stops when the time of --grace
// is over.
const lastWrites = time.Second

// handler serves all paths. On the loopback interface requests must name it as their host.
func (s *service) handler() http.Handler {
	if a, ok := s.listener.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return page.Local(s.api)
	}
	return s.api
}
