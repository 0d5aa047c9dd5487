package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvactor/kvactor/metrics/page"
)

// Daemon serves sessions.
type Daemon struct {
	config  Config
	engines engines
	handles atomic.Uint64 // the last handle that was given out: no two sessions have one

	listeners []net.Listener
	page      net.Listener // nil: none

	ctx        context.Context // of requests: ends answerTime after the daemon has begun to stop
	cancel     context.CancelFunc
	answerTime time.Duration
	frameTime  time.Duration

	mu       sync.Mutex
	stopping bool
	conns    map[net.Conn]bool
	keys     map[string]*session // that serve, by the secret of their attachments
	running  sync.WaitGroup      // connections
	serving  sync.WaitGroup      // those that may still ask the engine
	quiet    chan struct{}       // closed when the daemon stops and serving is over
}

// Open opens the sockets. Serve serves them, and Close gives up what Serve has not begun.
func Open(c Config) (*Daemon, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &Daemon{
		config: c, conns: map[net.Conn]bool{}, keys: map[string]*session{},
		quiet: make(chan struct{}), answerTime: answerTime, frameTime: frameTime,
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.engines = newEngines(&d.config)
	err := d.listen()
	if err != nil {
		return nil, errors.Join(err, d.closeListeners())
	}
	return d, nil
}

func (d *Daemon) listen() error {
	c := &d.config
	unix, err := listenUnix(c.Socket, len(c.UIDs) > 0)
	if err != nil {
		return err
	}
	d.listeners = append(d.listeners, unix)
	if c.Listen != "" {
		tcp, err := net.Listen("tcp", c.Listen)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		d.listeners = append(d.listeners, tcp)
	}
	if c.Metrics != "" {
		if d.page, err = page.Listen(context.Background(), c.Metrics); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
	}
	return nil
}

// listenUnix listens at a path that is the user's alone from the beginning. A socket that
// a killed daemon left is taken over.
func listenUnix(path string, others bool) (net.Listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// The file gets the mode of the socket that is bound. The umask is the process's.
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	l, err := c.Listen(context.Background(), "unix", path)
	if err == nil && others {
		err = os.Chmod(path, 0o666) // who connects is asked for by its credentials
	}
	return l, err
}

// removeDead removes a socket at which nobody listens. Only a refused connection proves that:
// a daemon whose queue of connections is full gives another error.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is there, and no socket", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("%s: another daemon listens there", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("another daemon may listen at the socket: %w", err)
}

// Addr is the address of the TCP port; nil: there is none.
func (d *Daemon) Addr() net.Addr {
	if len(d.listeners) < 2 {
		return nil
	}
	return d.listeners[1].Addr()
}

// Page is the address of the page; nil: there is none.
func (d *Daemon) Page() net.Addr {
	if d.page == nil {
		return nil
	}
	return d.page.Addr()
}

// Serve serves sessions until the context ends. Requests that are being served then are
// answered, and engines save what they have to.
func (d *Daemon) Serve(ctx context.Context) error {
	failed := make(chan error, len(d.listeners)+1)
	for _, l := range d.listeners {
		go func() { failed <- d.accept(l) }()
	}
	web := &http.Server{Handler: http.HandlerFunc(d.web), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
	if d.page != nil {
		go func() { failed <- web.Serve(d.page) }()
	}
	d.config.Log.Info("listening", "socket", d.config.Socket, "memory", d.config.MemoryBytes)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	d.config.Log.Info("stopping")
	return errors.Join(err, d.stop(web))
}

// answerTime is how long requests may take that are being served when the daemon stops.
const answerTime = 5 * time.Second

// stop ends all sessions, then the engines. It does not wait for clients to close their
// connections: when no session is served any more, no page gets other contents.
func (d *Daemon) stop(web *http.Server) error {
	err := d.closeListeners()
	_ = web.Close()
	d.mu.Lock()
	d.stopping = true
	for conn := range d.conns {
		_ = conn.SetReadDeadline(time.Now()) // a request that is being served is answered first
	}
	d.mu.Unlock()
	late := time.AfterFunc(d.answerTime, d.hurry)
	d.serving.Wait()
	late.Stop()
	close(d.quiet)
	d.running.Wait()
	d.cancel()
	limited, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return errors.Join(err, d.engines.close(limited))
}

// hurry ends requests that take too long, and answers that nobody reads.
func (d *Daemon) hurry() {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.conns {
		_ = conn.SetWriteDeadline(time.Now())
	}
}

// closeListeners closes the sockets, and removes that of the Unix socket.
func (d *Daemon) closeListeners() error {
	var problems []error
	for _, l := range d.listeners {
		problems = append(problems, l.Close())
	}
	if d.page != nil {
		_ = d.page.Close() // the server of the page may have closed it
	}
	return errors.Join(problems...)
}

// Close closes the sockets of a daemon that is not served.
func (d *Daemon) Close() error { return d.closeListeners() }

// accept starts a session for each connection.
func (d *Daemon) accept(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // of one connection, or the process has too many files
			d.config.Log.Warn("accept", "error", err)
			time.Sleep(acceptPause)
			continue
		}
		if err := d.start(conn); err != nil {
			d.config.Log.Warn("connection refused", "error", err)
			_ = conn.Close()
		}
	}
}

// acceptPause keeps a failing accept from using a processor.
const acceptPause = 50 * time.Millisecond

// start serves a connection, if its process may have one.
func (d *Daemon) start(conn net.Conn) error {
	peer, err := peerOf(conn)
	if err != nil {
		return err
	}
	if peer.known && peer.uid != uint32(os.Getuid()) && !slices.Contains(d.config.UIDs, peer.uid) {
		return fmt.Errorf("a process of user %d, which is not allowed", peer.uid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopping:
		return errors.New("the daemon is stopping")
	case len(d.conns) >= d.config.Sessions:
		return fmt.Errorf("%d connections are open", len(d.conns))
	}
	s := &session{daemon: d, conn: conn, peer: peer, handles: map[uint64]*handle{}}
	d.conns[conn] = true
	d.serving.Add(1)
	d.running.Go(func() {
		s.run()
		d.mu.Lock()
		delete(d.conns, conn)
		d.mu.Unlock()
	})
	return nil
}

// peer is the process at the other end of a connection.
type peer struct {
	known    bool // of a Unix socket
	pid, uid uint32
}
