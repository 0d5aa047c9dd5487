package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/metrics"
)

// scraped is an engine of three pools with a million pages together, of which 512 sequences
// hold some, with metrics under all names.
func scraped(b *testing.B) (e *actors.Engine, c *metrics.Collector) {
	s := hybrid(1_000_000 / 3)
	c = metrics.New(
		metrics.Options{Model: "m",
			Aliases: metrics.AliasVLLM | metrics.AliasVLLMLegacy | metrics.AliasTensorRTLLM})
	system := newSystem()
	e = must(
		actors.Spawn(system.Root, actors.Config{Model: s.model(), Cache: s.cache(), Pages: s.counts(),
			Device: &quietDevice{}},
			actors.WithCallObserver(c.Observe), actors.WithStageObserver(c.ObserveStages),
			actors.WithPageObserver(64, c.ObservePage)))
	c.Attach(e, e.Shapes())
	for range 100 {
		c.Copied("offload", time.Millisecond, 1<<20)
	}
	b.Cleanup(func() {
		must(e.Close(context.Background()))
		system.Shutdown()
	})
	t := newBatch(serve(e), 6)
	for range scaled(100) {
		t.next()
	}
	return e, c
}

// BenchmarkScrape is what Prometheus costs at a million pages: the engine, which serves one request
// for its statistics, and the process, which writes the text of all metrics. cpu-ns/op is the time
// of all threads of the process, which a busy machine does not stretch.
func BenchmarkScrape(b *testing.B) {
	e, c := scraped(b)
	b.Run("engine", func(b *testing.B) {
		b.ReportAllocs()
		used := processTime()
		for b.Loop() {
			must(e.Stats(b.Context()))
		}
		b.ReportMetric(float64((processTime()-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
	})
	b.Run("text", func(b *testing.B) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
		request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics",
			http.NoBody)
		size, used := 0, processTime()
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			size = w.Body.Len()
			_, _ = io.Copy(io.Discard, w.Body)
		}
		b.ReportMetric(float64((processTime()-used).Nanoseconds())/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64(size), "B/scrape")
	})
}
