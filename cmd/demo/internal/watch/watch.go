// Package watch serves the page of an engine that the demo runs, its metrics and its
// events, for --serve and for demo serve.
package watch

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/metrics/page"
)

// Watcher serves the page of the latest engine that it has spawned.
type Watcher struct {
	title   string
	current atomic.Pointer[page.Page] // nil: no engine runs
	at      net.Addr
	stop    func()
}

// Start listens at the address of --serve and says so. An address without a host is on the loopback
// interface.
func Start(address, title string, out io.Writer) (*Watcher, error) {
	w := &Watcher{title: title}
	at, stop, err := page.Serve(address,
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if h := w.current.Load(); h != nil {
				h.ServeHTTP(rw, r)
				return
			}
			http.Error(rw, "no engine runs", http.StatusServiceUnavailable)
		}))
	if err != nil {
		return nil, fmt.Errorf("--serve: %w", err)
	}
	w.at, w.stop = at, stop
	_, err = fmt.Fprintf(out, "watch at http://%s\n", at)
	return w, err
}

// Close ends the server.
func (w *Watcher) Close() { w.stop() }

// Spawn starts an engine that is watched. It is an engine.Spawn.
func (w *Watcher) Spawn(s engine.Setup) (engine.Engine, func(), error) { return w.With()(s) }

// With is Spawn for an engine with options.
func (w *Watcher) With(options ...actors.Option) engine.Spawn {
	return func(s engine.Setup) (engine.Engine, func(), error) {
		o := observer.New(observer.Options{Title: w.title})
		o.Adjust(&s.Cache)
		if s.Trace != nil {
			s.Trace(func(op sim.Operation) { transferred(o, op) })
		}
		join(o, &s) // in place of the call observer among EngineOptions
		e, stop, err := engine.With(slices.Concat(options, o.EngineOptions())...)(s)
		if err != nil {
			return nil, nil, err
		}
		if err := o.Attach(context.Background(), e.(*actors.Engine),
			engine.Readable{Engine: e.(*actors.Engine)}, s.Pools); err != nil {
			_, closed := e.(*actors.Engine).Close(context.Background())
			stop()
			return nil, nil, fmt.Errorf("%w, %w", err, closed)
		}
		w.current.Store(o.Page())
		return e, func() {
			w.current.CompareAndSwap(o.Page(), nil)
			o.Close(context.Background())
			stop()
		}, nil
	}
}

// join puts an observer in place of that of an engine that is to be started, which is told as
// well.
func join(o *observer.Observer, s *engine.Setup) {
	calls := s.OnCall
	s.OnCall = o.Call
	if calls != nil {
		s.OnCall = func(ctx context.Context, request messages.Request, began time.Time, err error) {
			o.Call(ctx, request, began, err)
			calls(ctx, request, began, err)
		}
	}
}

// transferred tells an observer of a copy of a simulated device.
func transferred(o *observer.Observer, op sim.Operation) {
	if op.Kind == "copy" {
		o.Transfer(gpu.Transfer{
			Stream: op.Stream, Label: op.Label, Copies: op.Copies, Bytes: op.Bytes, Submit: op.Submit,
			Start: op.Start, End: op.End,
		})
	}
}
