package page

import (
	"context"
	"embed"
	"net/http"
	"slices"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Source is the engine that a page asks. *actors.Engine is a source; that of a
// *kvactor.Engine is its Actors.
type Source interface {
	Do(ctx context.Context, request messages.Request) error
}

// Options are what a page is made of.
type Options struct {
	Title  string
	Source Source
	Pools  []windows.Pool
	// Recorder is told of calls and copies, for latencies and the timeline; nil: the page
	// has neither.
	Recorder *Recorder
	// Encode makes tokens of the text that a visitor looks up; nil: the text is numbers.
	Encode func(text string) ([]messages.Token, error)
	// EncodeChat makes tokens of the text as the first message of a chat; nil: there are no
	// chats. A visitor is told of the form of which more is cached.
	EncodeChat func(text string) ([]messages.Token, error)
	// NoLookup leaves out the box to look prompts up. A lookup tells whether another user
	// has asked with the same prompt, in the namespace without salt.
	NoLookup bool
	Metrics  http.Handler // at /metrics; nil: none
	Events   http.Handler // at /events; nil: none
	Pprof    http.Handler // at /debug/pprof/; nil: none. It shows the memory of the process.
}

// The bounds of what readers cost.
const (
	interval     = 100 * time.Millisecond
	treeInterval = time.Second
	maxReaders   = 64 // of each kind of stream
	// timeout is how long the engine may take to answer, and a reader to read.
	timeout = 5 * time.Second
	// cells is how many pages of a pool and tier the page draws, and nodes how many of
	// the prefix tree.
	cells, nodes = 600, 300
)

// Page is the handler. Its methods may be called by any number of goroutines.
type Page struct {
	o      Options
	mux    *http.ServeMux
	routes map[string]*gate // by the patterns of http.ServeMux

	turn   chan struct{} // who has put something in may use latest
	latest latest
}

// newRoutes makes the paths of a page, each behind the limit of its kind.
func (p *Page) newRoutes() map[string]*gate {
	assets := limitPage.of(asset("assets/index.html", "text/html; charset=utf-8"))
	list := map[string]*gate{
		"GET /{$}":      assets,
		"GET /page.js":  assets.sharing(asset("assets/page.js", "text/javascript; charset=utf-8")),
		"GET /page.css": assets.sharing(asset("assets/page.css", "text/css; charset=utf-8")),
		"GET /stats":    limitPage.of(http.HandlerFunc(p.stats)),
		"GET /live":     limitStream.of(http.HandlerFunc(p.live)),
		"GET /healthz":  limitHealth.of(http.HandlerFunc(p.health)),
	}
	for _, x := range []struct {
		pattern string
		limit   limit
		h       http.Handler
	}{{"GET /metrics", limitMetrics, p.o.Metrics}, {"GET /events", limitStream, p.o.Events},
		{"/debug/pprof/", limitProfile, p.o.Pprof}} {
		if x.h != nil {
			list[x.pattern] = x.limit.of(x.h)
		}
	}
	if !p.o.NoLookup {
		list["POST /lookup"] = limitLookup.of(http.HandlerFunc(p.lookup))
	}
	return list
}

// New makes the handler of an engine.
func New(o Options) *Page {
	p := &Page{o: o, mux: http.NewServeMux(), turn: make(chan struct{}, 1)}
	p.routes = p.newRoutes()
	p.Register(p.mux.Handle)
	return p
}

// Register adds the paths of the page to the mux of a host, whose Handle it gets. Of
// paths that the mux has already, which skip names by their patterns, the mux keeps its own.
func (p *Page) Register(handle func(pattern string, h http.Handler), skip ...string) {
	for pattern, h := range p.routes {
		if !slices.Contains(skip, pattern) {
			handle(pattern, h)
		}
	}
}

// ServeHTTP serves the page and what is below it.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

//go:embed assets
var assets embed.FS

// asset serves a file of the page. The page needs nothing from elsewhere, runs no script but
// its own, and no other page may frame it.
func asset(name, kind string) http.Handler {
	text, err := assets.ReadFile(name)
	if err != nil {
		panic(err) // it is in the program
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		head := w.Header()
		head.Set("Content-Type", kind)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Content-Security-Policy",
			"default-src 'none'; connect-src 'self'; img-src data:; style-src 'self'; script-src 'self'; "+
				"frame-ancestors 'none'")
		_, _ = w.Write(text)
	})
}
