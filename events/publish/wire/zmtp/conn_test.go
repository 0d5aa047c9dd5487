package zmtp

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testLimits = Limits{FrameBytes: 1024, Frames: 3, Timeout: time.Minute}

// pair is a connection whose one side is opened by peer, at the bytes.
func pair(t testing.TB) (ours, theirs net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	theirs, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	ours, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

// listen serves one connection and returns where.
func listen(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err == nil {
			serve(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "tcp://" + l.Addr().String()
}

// The SUB socket of another implementation subscribes and gets a message, short and
// long frames alike.
func TestASubscriberOfOthers(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 70000)
	endpoint := listen(t, func(c net.Conn) {
		z, err := Open(c, "PUB", []string{"SUB"}, testLimits)
		if !assert.NoError(t, err) {
			return
		}
		defer z.Close()
		frames, err := z.Read()
		assert.NoError(t, err)
		assert.Equal(t, [][]byte{append([]byte{1}, "kv"...)}, frames)
		assert.NoError(t, z.Write(AppendMessage(nil, []byte("kv@1"), nil, long)))
		_, err = z.Read()
		assert.Error(t, err, "the peer is gone")
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sub := zmq4.NewSub(ctx, zmq4.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, sub.Dial(endpoint))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, "kv"))
	message, err := sub.Recv()
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("kv@1"), {}, long}, message.Frames)
	require.NoError(t, sub.Close())
}

// A peer of version 3.1 subscribes by commands and asks whether we are there.
func TestCommandsOfVersion31(t *testing.T) {
	ours, theirs := pair(t)
	hello := greeting()
	hello[11] = 1
	hello = appendCommand(hello, "READY", metadata("socket-type", "XSUB", "X", "y"))
	hello = appendCommand(hello, "SUBSCRIBE", []byte("a"))
	hello = appendCommand(hello, "PING", []byte{0, 9, 'c'})
	hello = appendCommand(hello, "UNKNOWN", nil)
	hello = appendCommand(hello, "CANCEL", []byte("a"))
	_, err := theirs.Write(hello)
	require.NoError(t, err)
	z, err := Open(ours, "PUB", []string{"SUB", "XSUB"}, testLimits)
	require.NoError(t, err)
	frames, err := z.Read()
	require.NoError(t, err)
	assert.Equal(t, [][]byte{{1, 'a'}}, frames)
	frames, err = z.Read()
	require.NoError(t, err)
	assert.Equal(t, [][]byte{{0, 'a'}}, frames)
	want := appendCommand(appendCommand(greeting(), "READY",
		metadata("Socket-Type", "PUB", "Identity", "")), "PONG", []byte("c"))
	got := make([]byte, len(want))
	_, err = io.ReadFull(theirs, got)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestWhatIsRefused(t *testing.T) {
	ready := func(kind string) []byte {
		return appendCommand(greeting(), "READY", metadata("Socket-Type", kind))
	}
	old, plain := ready("SUB"), ready("SUB")
	old[10] = 2
	copy(plain[12:], "PLAIN")
	for name, hello := range map[string][]byte{
		"HTTP":               append([]byte("GET / HTTP/1.1\r\n"), make([]byte, 64)...),
		"version 2":          old,
		"another mechanism":  plain,
		"a peer of no use":   ready("PULL"),
		"no READY":           appendCommand(greeting(), "HELLO", nil),
		"a message":          AppendMessage(greeting(), []byte("x")),
		"metadata cut short": appendCommand(greeting(), "READY", []byte{11, 'S'}),
		"a value too long": appendCommand(greeting(), "READY",
			append(metadata("Identity", ""), 1, 'x', 255, 255, 255, 255)),
		"a large frame": append(greeting(), flagLong|flagCommand, 0x7f, 255, 255, 255, 255, 255, 255,
			255),
	} {
		ours, theirs := pair(t)
		_, err := theirs.Write(hello)
		require.NoError(t, err)
		_, err = Open(ours, "PUB", []string{"SUB"}, testLimits)
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
}

func TestMessagesBeyondTheLimits(t *testing.T) {
	for name, message := range map[string][]byte{
		"frames":             AppendMessage(nil, nil, nil, nil, nil),
		"bytes":              AppendMessage(nil, make([]byte, 1025)),
		"a nameless command": {flagCommand, 0},
		"an error":           appendCommand(nil, "ERROR", []byte("no")),
	} {
		ours, theirs := pair(t)
		_, err := theirs.Write(append(appendCommand(greeting(), "READY", metadata("Socket-Type", "SUB")),
			message...))
		require.NoError(t, err)
		z, err := Open(ours, "PUB", []string{"SUB"}, testLimits)
		require.NoError(t, err)
		_, err = z.Read()
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
}

// A peer that says nothing ends its handshake and no one else's.
func TestASilentPeerIsNotWaitedFor(t *testing.T) {
	ours, _ := pair(t)
	limits := testLimits
	limits.Timeout = time.Millisecond
	_, err := Open(ours, "PUB", []string{"SUB"}, limits)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

// Whatever a peer sends, reading ends with a message or an error, within the limits.
func FuzzPeer(f *testing.F) {
	hello := appendCommand(greeting(), "READY", metadata("Socket-Type", "DEALER"))
	f.Add(hello)
	f.Add(AppendMessage(hello, nil, make([]byte, 8)))
	f.Add(appendCommand(hello, "SUBSCRIBE", []byte("kv")))
	f.Add(AppendMessage(hello, make([]byte, 300)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		done := make(chan struct{})
		go func() { // net.Pipe has no buffer
			defer close(done)
			_, _ = theirs.Write(sent)
			_ = theirs.Close()
		}()
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, theirs)
		}()
		z, err := Open(ours, "ROUTER", []string{"DEALER"}, testLimits)
		for err == nil {
			var frames [][]byte
			if frames, err = z.Read(); err == nil {
				require.NotEmpty(t, frames)
				require.LessOrEqual(t, len(frames), testLimits.Frames)
			}
		}
		_ = ours.Close()
		<-done
		<-drained
	})
}
