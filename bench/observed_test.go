package bench

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracers "go.opentelemetry.io/otel/trace"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/metrics/tracing"
)

// published gives an engine of package actors the names that a publisher asks for.
type published struct{ e *actors.Engine }

func (p published) OpenReader(ctx context.Context) (kvevents.ReaderID, error) {
	return p.e.OpenReader(ctx)
}
func (p published) CloseReader(ctx context.Context, r kvevents.ReaderID) error {
	return p.e.CloseReader(ctx, r)
}
func (p published) Stats(ctx context.Context) (inspect.Stats, error) { return p.e.Stats(ctx) }
func (p published) Events(ctx context.Context, r kvevents.ReaderID) (kvevents.EventBatch, error) {
	return p.e.EventsOf(ctx, r)
}
func (p published) Snapshot(ctx context.Context, r kvevents.ReaderID) (kvevents.EventBatch, error) {
	return p.e.SnapshotOf(ctx, r)
}

// How long a publisher without readers reads events before it pauses: not for long, and for ever.
const (
	pausing = time.Millisecond
	polling = -1
)

// exporterless is the tracer that a program has which sets no provider of tracers: no one gets its
// spans. The one that unsampling returns belongs to a provider that samples none of them.
func exporterless() tracers.Tracer { return otel.Tracer("kvactor") }

func unsampling() tracers.Tracer {
	return sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())).Tracer("kvactor")
}

// observedShape is the engine that is observed, in three pools.
func observedShape() shape { return hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock) }

// unwatched starts an engine that no one observes.
func (s shape) unwatched() *actors.Engine { return s.spawnIn(newSystem()) }

// observed starts an engine with metrics, spans of stages, sampled pages and a page, none of which
// anyone reads.
func (s shape) observed(tracer tracers.Tracer) *actors.Engine {
	c, r := metrics.New(metrics.Options{Model: "m"}), &page.Recorder{}
	e := must(
		actors.Spawn(newSystem().Root, actors.Config{Model: s.model(), Cache: s.cache(),
			Pages: s.counts(), Device: &quietDevice{}},
			actors.WithCallObserver(func(ctx context.Context, request messages.Request, began time.Time,
				err error) {
				c.Observe(ctx, request, began, err)
				r.Observe(ctx, request, began, err)
			}),
			actors.WithStageObserver(tracing.StageObserver(tracer)),
			actors.WithPageObserver(64, c.ObservePage)))
	c.Attach(e, e.Shapes())
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	httptest.NewServer(
		page.New(page.Options{Source: e, Pools: e.Shapes(), Recorder: r,
			Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}))
	return e
}

// published is observed with events as well, which go to a ZeroMQ socket without subscribers, by a
// publisher that reads them for as long as linger says.
func (s shape) published(tracer tracers.Tracer, linger time.Duration) *actors.Engine {
	s.events = 1 << 16
	e, config := s.observed(tracer), wire.Default()
	config.Enable, config.Endpoint = true, "tcp://127.0.0.1:0"
	must(wire.Start(context.Background(), wire.Options{Source: published{e},
		View: publish.Config{Pools: e.Shapes()}, Config: config, Linger: linger}))
	return e
}

// BenchmarkObserved is an engine step of 512 sequences with everything on that watches an engine,
// while no one reads; the floor is the same engine without. Published: events are on as well, and a
// publisher that has paused, as it does 10 s after its last reader has gone. Polled: the publisher
// never pauses, and hashes on another core what no reader gets. Unsampled: as published, with a
// tracer that exports a sample of its spans, none of those here. Nothing: nothing is on at either
// side, which shows how far the quotients of the others can be trusted.
func BenchmarkObserved(b *testing.B) {
	b.Run("nothing", func(b *testing.B) { apart(b, "floor", "floor") })
	for _, row := range []string{"watched", "published", "unsampled", "polled"} {
		b.Run(row, func(b *testing.B) { apart(b, row, "floor") })
	}
}
