package kvactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/messages"
)

// Step is the part of one sequence in a batch, and its answer. Each method of Engine that
// takes steps says which fields it reads; it writes Placed and Err.
type Step struct {
	Sequence *Sequence
	Tokens   []Token    // to append, for beam width 1
	Beams    []BeamStep // to append, for larger beam widths: one for each beam
	Computed int        // leading tokens that are computed
	Rewind   int        // last tokens to drop
	Discard  bool       // do not store what was computed since the last commit
	Answer   int        // tokens of an answer that another engine generates, as messages.ReleaseStep.AnswerTokens
	After    Ticket     // passes when the host's kernel has ended

	// Placed are the pages that the step has taken, and the pages that copies on write
	// replace. The engine makes those copies; Ready of the sequence has their tickets.
	Placed []PlacedPage
	Err    error
}

// Append adds Tokens or Beams to sequences, one step of a batch. A step whose Computed is
// not 0 commits as well, after its pages are taken. A step that finds no page leaves its
// sequence as it was; the others are served.
func (e *Engine) Append(ctx context.Context, steps []Step) error {
	m := &messages.Append{Steps: make([]messages.AppendStep, len(steps))}
	for i := range steps {
		st := &steps[i]
		m.Steps[i] = messages.AppendStep{Sequence: st.Sequence.id, Tokens: st.Tokens, Beams: st.Beams, Computed: st.Computed, After: st.After}
	}
	if err := e.do(ctx, m, &m.Err, steps); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) {
		s := st.Sequence
		s.follow(st.Beams)
		s.place(st.Placed)
		s.length += max(len(st.Tokens), min(1, len(st.Beams)))
		s.commit(st.Computed)
	})
}

// Commit says that Computed tokens of each sequence are in its pages, or will be when
// After has passed. Other sequences can reuse the blocks that this completes. For a
// chunked prompt it takes the pages of the next chunk.
func (e *Engine) Commit(ctx context.Context, steps []Step) error {
	m := &messages.Commit{Steps: make([]messages.CommitStep, len(steps))}
	for i := range steps {
		m.Steps[i] = messages.CommitStep{Sequence: steps[i].Sequence.id, Computed: steps[i].Computed, After: steps[i].After}
	}
	if err := e.do(ctx, m, &m.Err, steps); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) {
		st.Sequence.commit(st.Computed)
		st.Sequence.place(st.Placed)
	})
}

// Rewind drops the last Rewind tokens of each sequence, such as rejected drafts. The
// kernels that wrote them must run before the After of an earlier commit on its stream.
func (e *Engine) Rewind(ctx context.Context, steps []Step) error {
	m := &messages.Rewind{Steps: make([]messages.RewindStep, len(steps))}
	for i := range steps {
		m.Steps[i] = messages.RewindStep{Sequence: steps[i].Sequence.id, Tokens: steps[i].Rewind}
	}
	if err := e.do(ctx, m, &m.Err, steps); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) { st.Sequence.shorten(st.Rewind) })
}

// Release ends sequences. What they have committed stays reusable until it is evicted.
// The host's kernels may use the pages until After has passed.
func (e *Engine) Release(ctx context.Context, steps []Step) error {
	m := &messages.Release{Steps: make([]messages.ReleaseStep, len(steps))}
	for i := range steps {
		m.Steps[i] = messages.ReleaseStep{Sequence: steps[i].Sequence.id, Discard: steps[i].Discard, After: steps[i].After, AnswerTokens: steps[i].Answer}
	}
	if err := e.do(ctx, m, &m.Err, steps); err != nil {
		return err
	}
	e.mu.Lock()
	for i := range steps {
		if err := m.Results[i].Err; err == nil || errors.Is(err, ErrSequenceLost) {
			delete(e.running, steps[i].Sequence.id)
		}
	}
	e.mu.Unlock()
	return e.answer(steps, m.Results, func(*Step) {})
}

// do sends a request; an error of the whole call is that of every step.
func (e *Engine) do(ctx context.Context, request messages.Request, refusal *error, steps []Step) error {
	err := e.below.Do(ctx, request)
	if err == nil {
		err = *refusal
	}
	for i := range steps {
		steps[i].Placed, steps[i].Err = steps[i].Placed[:0], err
	}
	return err
}

// answer writes results to their steps, and applies those that were served.
func (e *Engine) answer(steps []Step, results []messages.StepResult, apply func(*Step)) error {
	var all joined
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range steps {
		st, r := &steps[i], &results[i]
		st.Placed, st.Err = r.Placed, r.Err
		if st.Err == nil {
			apply(st)
		}
		st.Sequence.ready = append(st.Sequence.ready, r.Ready...)
		all.addOf(st.Sequence, st.Err)
	}
	return all.err()
}

// joined collects the errors of a batch.
type joined struct{ errors []error }

func (j *joined) add(err error) {
	if err != nil {
		j.errors = append(j.errors, err)
	}
}

func (j *joined) addOf(s *Sequence, err error) {
	if err != nil {
		j.errors = append(j.errors, fmt.Errorf("sequence %v: %w", s.id, err))
	}
}

func (j *joined) err() error { return errors.Join(j.errors...) }
