package hazards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// guest is a host that makes random calls, the same for one seed. It never looks at
// tickets, so that it does the same whatever the device does and when.
type guest struct {
	*world
	dice    *rand.Rand
	running []*sequence
	texts   [][]messages.Token
	answers []string  // everything that the engine said, but for tickets
	next    int       // number of the next text that is no one else's
	touched *sequence // the last that was rewound or appended to
}

// Sizes that make all of it matter: the texts are three times what device and
// host memory hold, the sequences at once half of it.
const (
	guestTexts   = 10
	guestRunning = 5
)

func newGuest(w *world, seed uint64) *guest {
	g := &guest{world: w, dice: rand.New(rand.NewPCG(seed, 5)), next: guestTexts}
	for i := range guestTexts {
		g.texts = append(g.texts, text(i, 10+g.dice.IntN(50)))
	}
	return g
}

// runSteps does n random steps.
func (g *guest) runSteps(n int) {
	for range n {
		switch d := g.dice.IntN(17); {
		case d < 5 && len(g.running) < guestRunning || len(g.running) == 0:
			g.arrive()
		case d < 6:
			g.fork()
		case d < 7:
			g.rewind()
		case d < 8:
			g.ask()
		case d < 9:
			g.change()
		case d < 12:
			g.leave(g.dice.IntN(len(g.running)))
		default:
			g.decode(g.running[g.dice.IntN(len(g.running))])
		}
		g.sim.Advance(time.Duration(g.dice.IntN(6)) * time.Microsecond)
	}
}

// leaveAll ends every sequence.
func (g *guest) leaveAll() {
	for len(g.running) > 0 {
		g.leave(0)
	}
}

// say notes an answer; refusals that no right host can cause end the test.
func (g *guest) say(what string, answer any, err error) bool {
	g.t.Helper()
	g.answers = append(g.answers, fmt.Sprintf("%s: %v %v", what, answer, err))
	if err == nil {
		return true
	}
	require.True(g.t, errors.Is(err, messages.ErrOutOfPages) ||
		errors.Is(err, messages.ErrNotSupported), "%s: %v", what, err)
	return false
}

// prompt is a known text, perhaps cut, with something of its own behind it.
func (g *guest) prompt() []messages.Token {
	known := g.texts[g.dice.IntN(len(g.texts))]
	g.next++
	return append(slices.Clone(known[:1+g.dice.IntN(len(known))]), text(g.next, g.dice.IntN(12))...)
}

// arrive admits one or two prompts at once and computes them, each on a stream
// of its own.
func (g *guest) arrive() {
	requests := make([]messages.AdmitRequest, 1+g.dice.IntN(2))
	for i := range requests {
		requests[i].Tokens = g.prompt()
		if g.dice.IntN(4) == 0 {
			requests[i].ChunkTokens = tpb * (1 + g.dice.IntN(4))
		}
	}
	results, err := g.AdmitBatch(context.Background(), requests)
	require.NoError(g.t, err)
	for i := range results {
		a := &results[i]
		if !g.say("admit", fmt.Sprint(a.ReusedTokens, a.MissReason, a.Reuse, a.Tables, a.Checkpoints),
			a.Err) {
			continue
		}
		q := admitted(requests[i], a)
		q.stream = g.dice.IntN(len(g.streams))
		g.running = append(g.running, q)
		for q.computed < q.prompt {
			g.commit(q, q.reach())
		}
	}
}

// commit computes the tokens up to n, which never fails.
func (g *guest) commit(q *sequence, n int) { require.NoError(g.t, g.compute(q, n)) }

// decode appends tokens and computes those that have a successor.
func (g *guest) decode(q *sequence) {
	g.touched = q
	tokens := text(g.next, 1+g.dice.IntN(3))
	g.next++
	tables := func() any {
		t, err := g.TablesOf(context.Background(), q.id)
		return fmt.Sprint(t, err)
	}
	if g.say("append", tables(), g.append(q, tokens...)) {
		g.commit(q, len(q.chains)-1)
	}
}

// fork makes a child whose kernels run on another stream: they come after
// those of the parent.
func (g *guest) fork() {
	if len(g.running) >= guestRunning+2 {
		return
	}
	q := g.running[g.dice.IntN(len(g.running))]
	child, err := g.world.fork(q)
	if !g.say("fork", nil, err) {
		return
	}
	child.stream = g.dice.IntN(len(g.streams))
	if !q.last.IsZero() {
		child.ready = append(child.ready, q.last)
	}
	g.running = append(g.running, child)
}

// rewind drops generated tokens.
func (g *guest) rewind() {
	q := g.running[g.dice.IntN(len(g.running))]
	g.touched = q
	n := g.dice.IntN(len(q.chains) - q.prompt + 1)
	if n == 0 || !g.say("rewind", n, g.RewindOne(context.Background(), q.id, n)) {
		return
	}
	q.chains = q.chains[:len(q.chains)-n]
	q.computed = min(q.computed, len(q.chains))
}

// leave releases one sequence, while its kernels may still run.
func (g *guest) leave(i int) {
	q := g.running[i]
	g.running = slices.Delete(g.running, i, i+1)
	step := messages.ReleaseStep{Sequence: q.id, Discard: g.dice.IntN(4) == 0, After: q.last}
	results, err := g.Release(context.Background(), []messages.ReleaseStep{step})
	g.say("release", step.Discard, outcome(results, err))
}

// change is a client that goes away before its prompt is computed, or while it
// is: what it displaced comes back at once, into pages that are free.
func (g *guest) change() {
	g.next++
	q, a, err := g.admit(text(g.next, 20+g.dice.IntN(40)))
	if !g.say("admit", fmt.Sprint(a.Reuse, a.Tables), err) {
		return
	}
	if q.stream = g.dice.IntN(len(g.streams)); g.dice.IntN(2) == 0 {
		require.NoError(g.t, g.launch(q, q.prompt))
	}
	results, err := g.Release(context.Background(),
		[]messages.ReleaseStep{{Sequence: q.id, Discard: true, After: q.last}})
	g.say("discard", nil, outcome(results, err))
	for range 2 {
		n, err := g.Prefetch(context.Background(),
			messages.Prefix{Tokens: g.texts[g.dice.IntN(len(g.texts))]})
		g.say("prefetch", n, err)
	}
}

// ask is a request about what is stored.
func (g *guest) ask() {
	p := messages.Prefix{Tokens: g.texts[g.dice.IntN(len(g.texts))]}
	switch g.dice.IntN(3) {
	case 0:
		n, err := g.Prefetch(context.Background(), p)
		g.say("prefetch", n, err)
	case 1:
		found, err := g.Lookup(context.Background(), p)
		g.say("lookup", found, err)
	default:
		n, err := g.Invalidate(context.Background(), messages.Selector{Prefix: &p})
		g.say("invalidate", n, err)
	}
}
