package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/messages"
)

// Config sizes a server.
type Config struct {
	Rig *engine.Rig
	// Name is the server's stream's.
	Name  string
	Model cost.Model
	GPU   cost.GPU
	// MaxRunning bounds the sequences of one batch.
	MaxRunning int
	// StepTokens bounds the prompt tokens of one step; a multiple of the
	// tokens of a block.
	StepTokens int
	// ChunkTokens bounds the prompt tokens of one sequence in one step, so
	// that the engine holds less of limited windows meanwhile; 0: StepTokens alone.
	ChunkTokens int
	// Prefetch is how many of the requests that wait are prefetched before each try to admit.
	Prefetch int
	// Fetch is how long an admission waits for the engine's store, if it has one.
	Fetch time.Duration
}

// Totals count what a server has done.
type Totals struct {
	Requests, GivenUp         int // answered; never served
	Refusals, Preemptions     int // requests that had to wait for pages, once for each try
	Lost                      int // sequences that went down with an actor and were admitted again
	Steps                     int
	PromptTokens              int64
	ReusedTokens              int64
	AnswerTokens              int64
	ComputedTokens            int64 // of prompts, those of preempted sequences again
	VerifiedPages, WrongPages int64
	// Prefill is the modelled time of what was computed, Saved of what was not.
	Prefill, Saved time.Duration
	Wait           time.Duration // of first tokens, summed over requests
	// FirstPrompt and FirstReused are the tokens of the prompt that was admitted first,
	// and how many of them were reused: what a cache had before it saw a request.
	FirstPrompt, FirstReused int64
}

// Add adds up the totals of several servers.
func (t *Totals) Add(o Totals) {
	t.Requests += o.Requests
	t.GivenUp += o.GivenUp
	t.Refusals += o.Refusals
	t.Preemptions += o.Preemptions
	t.Lost += o.Lost
	t.Steps += o.Steps
	t.PromptTokens += o.PromptTokens
	t.ReusedTokens += o.ReusedTokens
	t.AnswerTokens += o.AnswerTokens
	t.ComputedTokens += o.ComputedTokens
	t.VerifiedPages += o.VerifiedPages
	t.WrongPages += o.WrongPages
	t.Prefill += o.Prefill
	t.Saved += o.Saved
	t.Wait += o.Wait
	t.FirstPrompt += o.FirstPrompt
	t.FirstReused += o.FirstReused
}

// Server serves the requests of one source. It belongs to one goroutine.
type Server struct {
	config  Config
	source  Source
	compute *Compute
	tokens  int           // of a block
	skipped time.Duration // idle time that was passed over

	waiting []*sequence // first come first
	running []*sequence
	spare   []*sequence
	crowded bool // a request was refused and no sequence has gone since
	alone   bool // the first request that waits was refused: no other is tried before it
	totals  Totals

	// Reused from step to step.
	admits   []messages.AdmitRequest
	commits  []messages.CommitStep
	appends  []messages.AppendStep
	releases []messages.ReleaseStep
	owners   []*sequence // of the steps, in their order
	lengths  []int
	sampled  [][1]messages.Token
}

// patience is how long, in wall time, a server that can run nothing sleeps, so
// that others go on.
const patience = 200 * time.Microsecond

// admitBatch bounds the admissions of one step.
const admitBatch = 16

// New makes a server with a stream of its own.
func New(c Config, s Source) (*Server, error) {
	compute, err := NewCompute(c.Rig, c.Name)
	if err != nil {
		return nil, err
	}
	return &Server{config: c, source: s, compute: compute, tokens: c.Rig.TokensPerBlock}, nil
}

// Totals gives what has been counted so far.
func (s *Server) Totals() Totals {
	t := s.totals
	checked := s.compute.Checked()
	t.VerifiedPages, t.WrongPages = checked.Pages, checked.Wrong
	return t
}

// Compute gives the stream that the server computes on, for what it has checked.
func (s *Server) Compute() *Compute { return s.compute }

// Now is the server's time: the device's, and what it was idle for.
func (s *Server) Now() time.Duration { return s.config.Rig.Now() + s.skipped }

// Run serves until the source has nothing more. An error is one of the engine
// or the device that no server can go on from, or that of the context, which ends it between
// two steps.
func (s *Server) Run(ctx context.Context) error {
	calls := context.WithoutCancel(ctx)
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", s.config.Name, err)
		}
		more, err := s.Step(calls)
		if err != nil {
			return fmt.Errorf("%s: %w", s.config.Name, err)
		}
		if !more {
			return nil
		}
	}
}

// Step is one turn of the loop; more is false when all is served.
func (s *Server) Step(ctx context.Context) (more bool, err error) {
	if err := s.arrive(); err != nil {
		return false, err
	}
	if len(s.waiting) == 0 && len(s.running) == 0 {
		return false, nil
	}
	if err := s.admit(ctx); err != nil {
		return false, err
	}
	if len(s.running) == 0 {
		if len(s.waiting) > 0 {
			time.Sleep(patience) // other servers hold the pages
		}
		return true, nil
	}
	s.totals.Steps++
	if err := s.computeStep(ctx); err != nil {
		return false, err
	}
	if err := s.commitPrefills(ctx); err != nil {
		return false, err
	}
	if err := s.appendSampled(ctx); err != nil {
		return false, err
	}
	s.readmitLost()
	return true, s.releaseAnswered(ctx)
}

// arrive takes over what has arrived. No more waits than could run, so a source
// that is a file is not read into memory.
func (s *Server) arrive() error {
	for len(s.waiting) < s.config.MaxRunning {
		load := Working
		if len(s.waiting)+len(s.running) == 0 {
			load = Idle
		}
		r, err := s.source.Next(s.Now(), load)
		if err != nil {
			return err
		}
		if r == nil {
			return nil
		}
		if ahead := r.Arrival - s.Now(); ahead > 0 {
			s.skipped += ahead
		}
		s.waiting = append(s.waiting, s.newSequence(r))
	}
	return nil
}

// admit tries the first requests that wait.
func (s *Server) admit(ctx context.Context) error {
	n := min(len(s.waiting), s.config.MaxRunning-len(s.running), admitBatch)
	if n == 0 || s.crowded && len(s.running) > 0 {
		return nil
	}
	if s.alone {
		n = 1
	}
	if len(s.running) > 0 {
		s.config.Rig.Door.RLock()
		defer s.config.Rig.Door.RUnlock()
	} else {
		s.config.Rig.Door.Lock()
		defer s.config.Rig.Door.Unlock()
	}
	if err := s.prefetch(ctx); err != nil {
		return err
	}
	empty := len(s.running) == 0 && s.config.Rig.Running.Load() == 0
	answers, err := s.ask(ctx, s.waiting[:n])
	if err != nil {
		return err
	}
	kept := s.waiting[:0]
	for i, q := range s.waiting {
		switch {
		case i >= n:
			kept = append(kept, q)
		case answers[i].Err == nil:
			s.addRunning(q, &answers[i])
		case mayPass(answers[i].Err) && !(empty && n == 1):
			s.totals.Refusals++
			s.crowded, s.alone = true, true
			kept = append(kept, q)
		default:
			if err := s.giveUp(q); err != nil {
				return err
			}
		}
	}
	s.waiting = kept
	return nil
}

// prefetch tells the engine what requests that wait are going to use. The first to be admitted
// comes last, so that its blocks are those used latest.
func (s *Server) prefetch(ctx context.Context) error {
	for i := min(s.config.Prefetch, len(s.waiting)) - 1; i >= 0; i-- {
		tokens := s.waiting[i].request.Tokens
		_, err := s.config.Rig.Prefetch(ctx, messages.Prefix{Tokens: tokens})
		// Too little room for what is in host memory, or a prompt that will be given up.
		if err != nil && !mayPass(err) && !errors.Is(err, messages.ErrTooLong) {
			return err
		}
	}
	return nil
}

// ask looks the requests up and admits them.
func (s *Server) ask(ctx context.Context, batch []*sequence) ([]messages.Admitted, error) {
	if err := s.lookup(ctx, batch); err != nil {
		return nil, err
	}
	s.admits = s.admits[:0]
	for _, q := range batch {
		s.admits = append(s.admits, messages.AdmitRequest{
			Tokens: q.request.Tokens, Session: q.request.Session, ChunkTokens: s.config.ChunkTokens,
			Fetch: s.config.Fetch,
		})
	}
	return s.config.Rig.AdmitBatch(ctx, s.admits)
}

// mayPass reports whether a refusal may pass: pages come back, a length does not.
func mayPass(refused error) bool { return errors.Is(refused, messages.ErrOutOfPages) }

// lookup finds how much of each prompt is stored, before the admissions change
// it. One more token, that no prompt has, lifts the rule that a prompt's last
// token is always computed.
func (s *Server) lookup(ctx context.Context, batch []*sequence) error {
	for _, q := range batch {
		r := q.request
		if r.Known == 0 || q.answered > 0 {
			continue
		}
		beyond := append(r.Tokens[:r.Known:r.Known], messages.MaxToken)
		found, err := s.config.Rig.Lookup(ctx, messages.Prefix{Tokens: beyond})
		if err != nil && !errors.Is(err, messages.ErrTooLong) {
			return err
		}
		r.Outcome.Stored = min(found.MatchedTokens, r.Known)
		r.Outcome.StoredOnHost = min(found.SecondaryTokens, r.Outcome.Stored)
	}
	return nil
}

// lost reports whether a sequence went down with an actor of the engine.
func lost(refused error) bool { return errors.Is(refused, messages.ErrSequenceLost) }

// readmitLost makes the sequences that went down wait again, the oldest first,
// with the answers that they have so far.
func (s *Server) readmitLost() {
	for i := len(s.running) - 1; i >= 0; i-- {
		q := s.running[i]
		if !q.lost {
			continue
		}
		q.lost = false
		s.totals.Lost++
		s.config.Rig.Running.Add(-1)
		s.running = slices.Delete(s.running, i, i+1)
		s.waiting = slices.Insert(s.waiting, 0, q)
	}
}

func (s *Server) giveUp(q *sequence) error {
	s.totals.GivenUp++
	q.request.Outcome.GivenUp = true
	return s.finish(q)
}

// finish gives the request back and keeps the sequence's memory.
func (s *Server) finish(q *sequence) error {
	q.request.Outcome.Done = s.Now()
	err := s.source.Done(q.request)
	q.request = nil
	s.spare = append(s.spare, q)
	return err
}
