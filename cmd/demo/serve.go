package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/cmd/demo/internal/model/scheduler"
	"github.com/kvactor/kvactor/cmd/demo/internal/openai"
	"github.com/kvactor/kvactor/cmd/demo/internal/watch"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/windows"
)

// serveFlags are those of demo serve.
type serveFlags struct {
	model, listen string
	config        runner.Config
	dtype         string
	limits        scheduler.Config
	timeout       time.Duration
	grace         time.Duration
	store         storeFlag
	watch         watchFlags
}

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a language model over HTTP, in the form of OpenAI's API",
		Long: `serve runs an inference server whose keys and values lie in the engine's pages:
continuous batching, prompts in chunks, preemption, streaming. Any client of
OpenAI's API can talk to it: completions and chat completions, with n, stop, seed,
temperature, top_p, max_tokens, logprobs, stream and stream_options. The usage tells
how many tokens of the prompt were cached; cache_salt separates tenants.

Beside the API it serves a page that shows the cache at work, at /, its numbers at
/stats, metrics for Prometheus at /metrics, and the blocks that the cache holds as
server-sent events at /events, without tokens and salts. --events publishes them over
ZeroMQ for routers, as vLLM does.

Without --model it serves SmolLM2, if it is where demo model get smollm2 says, and
else a tiny model that comes with the program. It listens on this machine only,
unless --listen says otherwise; there are no passwords.`,
		Example: `  demo serve
  curl http://127.0.0.1:8080/v1/chat/completions -d '{"model":"kvactor-tiny","messages":[{"role":"user","content":"What is a KV cache?"}]}'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.store.notes = c.ErrOrStderr()
			s, err := openService(c.Context(), &f)
			if err != nil {
				return statusError{err, statusUsage}
			}
			return s.run(c.Context(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.model, "model", "", modelHelp)
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`address` to listen on; without a host, such as :8080, on this machine only")
	flags.IntVar(&f.config.Pages, "pages", 0, "device pages of each pool; 0: enough for two of the longest sequences")
	flags.IntVar(&f.config.HostPages, "host-pages", 1024, "pages of each pool in host memory")
	flags.IntVar(&f.config.TokensPerBlock, "tokens-per-block", 16, "tokens of a block")
	flags.IntVar(&f.config.Chunk, "chunk", 64, "tokens of a prompt that are computed in a step, a multiple of a block")
	flags.IntVar(&f.config.MaxLen, "max-len", 0, "tokens of the longest sequence; 0: what the model is made for, at most 8192")
	flags.BoolVar(&f.config.NoReuse, "no-reuse", false, "store and reuse nothing")
	flags.StringVar(&f.dtype, "dtype", string(windows.Float32), "elements of the cache: float32, float16, bfloat16, int8, fp8")
	flags.IntVar(&f.limits.Running, "running", 16, "sequences that run at a time")
	flags.IntVar(&f.limits.Waiting, "waiting", 256, "requests that wait; more are refused with status 429")
	flags.IntVar(&f.limits.StepTokens, "step-tokens", 256, "prompt tokens that a step computes")
	flags.IntVar(&f.limits.Draft, "draft", 0, "tokens that are drafted by looking them up in the text so far; the answers are the same")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "time that a request may take")
	flags.DurationVar(&f.grace, "grace", 20*time.Second, "time that requests have to end after an interrupt")
	f.store.add(flags)
	f.watch.add(flags)
	return c
}

// service is a server that listens.
type service struct {
	*language
	flags     *serveFlags
	runner    *runner.Runner
	scheduler *scheduler.Scheduler
	listener  net.Listener
	api       *openai.Server

	observer   *watch.Observer
	closeStore func() error
}

// openService opens everything that can be wrong.
func openService(ctx context.Context, f *serveFlags) (_ *service, err error) {
	if f.timeout <= 0 || f.grace < 0 {
		return nil, fmt.Errorf("--timeout %s, --grace %s: they must be positive", f.timeout, f.grace)
	}
	if f.config.DType, err = cacheType(f.dtype); err != nil {
		return nil, err
	}
	s := &service{flags: f}
	if s.language, err = openLanguage(f.model); err != nil {
		return nil, err
	}
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
		s.listener, err = page.Listen(ctx, f.listen)
	}
	if err == nil {
		err = s.observer.Attach(ctx, s.runner.Engine.Actors(), s.runner.Engine.Pools())
	}
	if err != nil {
		return nil, s.close(err)
	}
	s.api = openai.New(s.scheduler, openai.Config{
		Name: s.name, Words: s.words, Form: s.form, MaxLen: s.runner.Config.MaxLen, Timeout: f.timeout,
		Healthy: func(ctx context.Context) error {
			_, err := s.runner.Engine.Stats(ctx)
			return err
		},
	})
	return s, nil
}

// close ends everything that is open.
func (s *service) close(cause error) error {
	s.observer.Close()
	if s.listener != nil {
		_ = s.listener.Close() // it may be closed already
	}
	return errors.Join(cause, s.runner.Close(), s.closeStore())
}

// run serves until the context ends or the engine fails. Then requests that run have
// the time of --grace.
func (s *service) run(ctx context.Context, notes io.Writer) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	engine, served := make(chan error, 1), make(chan error, 1)
	go func() { engine <- s.scheduler.Run(hard) }()
	web := &http.Server{Handler: s.api, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	web.RegisterOnShutdown(s.mountPage(hard))
	go func() { served <- web.Serve(s.listener) }()
	fmt.Fprintf(notes, "serving %s, %d parameters, on http://%s/v1\n", s.name, s.model.Parameters, s.listener.Addr())
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-engine:
		engine <- nil
	case failed = <-served:
		served <- nil
	}
	s.scheduler.Stop()
	patience, end := context.WithTimeout(hard, s.flags.grace)
	defer end()
	if err := web.Shutdown(patience); err != nil {
		cancel() // the scheduler ends what is left, and its clients are told
		last, end := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer end()
		if web.Shutdown(last) != nil {
			failed = errors.Join(failed, web.Close())
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		failed = errors.Join(failed, err)
	}
	failed = errors.Join(failed, <-engine)
	return s.close(failed)
}
