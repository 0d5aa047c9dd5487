package readme_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
	"github.com/kvactor/kvactor/metrics/tracing"
)

// observed is the configuration of a small engine with events.
func observed() kvactor.Config {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 24})
	if err != nil {
		panic(err)
	}
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.EventBufferMaxSize = 4, 100
	return kvactor.Config{
		Model: kvactor.Model{
			Layers: 1, KVHeads: []int{1}, HeadDim: 8, DType: kvactor.Float16, MaxSeqLen: 64,
		},
		Cache: cache, Pages: []kvactor.PageCounts{{Primary: 8}}, Device: device,
	}
}

// Metrics, a page and published events of one engine.
func Example_observability() {
	ctx := context.Background()
	config := observed()
	c := metrics.New(metrics.Options{Model: "llama"})
	engine, err := kvactor.Open(config, actors.WithCallObserver(c.Observe))
	if err != nil {
		panic(err)
	}
	c.Attach(engine, engine.Pools())
	prometheus.MustRegister(c)
	defer prometheus.Unregister(c)

	events, err := wire.ParseConfig([]byte(`{"enable_kv_cache_events": false}`))
	if err != nil {
		panic(err)
	}
	p, err := wire.Start(ctx, wire.Options{
		Source: engine, View: publish.Config{Pools: engine.Pools()}, Config: events,
	})
	if err != nil {
		panic(err)
	}

	h := page.New(page.Options{
		Title: "llama", Source: engine.Actors(), Pools: engine.Pools(), Metrics: promhttp.Handler(),
		Events: p,
	})
	at, stop, err := page.Serve("127.0.0.1:0", h)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/", "/stats", "/healthz", "/metrics"} {
		answer, err := client.Get("http://" + at.String() + path)
		if err != nil {
			panic(err)
		}
		_ = answer.Body.Close()
		fmt.Println(path, answer.Status)
	}
	stop()
	fmt.Println(p.Close(ctx))
	_, err = engine.Close(ctx)
	fmt.Println(err)
	// Output:
	// / 200 OK
	// /stats 200 OK
	// /healthz 200 OK
	// /metrics 200 OK
	// <nil>
	// <nil>
}

// Spans of the calls of an engine.
func Example_traces() {
	engine, err := kvactor.Open(observed(),
		actors.WithCallObserver(tracing.Observer(otel.Tracer("kvactor"))))
	fmt.Println(err)
	_, err = engine.Close(context.Background())
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}
