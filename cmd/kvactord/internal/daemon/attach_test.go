package daemon

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/cmd/kvactord/wire"
)

// attach is the connection of a worker of the client.
func (s *served) attach(c *client) net.Conn {
	conn, err := wire.DialAttached(s.socket, c.Opened.Key)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// readsEnd waits until a connection reads the end of the daemon's side.
func readsEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
}

// fillAll stores more than the memory holds, so that every page that may be reused is.
func (c *client) fillAll() {
	for i := range int32(40) {
		tokens := tokensFrom(100000+1000*i, 32*blockTokens)
		c.store(prompt(tokens), tokens)
	}
}

// endings are the ways in which a session ends while its client has not closed yet.
var endings = map[string]func(t *testing.T, c *client){
	"a frame that is no request": func(t *testing.T, c *client) {
		_, err := c.Conn().Write(append([]byte{8, 0, 0, 0}, "garbage!"...))
		require.NoError(t, err)
	},
	"a frame that is too large": func(t *testing.T, c *client) {
		_, err := c.Conn().Write([]byte{0, 0, 0, 0x7f})
		require.NoError(t, err)
	},
	"a frame that does not end": func(t *testing.T, c *client) {
		_, err := c.Conn().Write([]byte{200, 0, 0, 0, 8})
		require.NoError(t, err)
	},
	"answers that nobody reads": func(t *testing.T, c *client) {
		stats := frameOf(t, &wire.Request{Op: &wire.Request_Stats{Stats: &wire.StatsRequest{}}})
		_, err := c.Conn().Write(bytes.Repeat(stats, 2000))
		require.NoError(t, err)
		eventually(t, "the session ends", func() bool {
			conn, err := wire.DialAttached(c.Conn().RemoteAddr().String(), c.Opened.Key)
			return err != nil || conn.Close() != nil
		})
	},
}

// What a session has claimed or writes is not reused until the client has closed, too.
func TestPagesStayUntilTheClientCloses(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *Config) { c.MemoryBytes = 1 << 20 })
			s.d.frameTime = 200 * time.Millisecond
			a, b := s.open(opening()), s.open(opening())
			tokens := tokensFrom(1, 4*blockTokens+1)
			a.store(prompt(tokens[:4*blockTokens]), tokens[:4*blockTokens])
			m := a.match(prompt(tokens))
			written := tokensFrom(7000, 4*blockTokens)
			w := a.reserve(&wire.Reserve{Prompt: prompt(written)})
			end(t, a)
			readsEnd(t, a.Conn())
			b.fillAll()
			a.holds(m, tokens)
			a.fill(w, written) // overwrites nobody's pages
			require.NoError(t, a.Close())
			eventually(t, "everything is given back", func() bool { return b.used() == 0 })
			assert.Zero(t, b.match(prompt(append(written, 1))).Tokens)
		})
	}
}

// What a session has claimed or writes is not reused while a worker of its client is attached.
func TestPagesStayWhileAWorkerIsAttached(t *testing.T) {
	for name, end := range map[string]func(c *client){
		"the client closes": func(c *client) { _ = c.Close() },
		"the client says Close": func(c *client) {
			_, err := c.Do(&wire.Request{Op: &wire.Request_Close{Close: &wire.Close{}}})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *Config) { c.MemoryBytes = 1 << 20 })
			a, b := s.open(opening()), s.open(opening())
			first, second := s.attach(a), s.attach(a)
			tokens := tokensFrom(1, 4*blockTokens+1)
			a.store(prompt(tokens[:4*blockTokens]), tokens[:4*blockTokens])
			m := a.match(prompt(tokens))
			written := tokensFrom(7000, 4*blockTokens)
			w := a.reserve(&wire.Reserve{Prompt: prompt(written)})
			end(a)
			readsEnd(t, first)
			readsEnd(t, second)
			require.NoError(t, first.Close())
			b.fillAll()
			a.holds(m, tokens)
			a.fill(w, written)
			require.NoError(t, second.Close())
			eventually(t, "everything is given back", func() bool { return b.used() == 0 })
		})
	}
}

// Close says that the client's copies have ended: what it holds is given back.
func TestCloseGivesUnfinishedWritesBack(t *testing.T) {
	s := serve(t, nil)
	a, b := s.open(opening()), s.open(opening())
	a.reserve(&wire.Reserve{Prompt: prompt(tokensFrom(1, 4*blockTokens))})
	require.NotZero(t, b.used())
	_, err := a.Do(&wire.Request{Op: &wire.Request_Close{Close: &wire.Close{}}})
	require.NoError(t, err)
	eventually(t, "everything is given back", func() bool { return b.used() == 0 })
}

// A worker that closes leaves the session as it is.
func TestAWorkerMayCloseFirst(t *testing.T) {
	s := serve(t, nil)
	a := s.open(opening())
	worker := s.attach(a)
	_ = worker.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := worker.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the session goes on")
	require.NoError(t, worker.Close())
	tokens := tokensFrom(1, 4*blockTokens)
	a.store(prompt(tokens), tokens)
	assert.EqualValues(t, len(tokens), a.match(prompt(append(tokens, 1))).Tokens)
}

// Nobody attaches without the key of a session that serves.
func TestAttachmentsThatAreRefused(t *testing.T) {
	s := serve(t, nil)
	a := s.open(opening())
	assert.GreaterOrEqual(t, len(a.Opened.Key), 16)
	assert.NotContains(t, s.logged(), string(a.Opened.Key))
	for _, key := range [][]byte{nil, []byte("guessed"), a.Opened.Key[1:]} {
		_, err := wire.DialAttached(s.socket, key)
		require.ErrorContains(t, err, codeHandle)
	}
	old := &wire.Request{Op: &wire.Request_Attach{Attach: &wire.Attach{Version: 9, Key: a.Opened.Key}}}
	answer, err := s.raw(frameOf(t, old))
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, codeVersion, code(answer.Error))
	again := &wire.Request{Op: &wire.Request_Attach{
		Attach: &wire.Attach{Version: wire.Version, Key: a.Opened.Key},
	}}
	_, err = a.Do(again)
	require.ErrorContains(t, err, "bad_request")

	require.NoError(t, a.Close())
	eventually(t, "the session has ended", func() bool {
		conn, err := wire.DialAttached(s.socket, a.Opened.Key)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// The memory of an engine that has failed is not used again, so the next engine waits for nobody
// who may still copy.
func TestAFailedEngineIsReplaced(t *testing.T) {
	s := serve(t, nil)
	a := s.open(opening())
	worker := s.attach(a)
	tokens := tokensFrom(1, 4*blockTokens+1)
	a.store(prompt(tokens[:4*blockTokens]), tokens[:4*blockTokens])
	m := a.match(prompt(tokens))
	s.d.engines.latest().broken.Store(true)
	a.step(&wire.Step{})
	readsEnd(t, worker)
	eventually(t, "another engine serves", func() bool {
		c, err := wire.Dial(s.socket, opening())
		return err == nil && c.Opened.Engine != a.Opened.Engine && c.Close() == nil
	})
	s.open(opening()).fillAll()
	a.holds(m, tokens)
}

// A daemon that stops waits for no client to close, and no page is written by it meanwhile.
func TestStopDoesNotWaitForClients(t *testing.T) {
	s := serve(t, nil)
	a := s.open(opening())
	worker := s.attach(a)
	tokens := tokensFrom(1, 4*blockTokens+1)
	a.store(prompt(tokens[:4*blockTokens]), tokens[:4*blockTokens])
	m := a.match(prompt(tokens))
	a.reserve(&wire.Reserve{Prompt: prompt(tokensFrom(7000, 4*blockTokens))})
	began := time.Now()
	s.stop()
	assert.Less(t, time.Since(began), 4*time.Second)
	readsEnd(t, worker)
	a.holds(m, tokens)
}
