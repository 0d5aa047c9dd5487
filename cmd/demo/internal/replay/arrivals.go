package replay

import (
	"errors"
	"io"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
)

// Arrivals is a trace as a source of requests: each comes at its timestamp, whether earlier
// ones have been answered or not. It reads one request ahead, no more.
type Arrivals struct {
	Reader *trace.Reader
	Limit  int            // of requests; 0: all
	ahead  *trace.Request // read, not yet due
	number int
	spare  []*serve.Request
}

// Next gives the next request if it is due. It implements serve.Source.
func (a *Arrivals) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if a.ahead == nil {
		if a.Limit > 0 && a.number >= a.Limit {
			return nil, nil
		}
		next, err := a.Reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		a.ahead = next
	}
	if a.ahead.Arrival > now && load == serve.Working {
		return nil, nil
	}
	r := &serve.Request{}
	if n := len(a.spare); n > 0 {
		r, a.spare = a.spare[n-1], a.spare[:n-1]
	}
	*r = newRequest(a.ahead, a.number, a.Reader.TokensPerBlock(), r.Tokens[:0])
	a.ahead = nil
	a.number++
	return r, nil
}

// Done uses the memory of a request again. It implements serve.Source.
func (a *Arrivals) Done(r *serve.Request) error {
	a.spare = append(a.spare, r)
	return nil
}

// countedArrivals are those of a replay, whose blocks it counts.
type countedArrivals struct {
	Arrivals
	session *session
	server  *serve.Server
}

// Done counts the blocks of a request. The last one, when it is partial, is hit
// if all its tokens are.
func (a *countedArrivals) Done(r *serve.Request) error {
	size := a.session.config.TokensPerBlock
	blocks, hits := (r.Known+size-1)/size, r.Outcome.Stored/size
	if r.Outcome.Stored == r.Known {
		hits = blocks
	}
	onHost := min(hits, r.Outcome.StoredOnHost/size)
	a.session.result.look(blocks, hits, onHost)
	a.session.result.PromptTokens = a.server.Totals().PromptTokens
	a.session.result.ReusedTokens = a.server.Totals().ReusedTokens
	a.session.progress(a.server.Now())
	return a.Arrivals.Done(r)
}
