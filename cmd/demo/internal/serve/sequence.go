package serve

import (
	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// sequence is a request on its way through the engine.
type sequence struct {
	request  *Request
	id       messages.SequenceID
	links    []host.Chain        // of the tokens so far
	tables   [][]messages.PageID // [pool][block], as the engine gave them
	ready    []messages.Ticket   // to be waited for before the pages are touched
	prompt   int                 // tokens to prefill: with a resumed answer more than the request's
	reused   int                 // to be checked by the next kernel; 0 when done
	computed int                 // committed tokens
	next     int                 // computed, and what the step under way computes
	answered int                 // tokens of the answer so far
	lost     bool                // it went down with an actor: to be admitted again
}

func (s *Server) newSequence(r *Request) *sequence {
	q := &sequence{}
	if n := len(s.spare); n > 0 {
		q, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	*q = sequence{request: r, links: q.links[:0], tables: q.tables, ready: q.ready[:0]}
	return q
}

// link extends the chain over all tokens of the request.
func (q *sequence) link() {
	last := host.Root(messages.Namespace{})
	if n := len(q.links); n > 0 {
		last = q.links[n-1]
	}
	for _, t := range q.request.Tokens[len(q.links):] {
		last = last.Next(t, messages.Cover{})
		q.links = append(q.links, last)
	}
}

// addRunning takes over what an admission gave.
func (s *Server) addRunning(q *sequence, a *messages.Admitted) {
	r := q.request
	q.id = a.Sequence
	q.prompt = len(r.Tokens)
	q.reused, q.computed, q.next = a.ReusedTokens, a.ReusedTokens, a.ReusedTokens
	q.link()
	for len(q.tables) < len(a.Tables) {
		q.tables = append(q.tables, nil)
	}
	for p, beams := range a.Tables {
		q.tables[p] = append(q.tables[p][:0], beams[0]...)
	}
	q.ready = append(q.ready[:0], a.Ready...)
	s.running = append(s.running, q)
	s.crowded, s.alone = false, false
	s.config.Rig.Running.Add(1)

	computed := cost.Span{From: a.ReusedTokens, To: q.prompt}
	s.totals.Prefill += cost.Prefill(&s.config.Model, &s.config.GPU, computed)
	s.totals.ComputedTokens += int64(computed.To - computed.From)
	if q.answered > 0 {
		return
	}
	r.Outcome.Reused = a.ReusedTokens
	if s.totals.PromptTokens == 0 {
		s.totals.FirstPrompt, s.totals.FirstReused = int64(q.prompt), int64(a.ReusedTokens)
	}
	s.totals.Saved += cost.Prefill(&s.config.Model, &s.config.GPU, cost.Span{To: a.ReusedTokens})
	s.totals.PromptTokens += int64(q.prompt)
	s.totals.ReusedTokens += int64(a.ReusedTokens)
}

// prefilling reports whether the prompt is not yet computed.
func (q *sequence) prefilling() bool { return q.computed < q.prompt }

// complete reports whether the answer has all its tokens.
func (q *sequence) complete() bool {
	return !q.prefilling() && q.answered >= q.request.Answer
}

// grow takes over the pages of a step. Pages replaced by copies on write cannot
// be told from new ones here: the caller asks for the tables then.
func (q *sequence) grow(step *messages.StepResult, blocks int) (unclear bool) {
	q.ready = append(q.ready, step.Ready...)
	for p, pages := range step.NewPages {
		if len(q.tables[p])+len(pages) > blocks {
			return true
		}
		q.tables[p] = append(q.tables[p], pages...)
	}
	return false
}
