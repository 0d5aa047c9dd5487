package wire

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/events/publish"
	"github.com/kvactor/kvactor/events/publish/wire/zmtp"
	"github.com/kvactor/kvactor/windows"
)

// pair is a connection with a buffer, which the handshake needs: both sides write first.
func pair(t *testing.T) (ours, theirs net.Conn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	open := func(fd int) net.Conn {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return c
	}
	return open(fds[0]), open(fds[1])
}

// connectTo makes a connection to a socket of the publisher, whose handshake is done. ended is
// closed when the socket has ended the connection.
func (s *server) connectTo(
	t *testing.T, peer string,
) (theirs net.Conn, z *zmtp.Conn, ended chan struct{}) {
	ours, theirs := pair(t)
	require.True(t, s.add(ours))
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		s.handle(ours)
	}()
	z, err := zmtp.Open(theirs, peer, []string{s.socket}, zmtp.Limits{FrameBytes: 1 << 20, Frames: 8,
		Timeout: time.Minute})
	require.NoError(t, err)
	return theirs, z, ended
}

// bare is a publisher of nothing: sockets that are not open, and a log of some batches.
func bare() *Publisher {
	o := Options{Config: Default()}
	o.setDefaults()
	o.Config.HWM = 8
	p := &Publisher{o: o, log: log{limit: 3, limitBytes: 1 << 20}}
	for range 5 {
		p.log.push(&sent{payload: []byte{0}})
	}
	return p
}

// Whatever a reader asks a replay for, it gets all batches from there on, each under its own
// sequence and without a gap, and the end; what is no request gets no answer.
func FuzzReplayRequest(f *testing.F) {
	f.Add([]byte{}, sequenceFrame(0), false)
	f.Add([]byte{}, sequenceFrame(4), false)
	f.Add([]byte{}, sequenceFrame(1<<64-1), false)
	f.Add([]byte{1}, sequenceFrame(4), false)
	f.Add([]byte{}, []byte{1, 2}, true)
	f.Fuzz(func(t *testing.T, first, second []byte, more bool) {
		if len(first)+len(second) > 4000 {
			return
		}
		p := bare()
		view, err := publish.New(publish.Config{Pools: []windows.Pool{{TokensPerBlock: 2}}})
		require.NoError(t, err)
		p.view = view
		s := p.newServer("ROUTER", "DEALER")
		s.serve = s.serveReplays
		theirs, z, ended := s.connectTo(t, "DEALER")
		frames := [][]byte{first, second}
		if more {
			frames = append(frames, nil)
		}
		// A request that is understood comes behind it: what is no request has no answer.
		require.NoError(t,
			z.Write(zmtp.AppendMessage(zmtp.AppendMessage(nil, frames...), nil, sequenceFrame(5))))
		read := func(from uint64) {
			for n := from; ; n++ {
				m, err := z.Read()
				require.NoError(t, err)
				require.Len(t, m, 4)
				got := binary.BigEndian.Uint64(m[2])
				if got == endSequence {
					require.Equal(t, max(from, 5), n)
					return
				}
				require.Equal(t, n, got)
				require.Less(t, got, uint64(5))
			}
		}
		if len(first) == 0 && len(second) == 8 && !more {
			read(binary.BigEndian.Uint64(second))
		}
		read(5)
		require.NoError(t, theirs.Close())
		<-ended
	})
}

// Whatever a subscriber sends, its connection goes on or ends, with no more topics than there
// may be, and the publisher waits for nothing.
func FuzzSubscription(f *testing.F) {
	f.Add([]byte("\x01kv@"), uint8(1))
	f.Add([]byte("\x01"), uint8(255))
	f.Add([]byte("\x00kv"), uint8(3))
	f.Add([]byte{}, uint8(0))
	f.Add([]byte{7}, uint8(2))
	f.Fuzz(func(t *testing.T, message []byte, times uint8) {
		if len(message) > 4000 {
			return
		}
		p := bare()
		s := p.newServer("PUB", "SUB")
		s.serve = s.serveSubscriber
		theirs, z, ended := s.connectTo(t, "SUB")
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, theirs)
		}()
		for range int(times) + 2 {
			if z.Write(zmtp.AppendMessage(nil, message)) != nil {
				break
			}
			s.broadcast("kv@1@m", &sent{payload: []byte{0}})
			s.mu.Lock()
			for sub := range s.subs {
				require.LessOrEqual(t, len(sub.topics), maxSubscriptions+1)
			}
			s.mu.Unlock()
		}
		require.NoError(t, theirs.Close())
		<-ended
		<-drained
		require.Empty(t, s.subs)
		require.Empty(t, s.conns)
	})
}
