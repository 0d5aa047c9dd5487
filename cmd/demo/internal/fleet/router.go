package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/serve"
	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/kvevents"
)

// index is what a router knows of an engine.
type index interface {
	// match is how many of the leading blocks of a prompt the engine has.
	match(names []kvevents.Hash) int
	blocks() int
}

// member is an engine and what the router has sent it.
type member struct {
	index
	host     *host
	number   int
	alive    bool
	send     []*serve.Request           // in the next window
	flights  map[*serve.Request]*flight // sent and not answered
	uncached int                        // tokens to be computed of flights that have not started
}

func newMember(number int, i index, h *host) *member {
	return &member{index: i, host: h, number: number, alive: true,
		flights: map[*serve.Request]*flight{}}
}

// flight is a request on its way.
type flight struct {
	request  *serve.Request
	number   int           // in the order of their coming
	arrival  time.Duration // the first one
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
func (r *router) route(members []*member, f *flight) error {
	var alive []*member
	for _, m := range members {
		if m.alive {
			alive = append(alive, m)
		}
	}
	prompt := f.request.Tokens[:f.request.Prompt]
	if r.random != nil {
		alive[r.random.IntN(len(alive))].take(f, len(prompt))
		return nil
	}
	names, err := events.Names(messages.Prefix{Tokens: prompt}, r.tokens)
	if err != nil {
		return err
	}
	names = names[:(len(prompt)-1)/r.tokens] // the last token is always computed
	best, least, computed := alive[0], -1, 0
	for _, m := range alive {
		uncached := len(prompt) - r.tokens*m.match(names)
		if cost := m.uncached + uncached; least < 0 || cost < least || cost == least && m.emptier(best) {
			best, least, computed = m, cost, uncached
		}
	}
	best.take(f, computed)
	return nil
}

func (m *member) emptier(than *member) bool {
	if a, b := len(m.flights), len(than.flights); a != b {
		return a < b
	}
	return m.blocks() < than.blocks()
}

func (m *member) take(f *flight, uncached int) {
	f.uncached = uncached
	m.send, m.flights[f.request] = append(m.send, f.request), f
	m.uncached += uncached
}
