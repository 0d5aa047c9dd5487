package page

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// whole is a page with everything that a page can serve.
func whole(source Source) *Page {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	return New(Options{Source: source, Metrics: h, Events: h, Pprof: h})
}

// silent is an engine that does not answer.
type silent struct{}

func (silent) Do(ctx context.Context, _ messages.Request) error {
	<-ctx.Done()
	return ctx.Err()
}

// paths are all paths of a whole page, with a request for each.
var paths = map[string]string{
	"/": "GET", "/page.js": "GET", "/page.css": "GET", "/stats": "GET", "/live": "GET",
	"/healthz": "GET", "/lookup": "POST",
	"/metrics": "GET", "/events": "GET", "/debug/pprof/heap": "GET",
}

// Of each kind of request so many are served at a time; the next one is refused, and served
// again as soon as one of them has ended. Others do not notice.
func TestReadersHaveLimits(t *testing.T) {
	assert.Len(t, whole(silent{}).routes, len(paths), "each path has a limit")
	for path, method := range paths {
		synctest.Test(t, func(t *testing.T) {
			p := whole(silent{})
			ask := func(ctx context.Context, path, method string) int {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path,
					strings.NewReader(`{"prompt":"1"}`)))
				return w.Code
			}
			_, pattern := p.mux.Handler(httptest.NewRequest(method, path, nil))
			g := p.routes[pattern]
			require.NotNil(t, g, path)
			require.Positive(t, g.requests, path)
			for range g.requests {
				g.inside <- struct{}{}
			}
			assert.Equal(t, http.StatusServiceUnavailable, ask(t.Context(), path, method), path)
			if path != "/healthz" {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				began := time.Now()
				ask(ctx, "/healthz", "GET")
				assert.Equal(t, time.Second, time.Since(began), "it asks the engine")
				cancel()
			}
			<-g.inside
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ask(ctx, path, method)
			assert.Len(t, g.inside, g.requests-1, "%s: its place is free again", path)
		})
	}
}

// An engine that does not answer keeps no request longer than its limit, however many wait,
// and no handler of the host does. Streams end with their reader.
func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := whole(silent{})
		began := time.Now()
		done := make(chan time.Duration)
		n := 0
		for path, method := range paths {
			if path == "/events" {
				continue
			}
			for range 2 {
				n++
				go func() {
					p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path,
						strings.NewReader(`{"prompt":"1"}`)))
					done <- time.Since(began)
				}()
			}
		}
		for range n {
			assert.LessOrEqual(t, <-done, limitProfile.duration)
		}
	})
}

// deadlines is a connection that notes its deadlines. Its reader goes after the deadline of
// a write.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
	leave       func()
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = t
	d.leave()
	return nil
}

// Each request has deadlines, so that a visitor who sends or reads slowly does not keep its
// place. A stream has one for each write.
func TestSlowVisitorsHaveDeadlines(t *testing.T) {
	for path, method := range paths {
		ctx, cancel := context.WithCancel(t.Context())
		w := &deadlines{ResponseRecorder: httptest.NewRecorder(), leave: cancel}
		if path == "/events" {
			cancel()
		}
		whole(engine{}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
		switch path {
		case "/events": // the publisher sets its own
		case "/live":
			assert.False(t, w.write.IsZero(), path)
		default:
			assert.False(t, w.write.IsZero() || w.read.IsZero(), path)
		}
	}
}

// No more of a body is read than its limit.
func TestBodiesHaveLimits(t *testing.T) {
	read := make(chan int64, 1)
	h := limit{requests: 1,
		body: 10}.of(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		var tooLarge *http.MaxBytesError
		assert.ErrorAs(t, err, &tooLarge)
		read <- n
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/",
		strings.NewReader(strings.Repeat("x", 100))))
	assert.Equal(t, int64(10), <-read)
	for pattern, g := range whole(engine{}).routes {
		assert.LessOrEqual(t, g.body, int64(maxLookupBytes), pattern)
	}
}

// A connection beyond the limit is closed, and the next one served when another has ended.
func TestConnectionsHaveALimit(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	b := l.(*boundedListener)
	assert.Equal(t, maxConnections, cap(b.open))
	b.open = make(chan struct{}, 1)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial()
	first := <-accepted
	_, err = dial().Read(make([]byte, 1)) // returns, because the connection is closed
	require.Error(t, err)
	require.NoError(t, first.Close())
	assert.Error(t, first.Close(), "a second close gives no second place back")
	dial()
	require.NoError(t, (<-accepted).Close())
	assert.Empty(t, b.open)
	require.NoError(t, l.Close())
	_, more := <-accepted
	assert.False(t, more)
}
