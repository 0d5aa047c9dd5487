package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// full is the latest answer with everything, in JSON.
func (p *Page) full(ctx context.Context) ([]byte, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	if err := p.fresh(ctx); err != nil {
		return nil, err
	}
	a := p.latest.answer
	if r := p.o.Recorder; r != nil {
		a.Transfers = r.until(p.latest.transfers)
	}
	return json.Marshal(a)
}

// next is the latest answer without what the stream had before.
func (p *Page) next(ctx context.Context) ([]byte, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	if err := p.fresh(ctx); err != nil {
		return nil, err
	}
	return p.latest.live, nil
}

func (p *Page) stats(w http.ResponseWriter, r *http.Request) {
	text, err := p.full(r.Context())
	if err != nil {
		http.Error(w, "the engine does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text)
}

func (p *Page) health(w http.ResponseWriter, r *http.Request) {
	if _, err := p.next(r.Context()); err != nil {
		http.Error(w, "the engine does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// live sends the answers as server-sent events until the reader goes, or the engine
// does not answer. The first has everything.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for read := p.full; ; read = p.next {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		text, err := read(ctx)
		cancel()
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

// lock waits for the latest answer, which another request may be asking the engine for, no longer
// than the context: a mutex would hold a request beyond its limit.
func (p *Page) lock(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Page) unlock() { <-p.turn }
