package sim

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// append adds sampled tokens, drafts or beams to some sequences; now and then it
// commits what a kernel has just computed in the same step.
func (a *application) append() {
	w := a.world
	list := a.some(func(s *sequence) bool {
		return s.computed >= s.prompt && s.length()+4 <= w.model.MaxSeqLen
	})
	if len(list) == 0 {
		a.release()
		return
	}
	var ends []int
	if w.rng.IntN(5) == 0 &&
		!slices.ContainsFunc(list, func(s *sequence) bool {
			return s.shared || !s.known || s.computed == s.length()
		}) {
		var ok bool
		if ends, ok = a.launch(list); !ok {
			return
		}
	}
	m := &messages.Append{}
	for i, s := range list {
		step := messages.AppendStep{Sequence: s.id}
		if len(s.beams) > 1 {
			for range s.beams {
				step.Beams = append(step.Beams, messages.BeamStep{Parent: w.rng.IntN(len(s.beams)),
					Token: messages.Token(w.rng.IntN(3))})
			}
		} else {
			for range 1 + max(0, w.rng.IntN(6)-2) {
				step.Tokens = append(step.Tokens, messages.Token(w.rng.IntN(3)))
			}
		}
		switch {
		case ends != nil:
			step.Computed, step.After = ends[i], s.last
		case s.written > s.computed:
			// A kernel has written what no commit has told of: a copy on write
			// would not wait for it.
			step.Computed, step.After = s.written, s.last
		}
		m.Steps = append(m.Steps, step)
	}
	r := &request{kind: "append", record: m, by: a, detail: fmt.Sprint(m.Steps)}
	r.then = func(err error) {
		for i := range m.Results {
			if err == nil {
				a.appended(r, list[i], &m.Steps[i], &m.Results[i])
			} else {
				list[i].known = false // beams that have followed their parents are lost: the tables tell
			}
		}
	}
	w.submit(r)
}

// appended grows one sequence.
func (a *application) appended(
	what fmt.Stringer, s *sequence, step *messages.AppendStep, got *messages.StepResult,
) {
	w := a.world
	if code(got.Err) == messages.ErrInternal && w.lossy {
		w.counts.add("refusals, internal", 1)
		s.ready = append(s.ready, got.Ready...)
		return // a copy on write failed
	}
	w.expect(what, got.Err, messages.ErrOutOfPages)
	a.drop(s, got.Err)
	if got.Err != nil {
		return
	}
	w.tellf("  new pages of %v: %v, ready %v", s.id, got.NewPages, got.Ready)
	s.known, s.shared = false, false
	s.computed = max(s.computed, step.Computed)
	s.written = s.computed
	s.ready = append(s.ready, got.Ready...)
	if step.Beams == nil {
		for _, t := range step.Tokens {
			s.beams[0] = append(s.beams[0], s.beams[0][s.length()-1].Next(t, messages.Cover{}))
		}
		s.text.Tokens = append(s.text.Tokens, step.Tokens...)
		return
	}
	old := s.beams
	s.beams = nil
	for _, b := range step.Beams {
		parent := old[b.Parent]
		s.beams = append(s.beams, append(slices.Clone(parent),
			parent[len(parent)-1].Next(b.Token, messages.Cover{})))
	}
	// The text of beam 0 is only a prompt for later: its leading part will do.
}

func (a *application) rewind() {
	w := a.world
	// What a kernel has written is committed before it is taken back.
	s := a.one(func(s *sequence) bool {
		return len(s.beams) == 1 && s.length() > s.prompt && s.written <= s.computed
	})
	if s == nil {
		return
	}
	n := 1 + w.rng.IntN(s.length()-s.prompt)
	m := &messages.Rewind{Steps: []messages.RewindStep{{Sequence: s.id, Tokens: n}}}
	r := &request{kind: "rewind", record: m, by: a, detail: fmt.Sprintf("%v by %d", s.id, n)}
	r.then = func(err error) {
		if err != nil {
			return
		}
		refusal := m.Results[0].Err
		w.expect(r, refusal, messages.ErrNotSupported)
		a.drop(s, refusal)
		if refusal != nil {
			return
		}
		length := s.length() - n
		s.beams[0], s.text.Tokens = s.beams[0][:length], s.text.Tokens[:length]
		s.computed, s.written, s.known = min(s.computed, length), min(s.written, length), false
	}
	w.submit(r)
}

func (a *application) fork() {
	w := a.world
	// A kernel whose commit was aborted has brought the working page further than the
	// engine knows, and no one has told it to wait for that kernel.
	s := a.one(func(s *sequence) bool {
		return len(s.beams) == 1 && s.computed >= s.prompt && (!w.recurrent || s.written <= s.computed)
	})
	if s == nil || len(a.sequences) > 2*w.perHost {
		return
	}
	count := 1 + w.rng.IntN(2)
	m := &messages.Fork{Steps: []messages.ForkStep{{Sequence: s.id, Count: count}}}
	r := &request{kind: "fork", record: m, by: a, detail: fmt.Sprintf("%v into %d", s.id, count)}
	r.then = func(err error) {
		if err != nil {
			return
		}
		result := &m.Results[0]
		s.ready = append(s.ready, result.Ready...) // also of a fork that is refused: see ForkResult
		if w.recurrent && code(result.Err) == messages.ErrInternal && !w.calm {
			w.counts.add("refusals, internal", 1)
			return // the copy of a state failed
		}
		var refusals []messages.Code
		if w.recurrent {
			refusals = append(refusals, messages.ErrOutOfPages)
		}
		w.expect(r, result.Err, refusals...)
		a.drop(s, result.Err)
		if result.Err != nil {
			return
		}
		s.shared = s.computed < s.length()
		for _, id := range result.Forks {
			f := *s
			f.id, f.known, f.tables = id, false, nil
			f.beams, f.ready = [][]host.Chain{slices.Clone(s.beams[0])}, slices.Clone(s.ready)
			f.text.Tokens = slices.Clone(s.text.Tokens)
			a.sequences = append(a.sequences, &f)
			w.tellf("  fork %v", id)
		}
	}
	w.submit(r)
}

func (a *application) release() {
	list := a.some(func(*sequence) bool { return true })
	if len(list) == 0 {
		return
	}
	m := &messages.Release{}
	for _, s := range list {
		m.Steps = append(m.Steps, messages.ReleaseStep{Sequence: s.id,
			Discard: a.world.rng.IntN(6) == 0 || a.spoilt(s), After: s.last})
	}
	r := &request{kind: "release", record: m, by: a, detail: fmt.Sprint(m.Steps)}
	r.then = func(err error) {
		if err == nil {
			a.released(r, list, m.Results)
		}
	}
	a.world.submit(r)
}

// spoilt reports whether the working page is further than what is committed: it must not
// become a checkpoint.
func (a *application) spoilt(s *sequence) bool {
	return a.world.recurrent && s.written > s.computed
}

// released forgets the sequences.
func (a *application) released(what fmt.Stringer, list []*sequence, results []messages.StepResult) {
	for i, s := range list {
		a.world.expect(what, results[i].Err)
		a.sequences = slices.DeleteFunc(a.sequences, func(t *sequence) bool { return t == s })
		if results[i].Err == nil && len(s.text.Tokens) > 0 {
			a.world.keep(s.text)
		}
	}
}

// releaseLost tells the engine that the host has understood.
func (a *application) releaseLost() {
	m := &messages.Release{}
	m.Steps = append(m.Steps, a.gone...)
	r := &request{kind: "release", record: m, by: a, detail: fmt.Sprint(m.Steps)}
	r.then = func(err error) {
		if err != nil {
			return
		}
		a.gone = nil
		for i := range m.Results {
			if c := code(m.Results[i].Err); c != messages.ErrSequenceLost {
				a.world.failf("%s: release of the lost sequence %v: %q", r, m.Steps[i].Sequence, c)
			}
		}
	}
	a.world.submit(r)
}
