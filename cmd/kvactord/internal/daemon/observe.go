package daemon

import (
	"net/http"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/internal/observer"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// newObserver watches one engine: its page, its metrics, its published events. There is no box to
// look prompts up, and events are told where they are published: clients of the daemon are not to
// find out what others ask.
func newObserver(c *Config, o *wire.Open) *observer.Observer {
	return observer.New(observer.Options{
		Title: "kvactord: " + o.GetName(), Model: o.GetName(), Events: c.Events, Aliases: c.Aliases,
		NoLookup: true, NoEvents: true,
	})
}

// observed are the options of an engine that is watched. Without a page nothing is measured.
func (in *instance) observed(c *Config) []actors.Option {
	if c.Metrics == "" {
		return nil
	}
	return in.observer.EngineOptions()
}

// web serves the page of the engine that was opened last.
func (d *Daemon) web(w http.ResponseWriter, r *http.Request) {
	if in := d.engines.latest(); in != nil {
		if page := in.observer.Page(); page != nil { // it is not closing
			page.ServeHTTP(w, r)
			return
		}
	}
	if r.URL.Path == "/healthz" || r.URL.Path == "/metrics" {
		return // alive, and nothing to tell
	}
	http.Error(w, "no session has been opened yet", http.StatusServiceUnavailable)
}
