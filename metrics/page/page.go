package page

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// Source is what a page asks of an engine. *kvactor.Engine and *actors.Engine are
// sources.
type Source interface {
	Stats(ctx context.Context) (messages.Stats, error)
}

// Options are what a page is made of.
type Options struct {
	Title   string
	Source  Source
	Pools   []windows.Pool
	Metrics http.Handler // nil: none
	Events  http.Handler // nil: none
}

// The bounds of what readers cost.
const (
	interval   = 100 * time.Millisecond
	maxReaders = 64
	// timeout is how long the engine may take to answer, and a reader to read.
	timeout = 5 * time.Second
)

// Page is the handler. Its methods may be called by any number of goroutines.
type Page struct {
	o   Options
	mux *http.ServeMux

	mu      sync.Mutex
	readers int
	last    []byte    // the latest answer, in JSON
	at      time.Time // of last
}

// New makes the handler of an engine.
func New(o Options) *Page {
	p := &Page{o: o, mux: http.NewServeMux()}
	p.mux.HandleFunc("GET /{$}", index)
	p.mux.HandleFunc("GET /stats", p.stats)
	p.mux.HandleFunc("GET /live", p.live)
	p.mux.HandleFunc("GET /healthz", p.health)
	if o.Metrics != nil {
		p.mux.Handle("GET /metrics", o.Metrics)
	}
	if o.Events != nil {
		p.mux.Handle("GET /events", o.Events)
	}
	return p
}

// ServeHTTP serves the page and what is below it.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

//go:embed index.html
var indexHTML []byte

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// The page needs nothing from elsewhere, and no other page may frame it.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'")
	_, _ = w.Write(indexHTML)
}

// Answer is what /stats says.
type Answer struct {
	Title        string       `json:"title"`
	Time         float64      `json:"time"` // seconds since 1970
	Requests     int64        `json:"requests"`
	PromptTokens int64        `json:"prompt_tokens"`
	ReusedTokens int64        `json:"reused_tokens"`
	Sequences    int          `json:"sequences"`
	Rounds       int64        `json:"rounds"`
	Restarts     int64        `json:"restarts"`
	Pools        []PoolAnswer `json:"pools"`
}

// PoolAnswer is one pool in an Answer.
type PoolAnswer struct {
	Name           string `json:"name"`
	Window         int    `json:"window"` // tokens; 0: none
	PageBytes      int64  `json:"page_bytes"`
	Primary        Pages  `json:"primary"`
	Secondary      Pages  `json:"secondary"`
	Evicted        int64  `json:"evicted"`
	Offloaded      int64  `json:"offloaded"`
	Onboarded      int64  `json:"onboarded"`
	Dropped        int64  `json:"dropped"`
	BytesOffloaded int64  `json:"bytes_offloaded"`
	BytesOnboarded int64  `json:"bytes_onboarded"`
}

// Pages are the pages of one tier.
type Pages struct {
	Used   int `json:"used"`
	Cached int `json:"cached"`
	Free   int `json:"free"`
}

// answer asks the engine, unless somebody has just done so.
func (p *Page) answer(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && time.Since(p.at) < interval {
		return p.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := p.o.Source.Stats(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a := Answer{
		Title: p.o.Title, Time: float64(now.UnixNano()) / 1e9, Requests: s.Requests, PromptTokens: s.PromptTokens,
		ReusedTokens: s.ReusedTokens, Sequences: s.Sequences, Rounds: s.Rounds, Restarts: s.Restarts, Pools: []PoolAnswer{},
	}
	for i := range s.Pools {
		a.Pools = append(a.Pools, p.pool(i, &s.Pools[i]))
	}
	text, err := json.Marshal(a)
	if err == nil {
		p.last, p.at = text, now
	}
	return text, err
}

func (p *Page) pool(i int, s *messages.PoolStats) PoolAnswer {
	a := PoolAnswer{
		Name: s.Name, Evicted: s.Evicted, Offloaded: s.Offloaded, Onboarded: s.Onboarded, Dropped: s.Dropped,
		BytesOffloaded: s.BytesOffloaded, BytesOnboarded: s.BytesOnboarded,
		Primary:   Pages{s.Primary.Used, s.Primary.Cached, s.Primary.Free},
		Secondary: Pages{s.Secondary.Used, s.Secondary.Cached, s.Secondary.Free},
	}
	if i < len(p.o.Pools) {
		a.Window, a.PageBytes = p.o.Pools[i].Window, p.o.Pools[i].PageBytes()
	}
	return a
}

func (p *Page) stats(w http.ResponseWriter, r *http.Request) {
	text, err := p.answer(r.Context())
	if err != nil {
		http.Error(w, "the engine does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text)
}

func (p *Page) health(w http.ResponseWriter, r *http.Request) {
	if _, err := p.answer(r.Context()); err != nil {
		http.Error(w, "the engine does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// live sends the answers as server-sent events until the reader goes, or the engine
// does not answer.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		http.Error(w, "too many readers", http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		text, err := p.answer(r.Context())
		if err != nil {
			return
		}
		// Only connections of tests have no deadlines.
		_ = out.SetWriteDeadline(time.Now().Add(timeout))
		if _, err = fmt.Fprintf(w, "data: %s\n\n", text); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers >= maxReaders {
		return false
	}
	p.readers++
	return true
}

func (p *Page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers--
}

// Serve serves a handler at an address until the returned function is called, with
// limits of time and size. An address without a host, such as :8080, is that port of the
// loopback interface: other interfaces have to be named.
func Serve(address string, h http.Handler) (at net.Addr, stop func(), err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: timeout, ReadTimeout: timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with the listener
	}()
	return l.Addr(), func() {
		cancel() // ends the streams, which Shutdown would wait for
		_ = s.Close()
		<-done
	}, nil
}
