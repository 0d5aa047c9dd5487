package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A command that waits for a line ends with a signal.
func TestCommandsEndWhileTheyWait(t *testing.T) {
	for _, args := range [][]string{
		{"chat", "--model", "tiny"}, {"script"}, {"model", "run", filepath.Join(fixtureFolder)},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		in, typed := io.Pipe()
		var out, errs bytes.Buffer
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, args, in, &out, &errs) }()
		_, err := typed.Write([]byte("\n")) // it is read, so the next line is waited for
		assert.NoError(t, err)
		cancel()
		status := <-ended
		assert.NoError(t, typed.Close())
		if args[0] == "chat" {
			assert.Zero(t, status, errs.String())
			continue
		}
		assert.Equal(t, statusInterrupted, status, errs.String())
		assert.Equal(t, "demo: interrupted\n", errs.String())
	}
}

// A chat that has become too long goes on without its oldest turns, and without a line that is
// too long by itself.
func TestLongChat(t *testing.T) {
	var said strings.Builder
	for i := range 40 {
		fmt.Fprintf(&said, "My number %d is nice and I like trains and planes and cars.\n", i)
		if i == 20 {
			fmt.Fprintf(&said, "%s\n", strings.Repeat("hello ", 20000))
		}
	}
	status, out, errs := command(t,
		said.String()+"My name is Anna.\n/help\nWhat is my name?\n/exit\nno more\n", "chat", "--model",
		"tiny", "--tokens", "12", "--pages", "40")
	assert.Zero(t, status, errs)
	assert.Equal(t, 42, strings.Count(out, "\n"))
	assert.Contains(t, out, "Your name is Anna.")
	assert.Contains(t, errs, "its oldest turn is forgotten")
	assert.Contains(t, errs, "it is left out")
	assert.Contains(t, errs, "/exit, Ctrl-D or Ctrl-C")
	status, _, errs = command(t, "My name is Anna.\nHow are you?\n", "chat", "--model", "tiny",
		"--pages", "3")
	assert.Zero(t, status, errs)
	status, _, errs = command(t, strings.Repeat("a", longestLine+1), "chat", "--model", "tiny")
	assert.Equal(t, 1, status)
	assert.Contains(t, errs, "bytes")
}

// stopper ends a context when something is written to it.
type stopper struct {
	bytes.Buffer
	stop context.CancelFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	s.stop()
	return s.Buffer.Write(p)
}

// A command that is interrupted says so, and shows what it has.
func TestInterruptedCommandsShowWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--conversations", "400", "--pages", "400", "--chats", "0"}, "requests answered"},
		{[]string{"replay", rounds(t, 20), "--pages", "40", "--serve", "127.0.0.1:0"}, "requests"},
		{[]string{"replay", rounds(t, 20), "--pages", "40", "--atomic", "--serve", "127.0.0.1:0"},
			"requests"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		errs := &stopper{stop: cancel}
		assert.Equal(t, statusInterrupted, run(ctx, c.args, strings.NewReader(""), &out, errs),
			errs.String())
		assert.Contains(t, out.String(), c.want)
		assert.NotContains(t, out.String(), "problems")
		assert.Contains(t, errs.String(), "demo: interrupted\n")
		assert.NotContains(t, errs.String(), "context canceled")
	}
}
