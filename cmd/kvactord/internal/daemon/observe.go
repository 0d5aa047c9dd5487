package daemon

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
	"github.com/kvactor/kvactor/events/publish"
	publisher "github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
)

// observer watches one engine: its page, its metrics, its published events.
type observer struct {
	config    *Config
	title     string
	collector *metrics.Collector
	recorder  page.Recorder
	events    *publisher.Publisher // nil: not published
	handler   http.Handler         // nil: there is no page
}

func newObserver(c *Config, o *wire.Open) *observer {
	title := "kvactord: " + o.GetName()
	return &observer{config: c, title: title, collector: metrics.New(metrics.Options{Model: o.GetName(), Aliases: c.Aliases})}
}

// eventBuffer is how many events the engine keeps for readers.
const eventBuffer = 1 << 16

// pageSample is which share of the pages is followed: one in so many.
const pageSample = 64

// adjust makes the engine keep events, and notes its configuration.
func (o *observer) adjust(c *kvactor.CacheConfig) {
	if c.EventBufferMaxSize == 0 {
		c.EventBufferMaxSize = eventBuffer
	}
	o.collector.Configure(*c)
}

// engineOptions are those of an engine that is watched. Without a page nothing is measured.
func (o *observer) engineOptions() []actors.Option {
	if o.config.Metrics == "" {
		return nil
	}
	return []actors.Option{actors.WithCallObserver(func(ctx context.Context, r messages.Request, began time.Time, err error) {
		o.collector.Observe(ctx, r, began, err)
		o.recorder.Observe(ctx, r, began, err)
	}), actors.WithStageObserver(o.collector.ObserveStages), actors.WithPageObserver(pageSample, o.collector.ObservePage)}
}

// transfer notes a batch of copies.
func (o *observer) transfer(t gpu.Transfer) {
	o.collector.Copied(t.Stream, t.End-t.Start, t.Bytes)
	o.collector.CopyEnded(t.Stream, t.End-t.Submit)
	o.recorder.Copied(page.Transfer{
		Stream: t.Stream, Label: t.Label, Start: t.Start.Seconds(), End: t.End.Seconds(), Copies: t.Copies, Bytes: t.Bytes,
	})
}

// attach starts to watch the engine.
func (o *observer) attach(ctx context.Context, in *instance) (err error) {
	if o.config.Events.Enable {
		if o.events, err = publisher.Start(ctx, publisher.Options{
			Source: in.engine, View: publish.Config{Pools: in.pools}, Config: o.config.Events,
		}); err != nil {
			return err
		}
	}
	if o.config.Metrics == "" {
		return nil
	}
	o.collector.Attach(in.engine.Actors(), in.pools)
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.collector)
	// There is no box to look prompts up: clients of the daemon are not to find out what others ask.
	options := page.Options{
		Title: o.title, Source: in.engine.Actors(), Pools: in.pools, Recorder: &o.recorder, NoLookup: true,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}),
	}
	if o.events != nil {
		options.Events = o.events
	}
	o.handler = page.New(options)
	return nil
}

// close ends the publisher.
func (o *observer) close(ctx context.Context) {
	if o.events != nil {
		_ = o.events.Close(ctx)
	}
}

// web serves the page of the engine that was opened last.
func (d *Daemon) web(w http.ResponseWriter, r *http.Request) {
	if in := d.engines.latest(); in != nil && in.observer.handler != nil {
		in.observer.handler.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/healthz" || r.URL.Path == "/metrics" {
		return // alive, and nothing to tell
	}
	http.Error(w, "no session has been opened yet", http.StatusServiceUnavailable)
}
