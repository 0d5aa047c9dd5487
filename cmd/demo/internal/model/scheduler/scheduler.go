package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Config bounds what a scheduler does at a time. A zero field has the default that it
// names.
type Config struct {
	Running    int // sequences; 0: 16
	Waiting    int // requests beyond those that run; 0: 256
	StepTokens int // prompt tokens in a step, at least one chunk; 0: 256
	Draft      int // tokens of a draft; 0: none
}

// setDefaults fills in defaults.
func (c *Config) setDefaults() error {
	if c.Running < 0 || c.Waiting < 0 || c.StepTokens < 0 || c.Draft < 0 {
		return fmt.Errorf("%d running, %d waiting, %d tokens a step, drafts of %d: none may be negative",
			c.Running, c.Waiting, c.StepTokens, c.Draft)
	}
	for field, value := range map[*int]int{&c.Running: 16, &c.Waiting: 256, &c.StepTokens: 256} {
		if *field == 0 {
			*field = value
		}
	}
	return nil
}

// ErrFull refuses a request because too many wait.
var ErrFull = errors.New("too many requests wait")

// ErrStopping refuses a request because the scheduler ends.
var ErrStopping = errors.New("the server is stopping")

// Counters count what a scheduler has done.
type Counters struct {
	Steps           int64
	Prompts         int64 // requests whose prompts were admitted
	Readmissions    int64 // admissions of requests that were admitted before
	PromptTokens    int64 // of Prompts
	ReusedTokens    int64 // of PromptTokens
	OnboardedPages  int64
	GeneratedTokens int64 // told to the sinks
	Preemptions     int64
	Retries         int64 // of sequences that an actor's failure had lost
	DraftedTokens   int64
	AcceptedTokens  int64 // of those drafted
	LargestBatch    int   // sequences in one step
	Running         int   // now
	Waiting         int   // now
}

// Scheduler serves requests on one runner. Submit, Stop and Counters may be called from
// any goroutine; Run is the only user of the runner while it runs.
type Scheduler struct {
	config Config
	runner *runner.Runner
	wake   chan struct{} // one place: something arrived, or Stop was called

	mu       sync.Mutex
	arrived  []*job
	fetching int // jobs that wait for the store before they arrive
	load     int // jobs that are not complete
	stopping bool
	counters Counters

	fetches  sync.WaitGroup  // of the jobs that are fetching
	fetch    context.Context // of all fetches: it ends when Run gives up
	endFetch context.CancelFunc

	// Of Run's goroutine. Running sequences are in the order of their admission, forks
	// behind those that were there: the last one is the youngest, and is preempted
	// first, since it has least to compute again. Those that wait are first come first
	// served, preempted ones in front.
	waiting, running []*answer
	full             bool // an admission found no pages, and no sequence has gone since
}

// New makes a scheduler. The runner's model must not have an encoder.
func New(r *runner.Runner, c Config) (*Scheduler, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	if r.Model.Encodes() {
		return nil, fmt.Errorf("a model with an encoder: %s", r.Model.Kind)
	}
	s := &Scheduler{config: c, runner: r, wake: make(chan struct{}, 1)}
	s.fetch, s.endFetch = context.WithCancel(context.Background())
	return s, nil
}

// Submit queues a request. Its sink is called until all choices have ended, which the
// end of ctx brings about, too.
func (s *Scheduler) Submit(ctx context.Context, q Request) error {
	q.Choices = max(q.Choices, 1)
	if err := s.check(&q); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return ErrStopping
	case s.load >= s.config.Running+s.config.Waiting:
		return ErrFull
	}
	s.load++
	s.fetching++
	j := &job{Request: q, ctx: ctx, open: q.Choices}
	if s.runner.Config.Fetch <= 0 {
		s.arrive(j)
		return nil
	}
	s.fetches.Go(func() { s.fetchFor(j) })
	return nil
}

// fetchFor brings a job's prompt from the store, and lets the job arrive. It runs beside the
// steps, so that a store which is slow or hangs holds up no other request.
func (s *Scheduler) fetchFor(j *job) {
	ctx, cancel := context.WithCancel(j.ctx)
	defer cancel()
	defer context.AfterFunc(s.fetch, cancel)()
	s.runner.Fetch(ctx, runner.Request{Tokens: j.Tokens, Salt: j.Salt})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrive(j)
}

// arrive gives a job to Run. It is called with mu held.
func (s *Scheduler) arrive(j *job) {
	s.fetching--
	s.arrived = append(s.arrived, j)
	s.poke()
}

// check refuses what can never be served.
func (s *Scheduler) check(q *Request) error {
	longest := s.runner.Config.MaxLen
	switch {
	case len(q.Tokens) == 0:
		return refusals.New(messages.ErrBadRequest, "the prompt is empty")
	case q.New < 1:
		return refusals.New(messages.ErrBadRequest, "%d tokens to generate", q.New)
	case len(q.Tokens)+1 > longest:
		return refusals.New(messages.ErrTooLong, "the prompt has %d tokens, the longest sequence %d",
			len(q.Tokens), longest)
	case q.Choices > s.config.Running:
		return refusals.New(messages.ErrBadRequest, "%d choices, at most %d sequences run", q.Choices,
			s.config.Running)
	}
	all := slices.Concat(q.Tokens, slices.Collect(maps.Keys(q.Stops)),
		slices.Collect(maps.Keys(q.Sampling.Bias)))
	if err := s.runner.Model.CheckTokens(all); err != nil {
		return refusals.New(messages.ErrBadRequest, "%v", err)
	}
	return nil
}

// poke wakes Run up. It is called with mu held or from Run.
func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// Stop refuses new requests from now on. Run returns when the accepted ones are served.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.poke()
}

// Stopping tells whether Stop was called, or Run has ended.
func (s *Scheduler) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// Counters gives what has been counted so far.
func (s *Scheduler) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters
}

// count changes counters.
func (s *Scheduler) count(change func(*Counters)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counters)
}

// Run serves until Stop was called and all is served, or until ctx ends: then it
// cancels what is left. An error is one that the engine cannot go on from; what was
// left has failed with it.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		done, err := s.await(ctx)
		if done || err != nil {
			return err
		}
		// The engine's calls are short: a step that has begun is ended.
		if err := s.turn(context.WithoutCancel(ctx)); err != nil {
			s.abandon(context.WithoutCancel(ctx), Failed, err)
			return err
		}
	}
}

// await takes new jobs over, and waits for some when there is nothing to do.
func (s *Scheduler) await(ctx context.Context) (done bool, err error) {
	for {
		select {
		case <-ctx.Done(): // an end as asked for, no error
			s.abandon(context.WithoutCancel(ctx), Cancelled, ctx.Err())
			return true, nil
		default:
		}
		s.mu.Lock()
		s.takeArrived()
		s.counters.Running, s.counters.Waiting = len(s.running), len(s.waiting)+s.fetching
		stopped := s.stopping && s.fetching == 0
		s.mu.Unlock()
		if len(s.waiting)+len(s.running) > 0 {
			return false, nil
		}
		if stopped {
			return true, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// takeArrived makes the jobs that have arrived wait. It is called with mu held.
func (s *Scheduler) takeArrived() {
	for _, j := range s.arrived {
		s.waiting = append(s.waiting, newAnswer(j, 0))
	}
	s.arrived = s.arrived[:0]
}

// turn is one turn of the loop: admissions and a step.
func (s *Scheduler) turn(ctx context.Context) error {
	if err := s.drop(ctx); err != nil {
		return err
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	if len(s.running) == 0 {
		return nil
	}
	return s.step(ctx)
}

// abandon ends everything that is left, with one reason.
func (s *Scheduler) abandon(ctx context.Context, reason Reason, err error) {
	s.Stop()
	s.endFetch()
	s.fetches.Wait() // no more begin after Stop
	s.mu.Lock()
	s.takeArrived()
	s.mu.Unlock()
	all := append(s.waiting, s.running...)
	for _, a := range s.running {
		_ = s.runner.Release(ctx, a.sequence) // of an engine that may have failed
	}
	s.waiting, s.running = nil, nil
	for _, a := range all {
		s.endAll(a.job, all, reason, err)
	}
	s.count(func(c *Counters) { c.Running, c.Waiting = 0, 0 })
}

// endAll ends the choices of a job: those among answers, and those that are not forked
// yet and have no answer of their own.
func (s *Scheduler) endAll(j *job, answers []*answer, reason Reason, err error) {
	for _, a := range answers {
		if a.job == j {
			a.end(reason, err)
		}
	}
	if !j.forked {
		for choice := 1; choice < j.Choices && j.open > 0; choice++ {
			j.open--
			j.Sink.Ended(choice, reason, err)
		}
		j.forked = true
	}
	s.complete(j)
}

// complete gives the place of a job free when its last choice has ended.
func (s *Scheduler) complete(j *job) {
	if j.open != 0 {
		return
	}
	j.open = -1 // once
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load--
}
