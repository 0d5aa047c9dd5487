package daemon

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// attachments are the connections of other processes that copy for a session. Pages that the
// session holds are not reused while one of them is open.
//
// The mutex of the daemon guards conns.
type attachments struct {
	key   string
	conns map[net.Conn]bool
	open  sync.WaitGroup
}

// register makes a session known to those who attach to it.
func (d *Daemon) register(s *session) {
	s.attached = attachments{key: rand.Text(), conns: map[net.Conn]bool{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys[s.attached.key] = s
}

// attach serves Attach, the first request of a connection. It ties the connection to a session
// that has not ended.
func (s *session) attach(a *wire.Attach) *wire.Error {
	if a.GetVersion() != wire.Version {
		return errorf(codeVersion, "version %d of the wire is not served, version %d is",
			a.GetVersion(), wire.Version)
	}
	d := s.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	owner := d.keys[string(a.GetKey())]
	if owner == nil {
		return errorf(codeHandle, "the session has ended, or there was none with this key")
	}
	owner.attached.conns[s.conn] = true
	owner.attached.open.Add(1)
	s.owner = owner
	return nil
}

// detach ends an attachment when its process has closed the connection.
func (s *session) detach() {
	s.untilClosed()
	_ = s.conn.Close()
	s.daemon.mu.Lock()
	delete(s.owner.attached.conns, s.conn)
	s.daemon.mu.Unlock()
	s.owner.attached.open.Done()
}

// endAttachments tells all processes of a session that it has ended: they read the end of their
// connections. Nobody attaches any more.
func (s *session) endAttachments() {
	s.daemon.mu.Lock()
	defer s.daemon.mu.Unlock()
	delete(s.daemon.keys, s.attached.key)
	for conn := range s.attached.conns {
		halfClose(conn)
	}
}

// untilClosed returns when the process at the other end has closed the connection or has died,
// or when the daemon stops and no session is served any more. What is sent is passed over.
func (s *session) untilClosed() {
	s.deadline(0)
	if _, err := io.Copy(io.Discard, s.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		<-s.daemon.quiet
	}
}

// halfClose lets the other end read the end of the connection.
func halfClose(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}
