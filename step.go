package kvactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Step is the part of one sequence in a batch, and its answer. Each method of Engine that
// takes steps says which fields it takes, and refuses others that are set (ErrBadRequest); it sets
// Placed, Forked and Err. A sequence is in at most one step of a batch.
type Step struct {
	Sequence *Sequence
	Tokens   []Token    // Append: the tokens to add, for beam width 1
	Beams    []BeamStep // Append: one for each beam, for larger beam widths
	// DraftStates, of Append, asks for so many pages in each state pool, for the states after
	// single tokens, until the next Append: see messages.AppendStep.
	DraftStates int
	// Computed, of Commit, Append and Release, is the number of leading tokens that are
	// computed; for Append and Release 0 means no commit.
	Computed int
	Rewind   int  // Rewind: the number of last tokens to drop, at least 1
	Forks    int  // Fork: the number of sequences to make, at least 1
	Discard  bool // Release: do not store what was computed since the last commit
	// After, of Commit, Append and Release, passes when the host's kernels have used the
	// pages. Zero: they have already.
	After Ticket
	// AnswerTokens, of Release, is the length of the answer if another engine generates it;
	// 0: the tokens that were appended. Only the eviction policy Forecast uses it.
	AnswerTokens int

	// Placed are the pages that Append or Commit has taken, and the pages that copies on
	// write replace. The engine makes those copies; Ready of the sequence has their
	// tickets. All beams share the pages of a prompt: Commit lists them for beam 0.
	Placed []PlacedPage
	Forked []*Sequence // by Fork; nil with Err
	Err    error
}

// Append adds Tokens or Beams to sequences and takes pages for them: one step of a batch
// is one Append. A step whose Computed is not 0 commits as well, after its pages are
// taken. A step that finds no page (ErrOutOfPages) leaves its sequence as it was; the
// others are served. The cost is that of one message to each pool, whatever the number of
// steps. A host that uses its steps again allocates nothing.
func (e *Engine) Append(ctx context.Context, steps []Step) error {
	m := recordOf[messages.Append](&e.appends)
	defer e.appends.Put(m)
	m.Steps = m.Steps[:0]
	for i := range steps {
		st := &steps[i]
		m.Steps = append(m.Steps, messages.AppendStep{Sequence: st.id(), Tokens: st.Tokens,
			Beams: st.Beams, DraftStates: st.DraftStates, Computed: st.Computed, After: st.After})
	}
	if err := e.do(ctx, m, &m.Err, steps, callAppend); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) {
		s := st.Sequence
		s.follow(st.Beams)
		s.applyPlaced(st.Placed)
		s.cutStates(1 + st.DraftStates)
		s.extend(st.Tokens, st.Beams)
		s.commit(st.Computed)
	})
}

// Commit says that Computed tokens of each sequence are in its pages, or will be when After has
// passed. Other sequences can reuse the blocks that this completes. A commit before the end of the
// prompt ends at a block boundary. With ChunkTokens it ends at most so many tokens, rounded down to
// a boundary, behind what was computed, and takes the pages of the next chunk, which the admission
// has reserved. Computed less than before, or more than the sequence has tokens, is ErrBadRequest.
func (e *Engine) Commit(ctx context.Context, steps []Step) error {
	m := recordOf[messages.Commit](&e.commits)
	defer e.commits.Put(m)
	m.Steps = m.Steps[:0]
	for i := range steps {
		m.Steps = append(m.Steps, messages.CommitStep{Sequence: steps[i].id(),
			Computed: steps[i].Computed, After: steps[i].After})
	}
	if err := e.do(ctx, m, &m.Err, steps, callCommit); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) {
		st.Sequence.commit(st.Computed)
		st.Sequence.placeChunk(st.Placed)
	})
}

// Rewind drops the last Rewind tokens of each sequence, such as rejected drafts. The kernels that
// wrote them must have ended, or must be covered by the After of an earlier commit: run before it,
// on its stream. Tokens of the prompt cannot be dropped (ErrBadRequest), nor tokens whose window is
// no longer in the cache (ErrNotSupported).
func (e *Engine) Rewind(ctx context.Context, steps []Step) error {
	m := &messages.Rewind{Steps: make([]messages.RewindStep, len(steps))}
	for i := range steps {
		m.Steps[i] = messages.RewindStep{Sequence: steps[i].id(), Tokens: steps[i].Rewind}
	}
	if err := e.do(ctx, m, &m.Err, steps, callRewind); err != nil {
		return err
	}
	return e.answer(steps, m.Results, func(st *Step) { st.Sequence.shorten(st.Rewind) })
}

// Fork makes Forks new sequences of each sequence, in Forked, that share all its pages; each copies
// a page when it first writes to it. With recurrent layers each takes a page for a copy of the
// state at once (ErrOutOfPages if there is none), and Ready of the sequence and of its forks has
// the tickets of that copy. The prompt must be committed, and the beam width 1.
func (e *Engine) Fork(ctx context.Context, steps []Step) error {
	m := &messages.Fork{Steps: make([]messages.ForkStep, len(steps))}
	for i := range steps {
		m.Steps[i] = messages.ForkStep{Sequence: steps[i].id(), Count: steps[i].Forks}
	}
	if err := e.do(ctx, m, &m.Err, steps, callFork); err != nil {
		return err
	}
	results := make([]messages.StepResult, len(steps))
	for i := range m.Results {
		results[i].Err = m.Results[i].Err
		// Also of forks that were refused: copies may still read the page of a state.
		if s := steps[i].Sequence; s != nil {
			s.await(m.Results[i].Ready, 0)
		}
	}
	next := 0
	return e.answer(steps, results, func(st *Step) {
		for m.Results[next].Err != nil {
			next++
		}
		st.Forked = e.forks(st.Sequence, &m.Results[next])
		next++
	})
}

// Release ends sequences. What they have committed stays reusable until it is evicted. The host's
// kernels may use the pages until After has passed. A step whose Computed is not 0 commits first,
// in the same message, and takes no pages. If Commit would refuse that Computed, or Discard is set
// as well, the step is refused (ErrBadRequest) and its sequence goes on. A sequence that is lost
// (ErrSequenceLost) is released, too.
func (e *Engine) Release(ctx context.Context, steps []Step) error {
	m := &messages.Release{Steps: make([]messages.ReleaseStep, len(steps))}
	for i := range steps {
		st := &steps[i]
		m.Steps[i] = messages.ReleaseStep{Sequence: st.id(), Computed: st.Computed, Discard: st.Discard,
			After: st.After, AnswerTokens: st.AnswerTokens}
	}
	if err := e.do(ctx, m, &m.Err, steps, callRelease); err != nil {
		return err
	}
	e.mu.Lock()
	for i := range steps {
		if err := m.Results[i].Err; err == nil || errors.Is(err, ErrSequenceLost) ||
			errors.Is(err, ErrUnknownSequence) {
			e.leave(steps[i].Sequence)
		}
	}
	e.mu.Unlock()
	return e.answer(steps, m.Results, func(*Step) {})
}

// recordOf takes a record that is not in use. Records of calls that come once a step are
// used again, with the slices that the engine has grown in them.
func recordOf[T any](free *sync.Pool) *T {
	if m, ok := free.Get().(*T); ok {
		return m
	}
	return new(T)
}

// id is the engine's handle of the step's sequence; 0, which is none, without one.
func (st *Step) id() SequenceID {
	if st.Sequence == nil {
		return 0
	}
	return st.Sequence.id
}

// do sends a request; an error of the whole call is that of every step.
func (e *Engine) do(
	ctx context.Context, request messages.Request, refusal *error, steps []Step, by call,
) error {
	err := e.check(steps, by)
	if err == nil {
		err = e.below.Do(ctx, request)
	}
	if err == nil {
		err = *refusal
	}
	for i := range steps {
		steps[i].Placed, steps[i].Forked, steps[i].Err = steps[i].Placed[:0], nil, err
	}
	return err
}

// call is a method that takes steps, with the fields that it takes.
type call struct {
	name                                             string
	tokens, computed, rewind, forks, after, releases bool
}

var (
	callAppend  = call{name: "Append", tokens: true, computed: true, after: true}
	callCommit  = call{name: "Commit", computed: true, after: true}
	callRewind  = call{name: "Rewind", rewind: true}
	callFork    = call{name: "Fork", forks: true}
	callRelease = call{name: "Release", computed: true, after: true, releases: true}
)

// foreign is the name of a field that is set and that the call does not take; "": there is none.
func (st *Step) foreign(by call) string {
	switch {
	case len(st.Tokens) > 0 && !by.tokens:
		return "Tokens"
	case len(st.Beams) > 0 && !by.tokens:
		return "Beams"
	case st.Computed != 0 && !by.computed:
		return "Computed"
	case st.Rewind != 0 && !by.rewind:
		return "Rewind"
	case st.Forks != 0 && !by.forks:
		return "Forks"
	case st.Discard && !by.releases:
		return "Discard"
	case !st.After.IsZero() && !by.after:
		return "After"
	case st.AnswerTokens != 0 && !by.releases:
		return "AnswerTokens"
	case st.DraftStates != 0 && !by.tokens:
		return "DraftStates"
	default:
		return ""
	}
}

// check refuses steps without a sequence of this engine, and steps with fields of another call.
func (e *Engine) check(steps []Step, by call) error {
	for i := range steps {
		switch s := steps[i].Sequence; {
		case s == nil:
			return refusals.New(ErrBadRequest, "steps[%d].Sequence is nil", i)
		case s.engine != e:
			return refusals.New(ErrBadRequest, "steps[%d].Sequence: %v is of another engine", i, s.id)
		}
	}
	for i := range steps {
		if name := steps[i].foreign(by); name != "" {
			return refusals.New(ErrBadRequest, "steps[%d].%s is set, which %s does not take", i, name,
				by.name)
		}
	}
	return nil
}

// answer writes results to their steps, and applies those that were served.
func (e *Engine) answer(steps []Step, results []messages.StepResult, apply func(*Step)) error {
	var all joined
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range steps {
		st, r := &steps[i], &results[i]
		// The record is used again, so the step gets a copy.
		st.Placed, st.Err = append(st.Placed, r.Placed...), r.Err
		if st.Err == nil {
			apply(st)
		}
		until := 0
		if len(st.Tokens)+len(st.Beams) > 0 {
			until = st.Sequence.length // an earlier kernel may be committed before that of these tokens
		}
		st.Sequence.await(r.Ready, until)
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

// addOf adds the error of a sequence. Many refusals begin with their sequence; the others
// get its name here, or the errors of a batch could not be told apart.
func (j *joined) addOf(s *Sequence, err error) {
	if err == nil {
		return
	}
	if name := fmt.Sprintf("sequence %v", s.id); !strings.HasPrefix(err.Error(), name+" ") {
		err = fmt.Errorf("%s: %w", name, err)
	}
	j.add(err)
}

// err joins the errors. If they have one code, it is that of the whole; otherwise the whole has
// none, so that errors.Is is never true of it for the reason of one item alone.
func (j *joined) err() error {
	all := errors.Join(j.errors...)
	for _, err := range j.errors {
		if code(err) != code(j.errors[0]) {
			return mixed{all}
		}
	}
	return all
}

// mixed are errors of several codes.
type mixed struct{ all error }

func (m mixed) Error() string { return m.all.Error() }

// code is the code of a refusal, "" for other errors.
func code(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}
