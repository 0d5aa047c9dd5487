package fleet

import (
	"errors"
	"io"

	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
)

// Trace is a recorded trace as a source.
type Trace struct{ replay.Arrivals }

// OpenTrace opens a trace of which at most limit requests are replayed, 0: all.
func OpenTrace(path string, limit int) (*Trace, error) {
	reader, err := trace.Open(path)
	if err != nil {
		return nil, err
	}
	return &Trace{replay.Arrivals{Reader: reader, Limit: limit}}, nil
}

// Close closes the file.
func (t *Trace) Close() error { return t.Reader.Close() }

// CountTrace counts the requests that a trace with a limit gives, and the tokens of its
// blocks.
func CountTrace(path string, limit int) (requests, blockTokens int, err error) {
	reader, err := trace.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for limit == 0 || requests < limit {
		_, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		requests++
	}
	return requests, reader.TokensPerBlock(), nil
}
