package oracle_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// step is an engine step: an append for some sequences, then a commit of all
// tokens but the last.
func (r *run) step(t *rapid.T) { r.extend(t, rapid.IntRange(0, 2).Draw(t, "commits how")) }

// draft is an append that commits nothing.
func (r *run) draft(t *rapid.T) { r.extend(t, -1) }

// extend appends; how 0 commits in the append, −1 not at all, else afterwards.
func (r *run) extend(t *rapid.T, commits int) {
	var chosen []*sequence
	for range rapid.IntRange(1, 3).Draw(t, "sequences") {
		s := r.drawRunning(t, func(s *sequence) bool { return !s.prefilling() })
		if !slices.Contains(chosen, s) {
			chosen = append(chosen, s)
		}
	}
	var steps [2][]messages.AppendStep
	var parents [][]messages.BeamStep
	for _, s := range chosen {
		step := messages.AppendStep{}
		if s.width > 1 {
			for range s.width {
				step.Beams = append(step.Beams, messages.BeamStep{
					Parent: rapid.IntRange(0, s.width-1).Draw(t, "parent"), Token: drawTokens(t, 1, 1)[0],
				})
			}
		} else {
			step.Tokens = drawTokens(t, 1, 3)
		}
		if commits == 0 {
			step.Computed = s.length() + max(len(step.Tokens), min(1, len(step.Beams))) - 1
		}
		parents = append(parents, step.Beams)
		for side := range steps {
			step.Sequence = s.id[side]
			steps[side] = append(steps[side], step)
		}
	}
	a, ea := r.a.Append(r.ctx, steps[0])
	b, eb := r.b.Append(r.ctx, steps[1])
	r.sameSteps(t, "append", stepAnswers{a, ea}, stepAnswers{b, eb})
	var done []*sequence
	var goals []int
	for i, s := range chosen {
		if a[i].Err != nil {
			continue
		}
		tokens := steps[0][i].Tokens
		if s.width > 1 {
			// Only the prompt is kept in mind: beams come and go.
			tokens = []messages.Token{parents[i][0].Token}
		}
		s.prefix.Tokens = append(slices.Clone(s.prefix.Tokens), tokens...)
		r.remember(s.prefix)
		if commits == 0 {
			s.computed = max(s.computed, steps[0][i].Computed)
		}
		done, goals = append(done, s), append(goals, s.length()-1)
	}
	if commits > 0 && len(done) > 0 {
		r.commitTo(t, done, goals)
	}
}

func (r *run) rewind(t *rapid.T) {
	s := r.drawRunning(t, func(s *sequence) bool { return !s.prefilling() })
	n := rapid.IntRange(1, max(1, s.length()-s.prompt)).Draw(t, "tokens")
	ea, eb := r.a.RewindOne(r.ctx, s.id[0], n), r.b.RewindOne(r.ctx, s.id[1], n)
	r.same(t, "rewind", ea, eb, nil, nil)
	if ea == nil {
		s.prefix.Tokens = s.prefix.Tokens[:s.length()-n]
		s.computed = min(s.computed, s.length())
	}
}

func (r *run) fork(t *rapid.T) {
	if len(r.running) >= mostRunning {
		r.pass(t, "enough sequences")
	}
	s := r.drawRunning(t, func(*sequence) bool { return true })
	n := rapid.IntRange(1, 2).Draw(t, "forks")
	a, ea := r.forkOf(r.a, s.id[0], n)
	b, eb := r.forkOf(r.b, s.id[1], n)
	r.same(t, "fork", ea, eb, len(a), len(b))
	for i := range a {
		f := *s
		f.id = [2]messages.SequenceID{a[i], b[i]}
		f.chunk = 0
		r.running = append(r.running, &f)
	}
}

// forkOf makes n forks of a sequence.
func (r *run) forkOf(e Engine, id messages.SequenceID, n int) ([]messages.SequenceID, error) {
	results, err := e.Fork(r.ctx, []messages.ForkStep{{Sequence: id, Count: n}})
	if err != nil {
		return nil, err
	}
	return results[0].Forks, results[0].Err
}

// release ends one or two sequences.
func (r *run) release(t *rapid.T) {
	var chosen []*sequence
	for range rapid.IntRange(1, 2).Draw(t, "sequences") {
		if s := r.drawRunning(t, func(*sequence) bool { return true }); !slices.Contains(chosen, s) {
			chosen = append(chosen, s)
		}
	}
	like := messages.ReleaseStep{Discard: rarely(t, "discard")}
	if rapid.IntRange(0, 2).Draw(t, "commits") == 0 {
		r.releaseComputed(t, chosen, like)
		return
	}
	r.releaseChosen(t, chosen, like)
}

// releaseComputed releases sequences with what they have computed since their last commits,
// or with a number that may be wrong. Those that are refused go on.
func (r *run) releaseComputed(t *rapid.T, chosen []*sequence, like messages.ReleaseStep) {
	for _, s := range chosen {
		like.Computed = rapid.IntRange(max(1, s.computed-1), s.length()+1).Draw(t, "computed")
		if rapid.Bool().Draw(t, "all") {
			like.Computed = s.length()
		}
		steps := [2]messages.ReleaseStep{like, like}
		steps[0].Sequence, steps[1].Sequence = s.id[0], s.id[1]
		a, ea := r.a.Release(r.ctx, steps[:1])
		b, eb := r.b.Release(r.ctx, steps[1:])
		r.sameSteps(t, "release with a commit", stepAnswers{a, ea}, stepAnswers{b, eb})
		if ea == nil && a[0].Err == nil {
			r.gone = append(r.gone, s.id)
			r.running = slices.DeleteFunc(r.running, func(o *sequence) bool { return o == s })
		}
	}
}

// releaseChosen releases sequences in one request, each as like says.
func (r *run) releaseChosen(t *rapid.T, chosen []*sequence, like messages.ReleaseStep) {
	var steps [2][]messages.ReleaseStep
	for _, s := range chosen {
		for side := range steps {
			like.Sequence = s.id[side]
			steps[side] = append(steps[side], like)
		}
		r.gone = append(r.gone, s.id)
	}
	r.running = slices.DeleteFunc(r.running,
		func(s *sequence) bool { return slices.Contains(chosen, s) })
	a, ea := r.a.Release(r.ctx, steps[0])
	b, eb := r.b.Release(r.ctx, steps[1])
	r.sameSteps(t, "release", stepAnswers{a, ea}, stepAnswers{b, eb})
}

// wrong asks what is refused for its names and values.
func (r *run) wrong(t *rapid.T) {
	id := [2]messages.SequenceID{}
	if len(r.gone) > 0 {
		id = r.gone[rapid.IntRange(0, len(r.gone)-1).Draw(t, "gone")]
	}
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0:
		ea, eb := r.a.RewindOne(r.ctx, id[0], 1), r.b.RewindOne(r.ctx, id[1], 1)
		r.same(t, "rewind of a sequence that is gone", ea, eb, nil, nil)
	case 1:
		a, ea := r.a.Append(r.ctx, []messages.AppendStep{{Sequence: id[0], Tokens: []messages.Token{1}}})
		b, eb := r.b.Append(r.ctx, []messages.AppendStep{{Sequence: id[1], Tokens: []messages.Token{1}}})
		r.sameSteps(t, "append to a sequence that is gone", stepAnswers{a, ea}, stepAnswers{b, eb})
	case 2:
		s := r.drawRunning(t, (*sequence).prefilling)
		a, ea := r.a.Append(r.ctx,
			[]messages.AppendStep{{Sequence: s.id[0], Tokens: []messages.Token{1}}})
		b, eb := r.b.Append(r.ctx,
			[]messages.AppendStep{{Sequence: s.id[1], Tokens: []messages.Token{1}}})
		r.sameSteps(t, "append before the prompt is computed", stepAnswers{a, ea}, stepAnswers{b, eb})
	case 3:
		_, ea := r.a.Invalidate(r.ctx, messages.Selector{})
		_, eb := r.b.Invalidate(r.ctx, messages.Selector{})
		r.same(t, "invalidate without selector", ea, eb, nil, nil)
	case 4:
		ea, eb := r.a.Unpin(r.ctx, 1<<40), r.b.Unpin(r.ctx, 1<<40)
		r.same(t, "unpin of no pin", ea, eb, nil, nil)
	case 6:
		s := r.drawRunning(t, func(s *sequence) bool { return !s.prefilling() && s.width == 1 })
		step := func(side int) []messages.AppendStep {
			x := messages.AppendStep{Sequence: s.id[side], Tokens: []messages.Token{1}}
			return []messages.AppendStep{x, x}
		}
		a, ea := r.a.Append(r.ctx, step(0))
		b, eb := r.b.Append(r.ctx, step(1))
		r.sameSteps(t, "append of a sequence twice", stepAnswers{a, ea}, stepAnswers{b, eb})
		if a[0].Err == nil {
			s.prefix.Tokens = append(slices.Clone(s.prefix.Tokens), 1)
		}
	case 5:
		s := r.drawRunning(t, func(s *sequence) bool { return !s.prefilling() && s.width == 1 })
		step := func(side int) []messages.AppendStep {
			x := messages.AppendStep{Sequence: s.id[side], Tokens: []messages.Token{-1}}
			return []messages.AppendStep{x, x}
		}
		a, ea := r.a.Append(r.ctx, step(0))
		b, eb := r.b.Append(r.ctx, step(1))
		r.sameSteps(t, "append of a token out of range", stepAnswers{a, ea}, stepAnswers{b, eb})
	}
}
