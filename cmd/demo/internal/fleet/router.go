package fleet

import (
	"context"
	"math/rand/v2"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// Engine is one engine of a fleet, as its router has it. Its methods are called by one
// goroutine at a time.
type Engine interface {
	// run orders the engine to serve a window.
	run(context.Context, Window) (Reply, error)
	// follow brings the index to where the engine was at the reply.
	follow(context.Context, *Reply) error
	// match is how many of the leading blocks of a prompt the index has.
	match(names []kvevents.Hash) int
	index() Index
	// kill ends the engine in the middle of a window, without warning.
	kill(context.Context, Window) error
}

// Index is the size of what a router keeps of an engine.
type Index struct {
	Blocks int
	Events int // followed so far; with processes batches' entries
}

// member is an engine and what the router has sent it.
type member struct {
	Engine
	number   int
	alive    bool
	send     []Request       // in the next window
	flights  map[int]*flight // by request: sent and not answered
	uncached int             // tokens to be computed of flights that have not started
	last     Reply
}

// flight is a request on its way.
type flight struct {
	request  Request
	uncached int
	started  bool
	again    bool // it has been lost with an engine
}

// start notes that a flight has its first token, or has ended.
func (m *member) start(f *flight) {
	if !f.started {
		f.started = true
		m.uncached -= f.uncached
	}
}

// router chooses engines.
type router struct {
	random *rand.Rand // nil: by what is cached and by load
	tokens int        // of a block
}

// route sends a request to an engine that is alive. The cost of an engine is the tokens
// that have to be computed before the request's first one. Of equal engines the one with
// fewer requests, then with fewer blocks takes it.
func (r *router) route(members []*member, q Request) (*flight, error) {
	var alive []*member
	for _, m := range members {
		if m.alive {
			alive = append(alive, m)
		}
	}
	if r.random != nil {
		to := alive[r.random.IntN(len(alive))]
		return to.take(q, len(q.Prompt)), nil
	}
	names, err := events.Names(messages.Prefix{Tokens: q.Prompt}, r.tokens)
	if err != nil {
		return nil, err
	}
	names = names[:(len(q.Prompt)-1)/r.tokens] // the last token is always computed
	best, least, computed := alive[0], -1, 0
	for _, m := range alive {
		uncached := len(q.Prompt) - r.tokens*m.match(names)
		if cost := m.uncached + uncached; least < 0 || cost < least || cost == least && m.emptier(best) {
			best, least, computed = m, cost, uncached
		}
	}
	return best.take(q, computed), nil
}

func (m *member) emptier(than *member) bool {
	if a, b := len(m.flights), len(than.flights); a != b {
		return a < b
	}
	return m.index().Blocks < than.index().Blocks
}

func (m *member) take(q Request, uncached int) *flight {
	f := &flight{request: q, uncached: uncached}
	m.send, m.flights[q.Number] = append(m.send, q), f
	m.uncached += uncached
	return f
}
