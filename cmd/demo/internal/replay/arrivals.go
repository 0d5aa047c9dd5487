package replay

import (
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/cmd/demo/internal/trace"
)

// arrivals is a trace as a source of requests: each comes at its timestamp. It
// reads one request ahead, no more.
type arrivals struct {
	session *session
	server  *serve.Server
	ahead   *trace.Request // read, not yet due
	number  int
	spare   []*serve.Request
}

// Next gives the next request if it is due.
func (a *arrivals) Next(now time.Duration, load serve.Load) (*serve.Request, error) {
	if a.ahead == nil {
		if limit := a.session.config.Limit; limit > 0 && a.number >= limit {
			return nil, nil
		}
		next, err := a.session.next()
		if err != nil || next == nil {
			return nil, err
		}
		a.ahead = next
	}
	if a.ahead.Arrival > now && load == serve.Working {
		return nil, nil
	}
	r := a.request(a.ahead)
	a.ahead = nil
	return r, nil
}

// request makes the tokens of a prompt.
func (a *arrivals) request(t *trace.Request) *serve.Request {
	r := &serve.Request{}
	if n := len(a.spare); n > 0 {
		r, a.spare = a.spare[n-1], a.spare[:n-1]
	}
	number := a.number
	a.number++
	*r = NewRequest(t, number, a.session.reader.TokensPerBlock(), r.Tokens[:0])
	return r
}

// Done counts the blocks of a request. The last one, when it is partial, is hit
// if all its tokens are.
func (a *arrivals) Done(r *serve.Request) error {
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
	a.spare = append(a.spare, r)
	return nil
}
