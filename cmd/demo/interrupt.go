package main

import (
	"context"
	"errors"
	"io"
	"os"
)

// errInterrupted ends a command whose input was waited for when a signal came.
var errInterrupted = errors.New("interrupted")

// untilDone is an input that ends with a context: a read from a terminal would go on.
type untilDone struct {
	ctx context.Context
	in  io.Reader
}

// Read reads, or gives up when the context ends. What a read under way gets then is lost.
func (u *untilDone) Read(p []byte) (int, error) {
	type answer struct {
		n   int
		err error
	}
	if u.ctx.Err() != nil {
		return 0, errInterrupted
	}
	own, done := make([]byte, len(p)), make(chan answer, 1)
	go func() {
		n, err := u.in.Read(own)
		done <- answer{n, err}
	}()
	select {
	case a := <-done:
		return copy(p, own[:a.n]), a.err
	case <-u.ctx.Done():
		return 0, errInterrupted
	}
}

// terminal tells whether someone types the input.
func (u *untilDone) terminal() bool {
	file, ok := u.in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
