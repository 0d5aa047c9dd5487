package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrProtocol says that a peer does not follow the protocol, or a limit.
var ErrProtocol = errors.New("zmtp: protocol error")

// Limits bound what a peer may cost. Each is needed.
//
// A peer is not trusted: it has shown no name or secret when its first bytes are read.
type Limits struct {
	FrameBytes int // of a frame that the peer sends
	Frames     int // of a message that the peer sends
	// Timeout is how long the handshake, and later each write, may take.
	Timeout time.Duration
}

// The flags of a frame.
// The bits are those of ZMTP 3.0 (rfc.zeromq.org/spec/23); a peer sets no others.
const (
	flagMore    = 1 << 0 // another frame of the message follows
	flagLong    = 1 << 1 // the length has eight bytes
	flagCommand = 1 << 2
)

// Conn is a connection after its handshake. Read is for one goroutine; Write may be
// called by several.
//
// Reading needs no lock, since one goroutine does it. Writing has one, because an answer
// to a PING is written by the reader between the messages of others.
type Conn struct {
	conn   net.Conn
	in     *bufio.Reader
	limits Limits

	mu sync.Mutex // one message is written at a time
}

// Open makes the handshake of a socket of the given type, with either side having
// connected, and closes the connection if it fails. The peer must be of one of types.
//
// Both sides of ZMTP say the same in a handshake, so it does not matter which of them has
// connected.
func Open(c net.Conn, socket string, types []string, limits Limits) (*Conn, error) {
	z := &Conn{conn: c, in: bufio.NewReader(c), limits: limits}
	if err := z.handshake(socket, types); err != nil {
		_ = c.Close()
		return nil, err
	}
	return z, nil
}

// handshake has one deadline for all of its reads and writes, so a peer that sends a byte
// now and then does not hold a place for longer. The deadline is taken away at the end: a
// subscriber may be silent for hours.
func (z *Conn) handshake(socket string, types []string) error {
	if err := z.conn.SetDeadline(time.Now().Add(z.limits.Timeout)); err != nil {
		return err
	}
	// The greeting and READY are written at once: neither depends on the peer's.
	if _, err := z.conn.Write(appendCommand(greeting(), "READY",
		metadata("Socket-Type", socket, "Identity", ""))); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(z.in, theirs[:]); err != nil {
		return err
	}
	// A signature begins with 0xff, ends with an odd byte (0x7f) at 9, and the major version
	// stands behind it. A peer of ZMTP 2 or 1 says less, so it cannot be served.
	if theirs[0] != 0xff || theirs[9]&1 != 1 || theirs[10] < 3 {
		return fmt.Errorf("%w: no greeting of version 3", ErrProtocol)
	}
	if mechanism := string(bytes.TrimRight(theirs[12:32], "\x00")); mechanism != "NULL" {
		return fmt.Errorf("%w: mechanism %q is not NULL", ErrProtocol, mechanism)
	}
	flags, body, err := z.frame()
	if err != nil {
		return err
	}
	name, data, ok := splitName(body)
	if flags&flagCommand == 0 || !ok || name != "READY" {
		return fmt.Errorf("%w: no READY after the greeting", ErrProtocol)
	}
	if t, err := property(data, "Socket-Type"); err != nil || !slices.Contains(types, t) {
		return fmt.Errorf("%w: a %s has no use for a peer of type %q", ErrProtocol, socket, t)
	}
	return z.conn.SetDeadline(time.Time{})
}

// greeting is the signature, version 3.0, the mechanism and zeros up to 64 bytes. With
// 3.0 a subscriber sends subscriptions as messages and not as commands.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[8], g[9], g[10] = 0xff, 1, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// metadata writes names and values in turn.
//
// Lengths of names have one byte and those of values four, in network order.
func metadata(pairs ...string) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = append(append(b, byte(len(pairs[i]))), pairs[i]...)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(pairs[i+1]))), pairs[i+1]...)
	}
	return b
}

// splitName cuts a name off, which a byte with its length precedes.
func splitName(b []byte) (name string, rest []byte, ok bool) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	return string(b[1 : 1+b[0]]), b[1+b[0]:], true
}

// property finds a value in metadata; names have no case.
//
// The length is compared as 64 bits: 32 bits from a peer may be more than an int has.
func property(b []byte, want string) (string, error) {
	for len(b) > 0 {
		name, rest, ok := splitName(b)
		if !ok || len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return "", fmt.Errorf("%w: metadata", ErrProtocol)
		}
		n := binary.BigEndian.Uint32(rest)
		if bytes.EqualFold([]byte(name), []byte(want)) {
			return string(rest[4 : 4+n]), nil
		}
		b = rest[4+n:]
	}
	return "", fmt.Errorf("%w: no %s", ErrProtocol, want)
}

// frame reads a frame. Memory is taken only for a length within the limit.
//
// A short length is read into the last byte of eight, so that one conversion serves both
// forms.
func (z *Conn) frame() (flags byte, body []byte, err error) {
	if flags, err = z.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size [8]byte
	head := size[7:]
	if flags&flagLong != 0 {
		head = size[:]
	}
	if _, err = io.ReadFull(z.in, head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > uint64(z.limits.FrameBytes) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, at most %d", ErrProtocol, n,
			z.limits.FrameBytes)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(z.in, body)
	return flags, body, err
}

// Read returns the frames of the next message. It waits for one as long as the peer is
// there. Commands are answered or ignored; a subscription that a peer of version 3.1
// sends as a command is returned as the message that it stands for.
//
// A message is returned only as a whole, since ZeroMQ promises all of its frames or none.
// After an error the stream is in the middle of a frame: close the connection.
func (z *Conn) Read() (frames [][]byte, err error) {
	for {
		flags, body, err := z.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if message, err := z.command(body); message != nil || err != nil {
				return message, err
			}
			continue
		}
		if frames = append(frames, body); len(frames) > z.limits.Frames {
			return nil, fmt.Errorf("%w: a message of more than %d frames", ErrProtocol, z.limits.Frames)
		}
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

// command serves one command; the result is nil unless the command stands for a message.
// Commands that are not known are ignored, so that peers of later versions are served.
func (z *Conn) command(body []byte) ([][]byte, error) {
	name, data, ok := splitName(body)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: a command without a name", ErrProtocol)
	case name == "SUBSCRIBE":
		return [][]byte{append([]byte{1}, data...)}, nil
	case name == "CANCEL":
		return [][]byte{append([]byte{0}, data...)}, nil
	case name == "PING" && len(data) >= 2:
		// The first two bytes are how long the peer waits.
		return nil, z.Write(appendCommand(nil, "PONG", data[2:]))
	case name == "ERROR":
		return nil, fmt.Errorf("%w: the peer says %q", ErrProtocol, data)
	default:
		return nil, nil
	}
}

// Write writes what AppendMessage has made, with the limit of time: a peer that does
// not read ends its connection.
func (z *Conn) Write(wire []byte) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if err := z.conn.SetWriteDeadline(time.Now().Add(z.limits.Timeout)); err != nil {
		return err
	}
	_, err := z.conn.Write(wire)
	return err
}

// Close ends the connection; Read and Write return errors then.
func (z *Conn) Close() error { return z.conn.Close() }

// AppendMessage writes a message, whose bytes can be sent to any number of peers.
//
// A publisher makes the bytes once and queues them for all of its subscribers: nothing may
// change them afterwards.
func AppendMessage(to []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		to = append(appendHead(to, flags, len(f)), f...)
	}
	return to
}

// appendHead writes the flags and the length: one byte up to 255, as the protocol demands,
// else eight.
func appendHead(to []byte, flags byte, n int) []byte {
	if n > 255 {
		return binary.BigEndian.AppendUint64(append(to, flags|flagLong), uint64(n))
	}
	return append(to, flags, byte(n))
}

// appendCommand writes a command, whose one frame has the name in front of the data.
func appendCommand(to []byte, name string, data []byte) []byte {
	to = appendHead(to, flagCommand, 1+len(name)+len(data))
	to = append(append(to, byte(len(name))), name...)
	return append(to, data...)
}
