package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

func (s *script) commit(d *datadriven.TestData) {
	m := &messages.Commit{}
	for _, arg := range stepsOf(d) {
		m.Steps = append(m.Steps, messages.CommitStep{
			Sequence: s.names[arg.Key], Computed: s.computes(arg), After: s.after(d),
		})
	}
	if !s.Do(m) {
		return
	}
	for i, arg := range stepsOf(d) {
		if l := s.sequence(arg.Key); l != nil && m.Results[i].Err == nil {
			l.computed = m.Steps[i].Computed
		}
	}
	s.results(d, m.Results)
}

// computes is the number of tokens that a step commits; the host has written their KV then.
func (s *script) computes(arg datadriven.CmdArg) int {
	n, l := number(s.t, arg.Vals[0]), s.sequence(arg.Key)
	if l != nil && n > max(l.computed, s.written[arg.Key]) && n <= l.length() {
		s.hostWrites(l, n)
	}
	return n
}

// hostWrites writes the KV of tokens, without printing the messages that this takes.
func (s *script) hostWrites(l *hostSequence, n int) {
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	s.write(l, l.computed, n)
	s.Before, s.After = before, after
}

func (s *script) append(d *datadriven.TestData) {
	m := &messages.Append{}
	for _, arg := range stepsOf(d) {
		step := messages.AppendStep{Sequence: s.names[arg.Key], After: s.after(d)}
		if l := s.sequence(arg.Key); l != nil && len(l.beams) > 1 {
			for _, v := range strings.Split(arg.Vals[0], "+") { // parent:token
				parent, token, _ := strings.Cut(v, ":")
				step.Beams = append(step.Beams, messages.BeamStep{
					Parent: number(s.t, parent), Token: messages.Token(number(s.t, token)),
				})
			}
		} else {
			step.Tokens = tokensOf(arg.Vals[0])
		}
		if l := s.sequence(arg.Key); l != nil && d.HasArg("commits") {
			if s.written[arg.Key] < l.length() {
				s.hostWrites(l, l.length())
				s.written[arg.Key] = l.length()
			}
			step.Computed = l.length()
		}
		m.Steps = append(m.Steps, step)
	}
	if !s.Do(m) {
		return
	}
	for i, arg := range stepsOf(d) {
		if l := s.sequence(arg.Key); l != nil && m.Results[i].Err == nil {
			l.computed = max(l.computed, m.Steps[i].Computed)
			if len(l.beams) > 1 {
				s.extendBeams(l, m.Steps[i].Beams)
			} else {
				s.extend(l, m.Steps[i].Tokens)
			}
		}
	}
	s.results(d, m.Results)
}

func (s *script) release(d *datadriven.TestData) {
	m := &messages.Release{}
	for _, arg := range stepsOf(d) {
		step := messages.ReleaseStep{
			Sequence: s.names[arg.Key], Discard: d.Cmd == "discard", After: s.after(d),
		}
		if len(arg.Vals) > 0 {
			step.Computed = s.computes(arg)
		}
		m.Steps = append(m.Steps, step)
	}
	if !s.Do(m) {
		return
	}
	for i, arg := range stepsOf(d) {
		if err := m.Results[i].Err; err == nil || !errors.Is(err, messages.ErrBadRequest) {
			delete(s.running, s.names[arg.Key])
		}
	}
	s.results(d, m.Results)
}

// results prints what a step has answered, and forgets what is lost.
func (s *script) results(d *datadriven.TestData, results []messages.StepResult) {
	for i, r := range results {
		name := stepsOf(d)[i].Key
		s.checkPlaced(&r)
		if r.Err != nil {
			fmt.Fprintf(&s.out, "%s: %v\n", name, r.Err)
			if strings.Contains(r.Err.Error(), "was lost") {
				s.releaseWithoutPrinting(r)
			}
			continue
		}
		fmt.Fprintf(&s.out, "%s:", name)
		for _, list := range r.NewPages {
			fmt.Fprintf(&s.out, " %s", pages(list))
		}
		s.out.WriteByte('\n')
	}
}

// checkPlaced holds the two lists of new pages of a result against each other.
func (s *script) checkPlaced(r *messages.StepResult) {
	placed := make([][]messages.PageID, len(r.NewPages))
	for _, p := range r.Placed {
		placed[p.Pool] = append(placed[p.Pool], p.Page)
	}
	for p := range placed {
		require.ElementsMatch(s.t, r.NewPages[p], placed[p], "pool %d of %v", p, r.Sequence)
	}
}

// releaseWithoutPrinting releases a lost sequence without printing it.
func (s *script) releaseWithoutPrinting(r messages.StepResult) {
	if s.running[r.Sequence] == nil {
		return
	}
	before, after := s.Before, s.After
	s.Before, s.After = nil, nil
	s.releaseLost(r)
	s.Before, s.After = before, after
}

func (s *script) rewindOrFork(d *datadriven.TestData) {
	if d.Cmd == "rewind" {
		m := &messages.Rewind{}
		for _, arg := range stepsOf(d) {
			m.Steps = append(m.Steps, messages.RewindStep{
				Sequence: s.names[arg.Key], Tokens: number(s.t, arg.Vals[0]),
			})
		}
		if !s.Do(m) {
			return
		}
		for i, arg := range stepsOf(d) {
			if l := s.sequence(arg.Key); l != nil && m.Results[i].Err == nil {
				l.beams[0] = l.beams[0][:l.length()-m.Steps[i].Tokens]
				l.tokens = l.tokens[:l.length()]
				l.computed = min(l.computed, l.length())
			}
		}
		s.results(d, m.Results)
		return
	}
	m := &messages.Fork{}
	for _, arg := range stepsOf(d) {
		m.Steps = append(m.Steps, messages.ForkStep{Sequence: s.names[arg.Key], Count: len(arg.Vals)})
	}
	if !s.Do(m) {
		return
	}
	for i, arg := range stepsOf(d) {
		r := &m.Results[i]
		fmt.Fprintf(&s.out, "%s: %d forks, %v\n", arg.Key, len(r.Forks), r.Err)
		for k, id := range r.Forks {
			s.names[arg.Vals[k]] = id
			s.written[arg.Vals[k]] = s.written[arg.Key]
			f := *s.sequence(arg.Key)
			f.id, f.beams = id, slices.Clone(f.beams)
			f.beams[0] = slices.Clone(f.beams[0])
			s.running[id] = &f
		}
	}
}
