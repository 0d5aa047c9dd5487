package script

import (
	"errors"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

type commitRequest struct {
	Seq      string `json:"seq"`
	Computed int64  `json:"computed"`
}

func (q *commitRequest) do(p *player) (any, error) {
	if q.Computed < 0 {
		return nil, bad("commit", "computed %d is negative", q.Computed)
	}
	s, err := p.named(q.Seq)
	if err != nil {
		return nil, err
	}
	n := int(q.Computed)
	w := work{s: s, from: min(n, max(s.computed, s.written)), to: n, refused: !p.allowed(s, n)}
	results, err := p.commit("commit", []work{w}, ownRequest)
	if err != nil {
		return nil, err
	}
	if results[0].Err != nil {
		return nil, p.noticed(s, results[0].Err)
	}
	p.shareWritten(s)
	return commitAnswer{done("commit"), p.newPages(results[0].NewPages)}, nil
}

// allowed reports whether the engine will let a commit pass: kernels must not
// write before a commit that is refused.
func (p *player) allowed(s *sequence, n int) bool {
	if n < s.computed || n > s.length() {
		return false
	}
	if s.computed >= s.prompt {
		return true
	}
	return n == s.computed || n <= p.reach(s) && (n == s.prompt || n%p.tokensPerBlock == 0)
}

// shareWritten tells those who share pages with s, its forks, that rows which
// they have not committed yet are there by now: writing them again would write
// into pages that others may be reading.
func (p *player) shareWritten(s *sequence) {
	own, err := p.engine.TablesOf(p.ctx, s.id)
	if err != nil {
		return // lost meanwhile, nothing is shared
	}
	for _, name := range p.names() {
		t := p.sequences[name]
		if t == s || t.written >= min(s.written, t.length()) ||
			t.beams[0][t.written] != s.beams[0][t.written] {
			continue
		}
		theirs, err := p.engine.TablesOf(p.ctx, t.id)
		if err != nil {
			continue
		}
		written := t.written
		for t.written < min(s.written, t.length()) && t.beams[0][t.written] == s.beams[0][t.written] &&
			samePages(own, theirs, t.written/p.tokensPerBlock) {
			t.written++
		}
		if t.written > written && t.last.Seq < s.last.Seq { // all kernels are on one stream
			t.last = s.last
		}
	}
}

// samePages reports whether two sequences hold a block in the same pages.
func samePages(a, b messages.Tables, block int) bool {
	for pool := range a {
		x, y := a[pool][0], b[pool][0]
		if block >= len(x) || block >= len(y) || x[block] != y[block] {
			return false
		}
	}
	return true
}

// stepLine is one step of an append line: tokens, or a token for each beam.
type stepLine struct {
	Seq    string      `json:"seq"`
	Tokens *tokensLine `json:"tokens"`
	Beams  []beamLine  `json:"beams,omitempty"` // nil: tokens
}

type beamLine struct {
	Parent int64 `json:"parent"`
	Token  int64 `json:"token"`
}

func (l *stepLine) check(r *reader, path string) {
	switch {
	case l.Beams == nil && l.Tokens == nil:
		r.missing(join(path, "tokens"))
	case l.Beams != nil && l.Tokens != nil:
		r.fail("field %s has both tokens and beams", path)
	}
}

// value checks the tokens of a step.
func (l stepLine) value() (messages.AppendStep, error) {
	if l.Beams == nil {
		tokens, err := l.Tokens.values("append")
		return messages.AppendStep{Tokens: tokens}, err
	}
	if len(l.Beams) == 0 {
		return messages.AppendStep{}, bad("append", "beams is empty")
	}
	step := messages.AppendStep{Beams: make([]messages.BeamStep, len(l.Beams))}
	for i, b := range l.Beams {
		if !isToken(b.Token) {
			return step, bad("append", "token %d is not between 0 and %d", b.Token, messages.MaxToken)
		}
		if b.Parent < 0 || b.Parent >= int64(len(l.Beams)) {
			return step, bad("append", "parent %d is none of %d beams", b.Parent, len(l.Beams))
		}
		step.Beams[i] = messages.BeamStep{Parent: int(b.Parent), Token: messages.Token(b.Token)}
	}
	return step, nil
}

// growth is one step on its way through an append line.
type growth struct {
	s      *sequence
	step   messages.AppendStep
	answer appendAnswer
	err    error
}

type appendRequest struct {
	Steps []stepLine `json:"steps"`
}

// do is one engine step: the engine takes pages for all sequences in order, the kernels compute
// the tokens that now have a successor, one commit for all.
func (q *appendRequest) do(p *player) (any, error) {
	all := make([]growth, len(q.Steps))
	taken := make(map[string]bool)
	var sent []*growth
	var steps []messages.AppendStep
	for i, l := range q.Steps {
		g := &all[i]
		g.answer.Seq = l.Seq
		if g.err = p.checkStep(g, l, taken); g.err == nil {
			sent, steps = append(sent, g), append(steps, g.step)
			taken[l.Seq] = g.grows()
		}
	}
	if len(sent) > 0 {
		results, err := p.engine.Append(p.ctx, steps)
		for i, g := range sent {
			if g.err = err; err != nil {
				continue
			}
			if g.err = p.noticed(g.s, results[i].Err); g.err == nil {
				g.grow()
				g.s.ready = append(g.s.ready, results[i].Ready...)
				p.delayWriters(g.s, results[i].Ready)
				g.answer.NewPages = p.newPages(results[i].NewPages)
			}
		}
		p.computeGrown(sent)
	}
	out := resultsAnswer{done("append"), []any{}}
	for i := range all {
		g := &all[i]
		if g.answer.OK = g.err == nil; g.err != nil {
			f := failureOf(g.err)
			g.answer.Error, g.answer.NewPages = &f, nil
		}
		out.Results = append(out.Results, g.answer)
	}
	return out, nil
}

// delayWriters makes other sequences wait for what made a step of s ready, if they have
// still to write rows of tokens that were sampled before their last: a copy on
// write may be reading those in a page that s and they shared.
func (p *player) delayWriters(s *sequence, ready []messages.Ticket) {
	if len(ready) == 0 {
		return
	}
	for _, t := range p.sequences { // each on its own: the order does not matter
		if t != s && t.written < t.length()-1 {
			t.ready = append(t.ready, ready...)
		}
	}
}

// checkStep checks values, then names. Whether the prompt is computed, whether
// tokens or beams are wanted and the rest the engine checks.
func (p *player) checkStep(g *growth, l stepLine, taken map[string]bool) error {
	var err error
	if g.step, err = l.value(); err != nil {
		return err
	}
	if g.s, err = p.named(l.Seq); err != nil {
		return err
	}
	g.step.Sequence = g.s.id
	if taken[l.Seq] {
		return bad("append", "sequence %q stands twice in one step", l.Seq)
	}
	if !g.grows() {
		return nil // the engine says why
	}
	return p.tooLong("append", int64(g.s.length())+g.added())
}

// grows reports whether a step fits its sequence, so that a second one is one too
// many. What fits may still be too long or find no pages.
func (g *growth) grows() bool {
	if g.s.computed < g.s.prompt {
		return false
	}
	if width := len(g.s.beams); width > 1 {
		return len(g.step.Beams) == width
	}
	return g.step.Beams == nil
}

// added is how many tokens longer a step makes its sequence; a run too long to
// be written out has no tokens here, but is longer than any sequence.
func (g *growth) added() int64 {
	switch {
	case g.step.Beams != nil:
		return 1
	case g.step.Tokens == nil:
		return math.MaxInt32
	}
	return int64(len(g.step.Tokens))
}

// grow puts the step's tokens behind the sequence's. What is written behind the
// computed tokens counts no more: pages that hold it may just have been
// replaced by copies.
func (g *growth) grow() {
	s := g.s
	s.written = s.computed
	if g.step.Beams == nil {
		for _, token := range g.step.Tokens {
			s.beams[0] = append(s.beams[0], s.beams[0][len(s.beams[0])-1].Next(token, messages.Cover{}))
		}
		return
	}
	old := s.beams
	s.beams = make([][]host.Chain, len(old))
	for i, b := range g.step.Beams {
		parent := old[b.Parent]
		s.beams[i] = append(slices.Clone(parent), parent[len(parent)-1].Next(b.Token, messages.Cover{}))
	}
}

// computeGrown computes all tokens but the last of each sequence that the
// script commits. Where there are none, nothing is committed: with one token
// more after the prompt, say.
func (p *player) computeGrown(sent []*growth) {
	var works []work
	var of []*growth
	for _, g := range sent {
		if g.err == nil && !g.s.manual && g.s.computed < g.s.length()-1 {
			works, of = append(works, work{s: g.s, from: g.s.computed, to: g.s.length() - 1}), append(of, g)
		}
	}
	if len(works) == 0 {
		return
	}
	results, err := p.commit("decode", works, sameRequest)
	for i, g := range of {
		if g.err = err; err == nil {
			g.err = p.noticed(g.s, results[i].Err)
		}
	}
}

type rewindRequest struct {
	Seq    string `json:"seq"`
	Tokens int64  `json:"tokens"`
}

func (q *rewindRequest) do(p *player) (any, error) {
	if q.Tokens < 1 {
		return nil, bad("rewind", "tokens %d is not 1 or more", q.Tokens)
	}
	s, err := p.named(q.Seq)
	if err != nil {
		return nil, err
	}
	if err := p.engine.RewindOne(p.ctx, s.id, int(q.Tokens)); err != nil {
		return nil, p.noticed(s, err)
	}
	length := s.length() - int(q.Tokens)
	s.beams[0] = s.beams[0][:length]
	s.computed, s.written = min(s.computed, length), min(s.written, length)
	return done("rewind"), nil
}

type forkRequest struct {
	Seq  string   `json:"seq"`
	Into []string `json:"into"`
}

func (q *forkRequest) do(p *player) (any, error) {
	if len(q.Into) == 0 {
		return nil, bad("fork", "into is empty")
	}
	s, err := p.named(q.Seq)
	if err != nil {
		return nil, err
	}
	for i, n := range q.Into {
		if slices.Contains(q.Into[:i], n) {
			return nil, duplicate(n)
		}
		if err := p.vacant(n); err != nil {
			return nil, err
		}
	}
	results, err := p.engine.Fork(p.ctx, []messages.ForkStep{{Sequence: s.id, Count: len(q.Into)}})
	if err == nil {
		// Also of a fork that was refused: copies may still read the working page.
		s.ready = append(s.ready, results[0].Ready...)
		err = results[0].Err
	}
	if err != nil {
		return nil, p.noticed(s, err)
	}
	for i, n := range q.Into {
		f := *s
		f.id, f.beams, f.ready = results[0].Forks[i], [][]host.Chain{slices.Clone(s.beams[0])},
			slices.Clone(s.ready)
		p.sequences[n] = &f
	}
	return done("fork"), nil
}

type releaseRequest struct {
	Seq   string `json:"seq"`
	Store *bool  `json:"store"`
}

func (q *releaseRequest) do(p *player) (any, error) {
	s, err := p.named(q.Seq)
	if s != nil && s.lost != nil {
		delete(p.sequences, q.Seq)
	}
	if err != nil {
		return nil, err
	}
	results, err := p.engine.Release(p.ctx,
		[]messages.ReleaseStep{{Sequence: s.id, Discard: !or(q.Store, true), After: s.last}})
	if err == nil {
		err = results[0].Err
	}
	if err == nil || errors.Is(err, messages.ErrSequenceLost) {
		delete(p.sequences, q.Seq)
	}
	if err != nil {
		return nil, err
	}
	return done("release"), nil
}

type tablesRequest struct {
	Seq string `json:"seq"`
}

func (q *tablesRequest) do(p *player) (any, error) {
	s, err := p.named(q.Seq)
	if err != nil {
		return nil, err
	}
	tables, err := p.tablesOf(s)
	return tablesAnswer{done("tables"), tables}, err
}
