package main

import (
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
)

// lockedWriter is a writer for several goroutines: each Write is whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes under the lock.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// shareStderr makes a command's standard error fit for the processes that it starts: each has a
// goroutine that copies what the process prints, beside the command's own progress. A file
// goes to the processes as it is, and stays one, so that a terminal is known as such.
func shareStderr(c *cobra.Command) {
	if _, file := c.ErrOrStderr().(*os.File); !file {
		c.SetErr(&lockedWriter{w: c.ErrOrStderr()})
	}
}
