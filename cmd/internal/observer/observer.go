// Package observer watches an engine for the commands that serve one: its page, its metrics and its
// published events.
package observer

import (
	"cmp"
	"context"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // no one else serves the default mux
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/windows"
)

// Options say what an Observer serves.
type Options struct {
	Title   string
	Model   string      // in metrics; empty: Title
	Events  wire.Config // its sockets are opened if it is enabled
	Aliases metrics.Aliases
	// ShowTokens makes the events over HTTP tell tokens and salts.
	ShowTokens bool
	NoLookup   bool
	// NoEvents leaves out the events over HTTP, unless they are published as well.
	NoEvents   bool
	Pprof      bool
	Encode     func(string) ([]messages.Token, error) // of prompts that are looked up
	EncodeChat func(string) ([]messages.Token, error) // of these as a chat; nil: there are none
	Waiting    func() int                             // requests that wait for an admission
	// Preemptions are the sequences that have been released to be admitted again; nil: unknown.
	Preemptions func() int64
	// Generated are the tokens that have been generated for clients; nil: unknown.
	Generated func() int64
}

// Observer watches one engine: its page, its metrics, its published events.
type Observer struct {
	o         Options
	collector *metrics.Collector
	recorder  page.Recorder
	publisher *wire.Publisher           // nil: the model has nothing to publish
	page      atomic.Pointer[page.Page] // nil: no engine runs
}

// New makes an observer. EngineOptions and Adjust go to the engine, Transfer to its device,
// and Attach comes when it runs.
func New(o Options) *Observer {
	if o.Events == (wire.Config{}) {
		o.Events = wire.Default()
	}
	return &Observer{o: o, collector: metrics.New(metrics.Options{
		Model: cmp.Or(o.Model, o.Title), Aliases: o.Aliases, Waiting: o.Waiting,
		Preemptions: o.Preemptions, Generated: o.Generated,
	})}
}

// EngineOptions are those that the engine is started with.
func (o *Observer) EngineOptions() []actors.Option {
	return []actors.Option{
		actors.WithCallObserver(o.Call), actors.WithStageObserver(o.Stages),
		actors.WithPageObserver(pageSample, o.collector.ObservePage),
	}
}

// Call observes a call for the metrics and the page.
func (o *Observer) Call(ctx context.Context, request messages.Request, began time.Time, err error) {
	o.collector.Observe(ctx, request, began, err)
	o.recorder.Observe(ctx, request, began, err)
}

// Stages observes the stages of a call for the metrics.
func (o *Observer) Stages(
	ctx context.Context, request messages.Request, marks []inspect.StageMark, err error,
) {
	o.collector.ObserveStages(ctx, request, marks, err)
}

// pageSample is which share of the pages is followed: one in so many.
const pageSample = 64

// eventBuffer is how many events the engine keeps for readers.
const eventBuffer = 1 << 16

// Adjust makes an engine keep events unless it keeps some already, and notes its configuration.
func (o *Observer) Adjust(c *windows.Config) {
	c.EventBufferMaxSize = cmp.Or(c.EventBufferMaxSize, eventBuffer)
	o.collector.Configure(*c)
}

// Transfer notes a batch of copies of any device.
func (o *Observer) Transfer(t gpu.Transfer) {
	o.collector.Copied(t.Stream, t.End-t.Start, t.Bytes)
	o.collector.CopyEnded(t.Stream, t.End-t.Submit)
	o.recorder.Copied(page.Transfer{
		Stream: t.Stream, Label: t.Label, Start: t.Start.Seconds(), End: t.End.Seconds(),
		Copies: t.Copies, Bytes: t.Bytes,
	})
}

// Attach starts to watch an engine, whose events source reads.
func (o *Observer) Attach(
	ctx context.Context, e *actors.Engine, source wire.Source, pools []windows.Pool,
) error {
	o.collector.Attach(e, pools)
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.collector)
	p := page.Options{
		Title: o.o.Title, Source: e, Pools: pools, Recorder: &o.recorder, Encode: o.o.Encode,
		EncodeChat: o.o.EncodeChat, NoLookup: o.o.NoLookup,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4,
			Timeout: 10 * time.Second}),
	}
	if o.o.Pprof {
		p.Pprof = http.DefaultServeMux // by net/http/pprof
	}
	if o.o.Events.Enable || !o.o.NoEvents {
		publisher, err := wire.Start(ctx, wire.Options{
			Source: source, View: publish.Config{Pools: pools}, Config: o.o.Events,
			ShowTokens: o.o.ShowTokens,
		})
		if err == nil {
			o.publisher, p.Events = publisher, publisher
		} else if o.o.Events.Enable {
			return err
		} // A model without attention has nothing to publish, and its page no events.
	}
	o.page.Store(page.New(p))
	return nil
}

// Page is the page of the engine that is attached; nil before Attach and after Close.
func (o *Observer) Page() *page.Page { return o.page.Load() }

// ServerInfo says where events are published; nil if they are not.
func (o *Observer) ServerInfo() http.Handler {
	if o.publisher == nil {
		return nil
	}
	return o.publisher.ServerInfo()
}

// Close ends the publisher and the page. The engine may have ended.
func (o *Observer) Close(ctx context.Context) {
	o.page.Store(nil)
	if o.publisher != nil {
		_ = o.publisher.Close(ctx)
	}
}
