package page

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// limit bounds what the requests of one kind may take together.
type limit struct {
	// requests are served at a time; one more is refused with status 503.
	requests int
	// body is how many bytes of a request are read.
	body int64
	// duration bounds a request, from the read of its header to the write of its last
	// byte; 0: the handler is a stream, which has a deadline for each write instead.
	duration time.Duration
}

// The limits of a page. Those who ask for /healthz share theirs with no other path, so that
// readers of the page cannot make an engine look dead.
var (
	limitPage    = limit{requests: 32, duration: timeout}
	limitHealth  = limit{requests: 8, duration: timeout}
	limitMetrics = limit{requests: 8, duration: 2 * timeout} // a scrape has a timeout of its own
	limitLookup  = limit{requests: 4, body: maxLookupBytes, duration: timeout}
	limitStream  = limit{requests: maxReaders}
	// A profile takes 30 s unless ?seconds= says otherwise.
	limitProfile = limit{requests: 2, body: 1 << 16, duration: 2 * time.Minute}
)

// gate is a handler that keeps a limit.
type gate struct {
	limit
	inside chan struct{} // a place for each request under way
	h      http.Handler
}

func (l limit) of(h http.Handler) *gate {
	return &gate{l, make(chan struct{}, l.requests), h}
}

// sharing returns a gate for another handler that shares the places of g.
func (g *gate) sharing(h http.Handler) *gate { return &gate{g.limit, g.inside, h} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case g.inside <- struct{}{}:
		defer func() { <-g.inside }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, g.body)
	}
	if g.duration > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), g.duration)
		defer cancel()
		r = r.WithContext(ctx)
		// The answer that the engine has taken too long still has to be written. Only
		// connections of tests have no deadlines.
		out, end := http.NewResponseController(w), time.Now().Add(g.duration)
		_, _ = out.SetReadDeadline(end), out.SetWriteDeadline(end.Add(timeout))
	}
	g.h.ServeHTTP(w, r)
}

// maxConnections bounds the connections of a listener, those that are idle included.
const maxConnections = 1024

// boundedListener is a listener of TCP that closes connections beyond a number as soon as it has
// accepted them: those who have one keep it, and those who want one learn at once that there is
// none.
type boundedListener struct {
	net.Listener
	open chan struct{} // a place for each connection
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.open <- struct{}{}:
			return &boundedConn{c.(*net.TCPConn), sync.OnceFunc(func() { <-l.open })}, nil
		default:
			_ = c.Close()
		}
	}
}

// boundedConn gives its place back when it is closed. The server closes its side first
// (CloseWrite) where it refuses a request whose body it has not read.
type boundedConn struct {
	*net.TCPConn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
