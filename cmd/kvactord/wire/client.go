package wire

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/protobuf/proto"
)

// Client is a session. Its methods are for one goroutine at a time.
type Client struct {
	Opened *Opened
	conn   net.Conn
	reader *bufio.Reader
	buffer []byte
	id     uint64
}

// maxAnswer bounds the answers that a client reads.
const maxAnswer = 1 << 30

// Dial opens a session at the daemon's Unix socket.
func Dial(path string, open *Open) (*Client, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, reader: bufio.NewReader(conn)}
	if open.GetVersion() == 0 {
		open = proto.CloneOf(open)
		open.Version = Version
	}
	answer, err := c.Do(&Request{Op: &Request_Open{Open: open}})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.Opened = answer.GetOpen()
	return c, nil
}

// Do sends a request and reads its answer. The error of a request that the daemon refuses as
// a whole is an *Error.
func (c *Client) Do(r *Request) (*Response, error) {
	c.id++
	r.Id = c.id
	var err error
	if c.buffer, err = Append(c.buffer[:0], r); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.buffer); err != nil {
		return nil, err
	}
	if c.buffer, err = Read(c.reader, c.buffer, maxAnswer); err != nil {
		return nil, err
	}
	answer := &Response{}
	if err := Decode(c.buffer, answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return answer, answer.Error
	}
	if answer.GetId() != r.GetId() {
		return nil, fmt.Errorf("an answer to request %d, not %d", answer.GetId(), r.GetId())
	}
	return answer, nil
}

// Step is Do with a Step.
func (c *Client) Step(s *Step) (*Stepped, error) {
	answer, err := c.Do(&Request{Op: &Request_Step{Step: s}})
	return answer.GetStep(), err
}

// DialAttached ties a connection to a session with the key of its Opened, for a process that copies
// for it beside the client. While the connection is open, pages that the session holds stay as
// they are. It reads the end when the session has ended: close it when no copy is under way.
func DialAttached(path string, key []byte) (net.Conn, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, reader: bufio.NewReader(conn)}
	if _, err := c.Do(
		&Request{Op: &Request_Attach{Attach: &Attach{Version: Version, Key: key}}}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Close ends the session. The caller's copies from and to pages have ended.
func (c *Client) Close() error { return c.conn.Close() }

// Error gives the code and the message.
func (e *Error) Error() string { return e.GetCode() + ": " + e.GetMessage() }

// Map maps the memory of a pool.
func (p *Pool) Map() ([]byte, error) {
	f, err := os.OpenFile(p.GetPath(), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	memory, err := mapFile(f, p.GetBytes())
	return memory, errors.Join(err, f.Close())
}

// Conn is the connection of the session.
func (c *Client) Conn() net.Conn { return c.conn }
