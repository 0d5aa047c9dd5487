package daemon

import (
	"context"
	"math"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/cmd/kvactord/wire"
	"github.com/kvactor/kvactor/offloader/stores"
)

// A daemon whose queue of connections is full is alive: its socket is not taken over.
func TestTheSocketOfABusyDaemonStays(t *testing.T) {
	path := t.TempDir() + "/s"
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(fd, 0))
	for {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			break
		}
		defer c.Close()
	}
	_, err = listenUnix(path, false)
	require.ErrorContains(t, err, "another daemon may listen")
	_, err = net.DialTimeout("unix", path, time.Second)
	assert.NotErrorIs(t, err, syscall.ENOENT)
}

// Windows that no sequence of a session fills are no reason to refuse it, nor is a session that
// does not say how long its sequences are.
func TestSequencesShorterThanTheWindow(t *testing.T) {
	for _, n := range []uint32{0, 1, 16, 32, 63, 64, 65, 128} {
		s := serve(t, nil)
		o := opening()
		o.MaxTokens = n
		c := s.open(o)
		tokens := tokensFrom(1, 8*blockTokens)
		c.store(prompt(tokens), tokens)
		assert.EqualValues(t, len(tokens), c.match(prompt(append(tokens, 1))).Tokens, "max_tokens %d", n)
		s.stop()
	}
}

// The log has no more of a client's name than a line.
func TestNamesAreBounded(t *testing.T) {
	s := serve(t, nil)
	o := opening()
	o.Name = strings.Repeat("x", 900<<10)
	_, err := wire.Dial(s.socket, o)
	require.ErrorContains(t, err, "bad_request")
	o = opening()
	o.Name = strings.Repeat("x", maxNameBytes)
	s.open(o)
	assert.Less(t, len(s.logged()), 10000)
}

// late serves a step whose deadline has passed before its releases and unpins are served.
func (c *client) late(s *wire.Step) *wire.Stepped {
	for range 60000 {
		s.Written = append(s.Written, &wire.Written{Handle: 1 << 60, Tokens: blockTokens})
	}
	answer, err := c.Do(&wire.Request{DeadlineMs: 1, Op: &wire.Request_Step{Step: s}})
	require.NoError(c.t, err)
	return answer.GetStep()
}

// hangingStore answers nothing before the time of a call is over.
type hangingStore struct{ stores.Store }

func (hangingStore) Has(ctx context.Context, _ []stores.Key, _ []bool) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingStore) Get(ctx context.Context, _ []stores.Key, _ [][]byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// A request that waits for a store which hangs, however long it may take, does not hold up a stop.
func TestStopDoesNotWaitForAStore(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Store = &actors.StoreConfig{Store: hangingStore{}, Timeout: time.Hour}
	})
	s.d.answerTime = 50 * time.Millisecond
	c := s.open(opening())
	p := &wire.Step{Prefetches: []*wire.Prompt{prompt(tokensFrom(1, 4*blockTokens+1))}}
	answered := make(chan string, 1)
	go func() {
		answer, _ := c.Do(&wire.Request{DeadlineMs: math.MaxUint32, Op: &wire.Request_Step{Step: p}})
		if list := answer.GetStep().GetPrefetches(); len(list) == 1 {
			answered <- code(list[0].Error)
		}
		close(answered)
	}()
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	s.stop()
	assert.Less(t, time.Since(began), 5*time.Second)
	assert.Equal(t, codeDeadline, <-answered)
}

// What a release has forgotten is given back, however late the release is.
func TestReleasesBehindTheDeadline(t *testing.T) {
	s := serve(t, nil)
	a, b := s.open(opening()), s.open(opening())
	var handles []uint64
	for i := range int32(20) {
		r := a.reserve(&wire.Reserve{Prompt: prompt(tokensFrom(1+1000*i, 4*blockTokens))})
		handles = append(handles, r.Handle)
	}
	require.NotZero(t, b.used())
	for _, r := range a.late(&wire.Step{Releases: handles}).Releases {
		assert.Nil(t, r.Error)
	}
	assert.Zero(t, b.used())
}

// An unpin that was not served can be tried again.
func TestUnpinsBehindTheDeadline(t *testing.T) {
	s := serve(t, nil)
	c := s.open(opening())
	tokens := tokensFrom(1, 4*blockTokens)
	c.store(prompt(tokens), tokens)
	p := c.step(&wire.Step{Pins: []*wire.Prompt{prompt(append(tokens, 1))}}).Pins[0]
	require.Nil(t, p.Error)
	if e := c.late(&wire.Step{Unpins: []uint64{p.Pin}}).Unpins[0].Error; e != nil {
		assert.Equal(t, codeDeadline, code(e))
		assert.Nil(t, c.step(&wire.Step{Unpins: []uint64{p.Pin}}).Unpins[0].Error)
	}
	assert.Equal(t, codeHandle, code(c.step(&wire.Step{Unpins: []uint64{p.Pin}}).Unpins[0].Error))
}
