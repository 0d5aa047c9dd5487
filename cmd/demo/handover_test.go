package main

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two processes and one process generate the same tokens.
func TestHandover(t *testing.T) {
	status, out, errs := command(t, "", "handover", "--tokens", "12")
	require.Zero(t, status, errs)
	assert.Contains(t, out, "The same 12 tokens as in one process.")
	assert.Regexp(t, `[1-9]\d* pages, [1-9]\d* bytes handed over`, out)
}

func TestHandoverWithoutADecoder(t *testing.T) {
	status, _, errs := command(t, "", "handover", "--connect", "127.0.0.1:1")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, errs, "127.0.0.1:1")
}

// idle is a connection on which no byte comes: reads end with their deadline only.
type idle struct {
	net.Conn
	until time.Time
}

func (c *idle) SetDeadline(t time.Time) error {
	c.until = t
	return nil
}

func (c *idle) Read([]byte) (int, error) {
	if c.until.IsZero() {
		return 0, errors.New("it would be waited for without end")
	}
	return 0, os.ErrDeadlineExceeded
}

// A connection that says nothing does not hold up a decode server.
func TestASilentConnectionHasADeadline(t *testing.T) {
	c := &idle{}
	require.ErrorIs(t, decodeOne(t.Context(), nil, c), os.ErrDeadlineExceeded)
	assert.True(t, c.until.IsZero(), "the hand-over sets its own")
}
