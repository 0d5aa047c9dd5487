package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// guest is one host of a stress test, a goroutine that makes random calls.
type guest struct {
	*stress
	dice  *rand.Rand
	group []*sequence // one admitted, and its forks
	pins  []messages.PinID
}

// sequence is what a host remembers of a running sequence.
type sequence struct {
	id       messages.SequenceID
	prompt   int
	chunk    int
	computed int
	beams    [][]host.Chain // the chain after each token, by beam
	ready    []gpu.Ticket   // what the next kernel waits for
	last     gpu.Ticket     // the latest kernel
}

func (q *sequence) length() int { return len(q.beams[0]) }

// runSequences admits, grows and releases sequences, one group after the other. Some hosts
// leave the last group running.
func (g *guest) runSequences() {
	for turn := range g.sequences {
		g.ask()
		if !g.begin() {
			continue
		}
		for range g.dice.IntN(12) {
			g.step(g.group[g.dice.IntN(len(g.group))])
			if len(g.group) == 0 {
				break
			}
		}
		if turn == g.sequences-1 && g.dice.IntN(4) == 0 {
			g.mu.Lock()
			g.left = append(g.left, g.group...)
			g.mu.Unlock()
			g.group = nil
		}
		for len(g.group) > 0 {
			g.end(g.group[0])
		}
	}
	for _, pin := range g.pins {
		g.refused("unpin", g.engine.Unpin(context.Background(), pin))
	}
}

// refused counts an operation by its outcome and reports whether it was refused.
// Refusals that no right host can cause are problems.
func (s *stress) refused(what string, err error) bool {
	var refusal *messages.Refusal
	switch {
	case err == nil:
		s.seen.add(what)
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		s.seen.add(what + ": cancelled")
	case errors.As(err, &refusal):
		s.seen.add(what + ": " + string(refusal.Code))
		switch refusal.Code {
		case messages.ErrOutOfPages, messages.ErrNotSupported, messages.ErrSequenceLost:
		case messages.ErrInternal:
			if what != "append" && what != "prefetch" && what != "pin" { // a copy that was made to fail
				s.problem(fmt.Sprintf("%s: %v", what, err))
			}
		default:
			s.problem(fmt.Sprintf("%s: %v", what, err))
		}
	default:
		s.problem(fmt.Sprintf("%s: %v", what, err))
	}
	return true
}

// shortContext gives a context that may end before, while or after a request is
// served.
func (g *guest) shortContext() (context.Context, context.CancelFunc) {
	if g.dice.IntN(4) > 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), time.Duration(g.dice.IntN(300))*time.Microsecond)
}

// prompt is a shared text, perhaps cut, with something of its own behind it.
func (g *guest) prompt() messages.Prefix {
	p := g.texts[g.dice.IntN(len(g.texts))]
	cut := 30 + g.dice.IntN(len(p.Tokens)-30) // behind the item
	p.Tokens = append(slices.Clone(p.Tokens[:cut]), random(g.dice, 1+g.dice.IntN(40))...)
	return p
}

// begin admits a sequence and computes its prompt.
func (g *guest) begin() bool {
	p := g.prompt()
	r := messages.AdmitRequest{Namespace: p.Namespace, Tokens: p.Tokens, Multimodal: p.Multimodal,
		BeamWidth: 1}
	if g.dice.IntN(3) == 0 {
		r.Session = fmt.Sprint("session ", g.dice.IntN(20))
	}
	if g.dice.IntN(3) == 0 {
		r.Retention = &messages.Retention{Ranges: []messages.RetentionRange{{
			End: messages.EndOfPrompt, Priority: messages.Priority(g.dice.IntN(101)),
			Duration: time.Duration(g.dice.IntN(3)) * time.Millisecond,
		}}}
	}
	switch g.dice.IntN(6) {
	case 0, 1:
		r.ChunkTokens = stressBlock * (1 + g.dice.IntN(6))
	case 2:
		r.BeamWidth = 2 + g.dice.IntN(2)
	}
	ctx, cancel := g.shortContext()
	defer cancel()
	admitted, err := g.engine.Admit(ctx, r)
	if g.refused("admit", err) {
		return false
	}
	q := &sequence{
		id: admitted.Sequence, prompt: len(p.Tokens), chunk: r.ChunkTokens,
		computed: admitted.ReusedTokens, ready: admitted.Ready,
	}
	for range r.BeamWidth {
		q.beams = append(q.beams, host.Chains(p))
	}
	g.group = append(g.group, q)
	for q.computed < q.prompt {
		if !g.compute(q, q.reach()) {
			g.end(q)
			return false
		}
		if g.dice.IntN(20) == 0 { // a client that goes away during the prefill
			g.seen.add("release during prefill")
			g.end(q)
			return false
		}
	}
	return true
}

// reach is how far the next commit of the prompt goes.
func (q *sequence) reach() int {
	if q.chunk == 0 {
		return q.prompt
	}
	return min(q.prompt, (q.computed+q.chunk)/stressBlock*stressBlock)
}

// compute launches the kernel of the tokens up to one and commits them.
func (g *guest) compute(q *sequence, to int) bool {
	g.door.RLock()
	defer g.door.RUnlock()
	return g.computeHere(q, to)
}

func (g *guest) computeHere(q *sequence, to int) bool {
	if to <= q.computed {
		return true
	}
	ctx := context.Background()
	tables, err := g.engine.TablesOf(ctx, q.id)
	if g.refused("tables", err) {
		return false
	}
	step := host.Step{Label: "step", Waits: q.ready}
	for beam, chains := range q.beams {
		table := host.Beam(tables, beam)
		step.Reads = append(step.Reads, host.Span{Chains: chains, To: q.computed, Table: table})
		step.Writes = append(step.Writes, host.Span{Chains: chains, From: q.computed, To: to,
			Table: table})
	}
	g.launch.Lock()
	q.last, err = g.writer.Launch(step)
	g.launch.Unlock()
	if err != nil {
		g.problem(fmt.Sprintf("launch: %v", err))
		return false
	}
	g.seen.add("kernels")
	q.ready = nil
	results, err := g.engine.Commit(ctx,
		[]messages.CommitStep{{Sequence: q.id, Computed: to, After: q.last}})
	if err == nil {
		err = results[0].Err
	}
	if g.refused("commit", err) {
		return false
	}
	q.computed = to
	q.ready = append(q.ready, results[0].Ready...)
	return true
}

// step is one thing that a host does with a sequence.
func (g *guest) step(q *sequence) {
	single := len(q.beams) == 1
	switch n := g.dice.IntN(12); {
	case n == 0 && single:
		g.fork(q)
	case n == 1 && single:
		g.rewind(q)
	case n == 2:
		g.end(q)
	case n == 3:
		g.ask()
	default:
		g.append(q)
	}
}

// append adds sampled tokens and computes those that have a successor now.
func (g *guest) append(q *sequence) {
	step := messages.AppendStep{Sequence: q.id}
	next := make([][]host.Chain, len(q.beams))
	if len(q.beams) == 1 {
		step.Tokens = random(g.dice, 1+g.dice.IntN(5))
		next[0] = q.beams[0]
		for _, token := range step.Tokens {
			next[0] = append(next[0], next[0][len(next[0])-1].Next(token, messages.Cover{}))
		}
	} else {
		for i := range q.beams {
			b := messages.BeamStep{Parent: g.dice.IntN(len(q.beams)),
				Token: messages.Token(g.dice.IntN(vocabulary))}
			step.Beams = append(step.Beams, b)
			parent := q.beams[b.Parent]
			next[i] = append(slices.Clone(parent), parent[len(parent)-1].Next(b.Token, messages.Cover{}))
		}
	}
	g.door.RLock()
	defer g.door.RUnlock()
	ctx, cancel := g.shortContext()
	defer cancel()
	results, err := g.engine.Append(ctx, []messages.AppendStep{step})
	if err == nil {
		err = results[0].Err
	}
	if g.refused("append", err) {
		if errors.Is(err, messages.ErrSequenceLost) {
			g.end(q)
		}
		return
	}
	q.beams = next
	q.ready = append(q.ready, results[0].Ready...)
	if !g.computeHere(q, q.length()-1) {
		g.problem("a step was refused after its append")
	}
}

// fork makes children, which belong to the same group.
func (g *guest) fork(q *sequence) {
	ids, err := g.engine.ForkOne(context.Background(), q.id, 1+g.dice.IntN(2))
	if g.refused("fork", err) {
		return
	}
	for _, id := range ids {
		child := *q
		child.id, child.beams, child.ready = id, [][]host.Chain{slices.Clone(q.beams[0])},
			slices.Clone(q.ready)
		g.group = append(g.group, &child)
	}
}

// rewind drops generated tokens, as rejected drafts are.
func (g *guest) rewind(q *sequence) {
	n := g.dice.IntN(q.length() - q.prompt + 1)
	if n == 0 || g.refused("rewind", g.engine.RewindOne(context.Background(), q.id, n)) {
		return
	}
	q.beams[0] = q.beams[0][:q.length()-n]
	q.computed = min(q.computed, q.length())
}

// end releases a sequence, storing what it computed or not.
func (g *guest) end(q *sequence) {
	step := messages.ReleaseStep{Sequence: q.id, Discard: g.dice.IntN(3) == 0, After: q.last}
	results, err := g.engine.Release(context.Background(), []messages.ReleaseStep{step})
	if err == nil {
		err = results[0].Err
	}
	what := "release"
	if step.Discard {
		what = "discard"
	}
	g.refused(what, err)
	g.forget(q)
}

func (g *guest) forget(q *sequence) {
	g.group = slices.DeleteFunc(g.group, func(x *sequence) bool { return x == q })
}

// ask is a request that is about what is stored, not about a sequence.
func (g *guest) ask() {
	ctx, cancel := g.shortContext()
	defer cancel()
	var err error
	what := "lookup"
	switch g.dice.IntN(12) {
	case 0:
		what = "pin"
		var pinned messages.Pinned
		if pinned, err = g.engine.Pin(ctx, g.prompt()); err == nil {
			g.pins = append(g.pins, pinned.Pin)
		}
	case 1:
		what = "prefetch"
		_, err = g.engine.Prefetch(ctx, g.prompt())
	case 2:
		what = "invalidate"
		_, err = g.engine.Invalidate(ctx,
			messages.Selector{Session: fmt.Sprint("session ", g.dice.IntN(20))})
	case 3:
		what = "stats"
		_, err = g.engine.Stats(ctx)
	case 4:
		what = "events"
		_, err = g.engine.Events(ctx)
	case 5:
		if n := len(g.pins); n > 0 {
			what = "unpin"
			if err = g.engine.Unpin(ctx, g.pins[n-1]); err == nil {
				g.pins = g.pins[:n-1]
			}
			break
		}
		fallthrough
	default:
		_, err = g.engine.Lookup(ctx, g.prompt())
	}
	g.refused(what, err)
}

// byCount orders the keys, the most frequent first.
func byCount(counts map[string]int) []string {
	keys := slices.Collect(maps.Keys(counts))
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	return keys
}
