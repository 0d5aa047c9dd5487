package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/actors"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Request is what a sequence is made of.
type Request struct {
	Tokens, Encoder []messages.Token
	Salt            string
	Retention       *messages.Retention
	Beams           int
	Private         bool // it reuses nothing, and nothing of it is kept
	Readmitted      bool // it was admitted before: messages.AdmitRequest
}

// namespace separates salts.
func (q *Request) namespace() messages.Namespace { return messages.Namespace{Salt: q.Salt} }

// Fetch brings what the engine's store has of a prompt to host memory, within Config.Fetch. It
// is no use of the runner: it may be called from any goroutine, and the others go on meanwhile.
func (r *Runner) Fetch(ctx context.Context, q Request) {
	if r.Config.Fetch <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.Config.Fetch)
	defer cancel()
	prompt := messages.Prefix{Namespace: q.namespace(), Tokens: q.Tokens}
	// What is wrong with the prompt or the engine, the admission says.
	_, _ = actors.StoreOf(r.Engine.Actors()).Fetch(ctx, prompt)
}

// AdmitAll takes sequences in, in one call. Each that was refused has an error
// in its place. It does not wait for a store: Fetch does.
func (r *Runner) AdmitAll(ctx context.Context, requests []Request) ([]*Sequence, []error, error) {
	return r.admit(ctx, requests, 0)
}

// admit takes sequences in. Each waits for the engine's store for the time of fetch at most.
func (r *Runner) admit(
	ctx context.Context, requests []Request, fetch time.Duration,
) ([]*Sequence, []error, error) {
	asked := make([]kvactor.Admission, len(requests))
	for i := range requests {
		q := &requests[i]
		if q.Private {
			q.Salt = rand.Text()
		}
		asked[i].Request = messages.AdmitRequest{
			Namespace: q.namespace(), Tokens: q.Tokens, Encoder: q.Encoder, BeamWidth: q.Beams,
			ChunkTokens: r.Config.Chunk,
			Retention:   q.Retention, Fetch: fetch, Readmitted: q.Readmitted,
		}
	}
	if err := r.Engine.AdmitBatch(ctx, asked); err != nil && errors.Is(asked[0].Err, err) {
		return nil, nil, err // of the call, not of a request
	}
	out, errs := make([]*Sequence, len(asked)), make([]error, len(asked))
	for i := range asked {
		if errs[i] = asked[i].Err; errs[i] == nil {
			out[i] = r.admitted(&requests[i], asked[i].Sequence)
		}
	}
	return out, errs, nil
}

// Admit takes one sequence in, and waits for the engine's store for Config.Fetch at most.
func (r *Runner) Admit(ctx context.Context, q Request) (*Sequence, error) {
	in, errs, err := r.admit(ctx, []Request{q}, r.Config.Fetch)
	if err != nil {
		return nil, err
	}
	return in[0], errs[0]
}

// answers gives the answers of a batch: the error of each step, and the error of the
// call if that is why all have failed.
func answers(steps []kvactor.Step, err error) ([]error, error) {
	if err != nil && errors.Is(steps[0].Err, err) {
		return nil, err
	}
	errs := make([]error, len(steps))
	for i := range steps {
		errs[i] = steps[i].Err
	}
	return errs, nil
}

// steps makes one step for each sequence.
func steps(batch []*Sequence) []kvactor.Step {
	list := make([]kvactor.Step, len(batch))
	for i, s := range batch {
		list[i].Sequence = s.cached
	}
	return list
}

// Append adds tokens to sequences, one list for each: sampled ones and drafts.
// A sequence that finds no page is left as it was and has an error in its place.
func (r *Runner) Append(
	ctx context.Context, batch []*Sequence, tokens [][]messages.Token,
) ([]error, error) {
	list := steps(batch)
	for i := range list {
		list[i].Tokens, list[i].DraftStates = tokens[i], batch[i].draftStates(len(tokens[i]))
	}
	errs, err := answers(list, r.Engine.Append(ctx, list))
	for i := range errs {
		if errs[i] == nil {
			batch[i].Tokens = append(batch[i].Tokens, tokens[i]...)
			batch[i].statesFrom = batch[i].cached.Computed()
		}
	}
	return errs, err
}

// AppendBeams extends the beams of a sequence by a token each.
func (r *Runner) AppendBeams(ctx context.Context, s *Sequence, beams []messages.BeamStep) error {
	if err := r.Engine.Append(ctx, []kvactor.Step{{Sequence: s.cached, Beams: beams}}); err != nil {
		return err
	}
	s.follow(beams)
	return nil
}

// Rewind drops the last tokens of sequences, n[i] of batch[i], in one call. Each
// that was refused has an error in its place.
func (r *Runner) Rewind(ctx context.Context, batch []*Sequence, n []int) ([]error, error) {
	list := steps(batch)
	for i, s := range batch {
		if err := s.checkRewind(n[i]); err != nil {
			return nil, err
		}
		list[i].Rewind = n[i]
	}
	errs, err := answers(list, r.Engine.Rewind(ctx, list))
	for i := range errs {
		if s := batch[i]; errs[i] == nil {
			s.Tokens = s.Tokens[:len(s.Tokens)-n[i]]
			s.computed = min(s.computed, len(s.Tokens))
			s.state = min(s.state, len(s.Tokens))
		}
	}
	return errs, err
}

// Fork makes sequences that go on from where one is.
func (r *Runner) Fork(ctx context.Context, s *Sequence, n int) ([]*Sequence, error) {
	if err := s.checkState("fork", s.computed); err != nil {
		return nil, err
	}
	if s.stateEntries() > 1 && s.computed != s.cached.Computed() {
		return nil, refusals.New(messages.ErrNotSupported, "fork at %d tokens, of which %d are committed",
			s.computed, s.cached.Computed())
	}
	forks, err := s.cached.Fork(ctx, n)
	if err != nil {
		return nil, err
	}
	out := make([]*Sequence, len(forks))
	for i, cached := range forks {
		f := *s
		f.cached, f.statesFrom = cached, s.computed
		f.Tokens = append([]messages.Token(nil), s.Tokens...)
		out[i] = &f
	}
	return out, nil
}

// Release ends sequences; what is computed of them stays for others. A release over which an
// actor fails is repeated: the sequences would keep their pages.
func (r *Runner) Release(ctx context.Context, batch ...*Sequence) error {
	list := steps(batch)
	for i, s := range batch {
		list[i].After, list[i].Discard = s.last, s.checkState("release", s.cached.Computed()) != nil
	}
	err := r.Engine.Release(ctx, list)
	for errors.Is(err, messages.ErrInternal) {
		err = r.Engine.Release(ctx, list)
	}
	for _, s := range batch {
		if s.private != "" {
			_, gone := r.Engine.Invalidate(ctx, messages.Selector{Salt: s.private})
			err = errors.Join(err, gone)
		}
	}
	return err
}

// Commit tells the engine that tokens up to one of each sequence are computed. A
// sequence that was lost has an error in its place.
func (r *Runner) Commit(ctx context.Context, batch []*Sequence, upTo []int) ([]error, error) {
	list := steps(batch)
	for i, s := range batch {
		if err := s.checkState("commit", upTo[i]); err != nil {
			return nil, err
		}
		list[i].Computed, list[i].After = upTo[i], s.last
	}
	return answers(list, r.Engine.Commit(ctx, list))
}
