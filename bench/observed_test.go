package bench

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace/noop"

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

// observed starts an engine with metrics, spans of stages that are not sampled, sampled pages
// and a page, none of which anyone reads; with events, which go to a ZeroMQ socket without
// subscribers, by a publisher that reads them for as long as linger says.
func (s shape) observed(b *testing.B, linger time.Duration) do {
	c, r := metrics.New(metrics.Options{Model: "m"}), &page.Recorder{}
	system := newSystem()
	e := must(actors.Spawn(system.Root, actors.Config{Model: s.model(), Cache: s.cache(), Pages: s.counts(), Device: &quietDevice{}},
		actors.WithCallObserver(func(ctx context.Context, request messages.Request, began time.Time, err error) {
			c.Observe(ctx, request, began, err)
			r.Observe(ctx, request, began, err)
		}),
		actors.WithStageObserver(tracing.StageObserver(noop.NewTracerProvider().Tracer(""))),
		actors.WithPageObserver(64, c.ObservePage)))
	c.Attach(e, e.Shapes())
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	web := httptest.NewServer(page.New(page.Options{Source: e, Pools: e.Shapes(), Recorder: r, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}))
	stop := func() {}
	if s.events > 0 {
		config := wire.Default()
		config.Enable, config.Endpoint = true, "tcp://127.0.0.1:0"
		p := must(wire.Start(context.Background(), wire.Options{Source: published{e}, View: publish.Config{Pools: e.Shapes()}, Config: config, Linger: linger}))
		stop = func() { accept(p.Close(context.Background())) }
	}
	b.Cleanup(func() {
		stop()
		web.Close()
		must(e.Close(context.Background()))
		system.Shutdown()
	})
	return serve(e)
}

// BenchmarkObserved is an engine step of 512 sequences with everything on that watches an
// engine, while no one reads; the floor is the same engine without. Published: events are on
// as well, and a publisher that has paused, as it does 10 s after its last reader has gone. Polled:
// the publisher never pauses, and hashes on another core what no reader gets. Nothing: nothing is
// on at either side, which shows how far the quotients of the others can be trusted.
func BenchmarkObserved(b *testing.B) {
	for _, row := range []string{"nothing", "watched", "published", "polled"} {
		b.Run(row, func(b *testing.B) {
			crossed(b, func(measured bool) side {
				s := hybrid(batchSequences * (4096 + batchSteps) / tokensPerBlock)
				switch {
				case !measured || row == "nothing":
					return newBatch(s.actors(b), 6).next
				case row == "polled":
					s.events = 1 << 16
					return newBatch(s.observed(b, -1), 6).next
				case row == "published":
					s.events = 1 << 16
				}
				return newBatch(s.observed(b, time.Millisecond), 6).next
			}, scaled(settling))
		})
	}
}
