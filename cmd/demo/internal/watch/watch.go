// Package watch serves the page of an engine that the demo runs, its metrics and its
// events, for --serve.
package watch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/metrics"
	"github.com/kvactor/kvactor/metrics/page"
)

// Watcher serves the page of the latest engine that it has spawned.
type Watcher struct {
	title   string
	current atomic.Pointer[http.Handler] // nil: no engine runs
	at      net.Addr
	stop    func()
}

// eventBuffer is how many events the engine keeps for the page's readers.
const eventBuffer = 1 << 16

// Start listens at an address and says so. An address without a host is on the loopback
// interface.
func Start(address, title string, out io.Writer) (*Watcher, error) {
	w := &Watcher{title: title}
	at, stop, err := page.Serve(address, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h := w.current.Load(); h != nil {
			(*h).ServeHTTP(rw, r)
			return
		}
		http.Error(rw, "no engine runs", http.StatusServiceUnavailable)
	}))
	if err != nil {
		return nil, err
	}
	w.at, w.stop = at, stop
	_, err = fmt.Fprintf(out, "watch at http://%s\n", at)
	return w, err
}

// Close ends the server.
func (w *Watcher) Close() { w.stop() }

// Spawn starts an engine that is watched. It is an engine.Spawn.
func (w *Watcher) Spawn(s engine.Setup) (engine.Engine, func(), error) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	system := actor.NewActorSystem(quiet)
	collector := metrics.New(metrics.Options{Model: w.title})
	s.Cache.EventBufferMaxSize = max(s.Cache.EventBufferMaxSize, eventBuffer)
	e, err := actors.Spawn(system.Root, actors.Config{Model: s.Model, Cache: s.Cache, Pages: s.Pages, Device: s.Device},
		actors.WithClock(s.Clock), actors.WithCallObserver(collector.Observe))
	if err != nil {
		system.Shutdown()
		return nil, nil, err
	}
	collector.Attach(e, s.Pools)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	o := page.Options{Title: w.title, Source: e, Pools: s.Pools, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	// A model without attention has nothing to publish, and its page no events.
	p, err := wire.Start(context.Background(), wire.Options{Source: source{e}, View: publish.Config{Pools: s.Pools}, Config: wire.Default()})
	if err == nil {
		o.Events = p
	}
	var h http.Handler = page.New(o)
	w.current.Store(&h)
	return e, func() {
		w.current.CompareAndSwap(&h, nil)
		if p != nil {
			_ = p.Close(context.Background()) // of an engine that has ended
		}
		system.Shutdown()
	}, nil
}

// source gives an engine of package actors the names of kvactor.Engine's methods.
type source struct{ *actors.Engine }

func (s source) Events(ctx context.Context, r messages.ReaderID) (messages.EventBatch, error) {
	return s.EventsOf(ctx, r)
}

func (s source) Snapshot(ctx context.Context, r messages.ReaderID) (messages.EventBatch, error) {
	return s.SnapshotOf(ctx, r)
}
