// Package watch serves the page of an engine that the demo runs, its metrics and its
// events, for --serve and for demo serve.
package watch

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/metrics/page"
)

// Watcher serves the page of the latest engine that it has an observer of.
type Watcher struct {
	title   string
	current atomic.Pointer[observer.Observer] // nil: no engine has run
	at      net.Addr
	stop    func()
}

// Start listens at the address of --serve and says so. An address without a host is on the loopback
// interface.
func Start(address, title string, out io.Writer) (*Watcher, error) {
	w := &Watcher{title: title}
	at, stop, err := page.Serve(address,
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if o := w.current.Load(); o != nil {
				if h := o.Page(); h != nil {
					h.ServeHTTP(rw, r)
					return
				}
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

// Observer makes the observer of an engine, whose page is served from when it runs until it ends.
func (w *Watcher) Observer() *observer.Observer {
	o := observer.New(observer.Options{Title: w.title})
	w.current.Store(o)
	return o
}
