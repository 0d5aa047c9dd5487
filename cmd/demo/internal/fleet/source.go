package fleet

import (
	"errors"
	"io"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/replay"
	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
	"github.com/kvactor/kvactor/messages"
)

// Trace is a recorded trace as a source: each request comes at its timestamp, whether
// earlier ones have been answered or not.
type Trace struct {
	reader *trace.Reader
	limit  int // 0: all
	number int
	ahead  *serve.Request
	spare  [][]messages.Token
}

// OpenTrace opens a trace of which at most limit requests are replayed, 0: all.
func OpenTrace(path string, limit int) (*Trace, error) {
	reader, err := trace.Open(path)
	if err != nil {
		return nil, err
	}
	return &Trace{reader: reader, limit: limit}, nil
}

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

// Close closes the file.
func (t *Trace) Close() error { return t.reader.Close() }

// Next implements serve.Source.
func (t *Trace) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if t.ahead == nil {
		if err := t.read(); err != nil || t.ahead == nil {
			return nil, err
		}
	}
	if t.ahead.Arrival > now && load == serve.Working {
		return nil, nil
	}
	r := t.ahead
	t.ahead = nil
	return r, nil
}

// read reads a request ahead, if there is one.
func (t *Trace) read() error {
	if t.limit > 0 && t.number >= t.limit {
		return nil
	}
	next, err := t.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	var tokens []messages.Token
	if n := len(t.spare); n > 0 {
		tokens, t.spare = t.spare[n-1][:0], t.spare[:n-1]
	}
	r := replay.NewRequest(next, t.number, t.reader.TokensPerBlock(), tokens)
	t.number++
	t.ahead = &r
	return nil
}

// Done implements serve.Source. The tokens are used again.
func (t *Trace) Done(r *serve.Request) error {
	t.spare = append(t.spare, r.Tokens)
	return nil
}
