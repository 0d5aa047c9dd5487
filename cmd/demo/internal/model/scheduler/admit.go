package scheduler

import (
	"context"
	"errors"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// drop ends the choices of requests whose contexts have ended.
func (s *Scheduler) drop(ctx context.Context) error {
	gone := func(a *answer) bool { return a.ctx.Err() != nil }
	for _, a := range s.running {
		if gone(a) {
			s.endAll(a.job, s.running, Cancelled, a.ctx.Err())
		}
	}
	for _, a := range s.waiting {
		if gone(a) {
			s.endAll(a.job, s.waiting, Cancelled, a.ctx.Err())
		}
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(a *answer) bool { return a.ended })
	return s.releaseEnded(ctx)
}

// places is the number of sequences that run, with those that prompts will fork.
func (s *Scheduler) places() int {
	n := 0
	for _, a := range s.running {
		n += a.places()
	}
	return n
}

// places is the number of sequences that an answer is or will be.
func (a *answer) places() int {
	if a.forked {
		return 1
	}
	return a.Choices
}

// admit takes in the first of those that wait. When one was refused no other is tried
// before a sequence has gone: a long prompt would starve behind short ones.
func (s *Scheduler) admit(ctx context.Context) error {
	if s.full && len(s.running) > 0 {
		return nil
	}
	n, places := 0, s.places()
	for n < len(s.waiting) && places+s.waiting[n].places() <= s.config.Running {
		places += s.waiting[n].places()
		n++
	}
	if s.full {
		n = min(n, 1)
	}
	if n == 0 {
		return nil
	}
	// One call: the engine claims what each of them matches before it evicts anything
	// for the others.
	requests := make([]runner.Request, n)
	for i, a := range s.waiting[:n] {
		requests[i] = runner.Request{
			Tokens: a.tokens, Salt: a.Salt, Retention: a.Retention,
			Readmitted: a.job.admitted != nil, Private: a.PromptLogits && !a.started,
		}
	}
	sequences, errs, err := s.runner.AdmitAll(ctx, requests)
	if err != nil {
		return s.admitAgain(err)
	}
	alone := n == 1 && len(s.running) == 0
	s.full = false
	kept := s.waiting[:0]
	for i, a := range s.waiting {
		if i >= n || !s.admitted(a, at(sequences, i), at(errs, i), alone) {
			kept = append(kept, a)
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return nil
}

func at[T any](list []T, i int) (x T) {
	if i < len(list) {
		x = list[i]
	}
	return x
}

// admitAgain is what becomes of an admission that failed as a whole: the engine has
// restarted an actor, so the next turn tries again, unless it always fails.
func (s *Scheduler) admitAgain(err error) error {
	a := s.waiting[0]
	if fatal(err) {
		return err
	}
	if a.failures++; a.failures > maxFailures {
		s.endAll(a.job, s.waiting, Failed, err)
		s.waiting = slices.DeleteFunc(s.waiting, func(a *answer) bool { return a.ended })
	}
	return nil
}

// admitted takes the answer of an admission. It tells whether the choice waits no more.
func (s *Scheduler) admitted(a *answer, sequence *runner.Sequence, refused error, alone bool) bool {
	switch {
	case refused == nil:
		a.sequence = sequence
		a.sequence.AllLogits = a.PromptLogits && !a.started
		s.running = append(s.running, a)
		s.countAdmission(a)
		return true
	case errors.Is(refused, messages.ErrOutOfPages) && !alone:
		s.full = true
		return false
	case transient(refused):
		if a.failures++; a.failures <= maxFailures {
			return false
		}
	}
	s.endAll(a.job, []*answer{a}, Failed, refused)
	return true
}

// countAdmission counts an admission, and the first of a request as its prompt.
func (s *Scheduler) countAdmission(a *answer) {
	first := a.job.admitted == nil
	if first {
		a.job.admitted = &Reuse{a.sequence.Reused, a.sequence.Onboarded}
	}
	s.count(func(c *Counters) {
		c.OnboardedPages += int64(a.sequence.Onboarded)
		if !first {
			c.Readmissions++
			return
		}
		c.Prompts++
		c.PromptTokens += int64(a.sequence.Prompt)
		c.ReusedTokens += int64(a.sequence.Reused)
	})
}

// maxFailures bounds how often the work of a request is done again in a row after
// failures that are not its own.
const maxFailures = 8

// fatal tells errors that the engine does not come back from.
func fatal(err error) bool {
	return errors.Is(err, messages.ErrFailed) || errors.Is(err, messages.ErrClosed)
}

// transient tells errors after which the same work can be done again.
func transient(err error) bool {
	return errors.Is(err, messages.ErrInternal) || errors.Is(err, messages.ErrBusy) ||
		errors.Is(err, messages.ErrSequenceLost)
}

// preempt makes the youngest sequence wait again, first in the queue, so that others
// find pages.
func (s *Scheduler) preempt(ctx context.Context) {
	s.count(func(c *Counters) { c.Preemptions++ })
	s.withdraw(ctx, s.running[len(s.running)-1])
	s.full = true
}

// withdraw takes a sequence out of the engine and puts its choice at the front of the
// queue, with what it has generated as a part of its prompt.
func (s *Scheduler) withdraw(ctx context.Context, a *answer) {
	_ = s.runner.Release(ctx, a.sequence) // it may be lost
	a.sequence = nil
	s.running = slices.DeleteFunc(s.running, func(r *answer) bool { return r == a })
	s.waiting = slices.Insert(s.waiting, 0, a)
	if a.generated() > 0 {
		s.separate(a, 1)
	}
}

// separate makes the other choices of a request wait, from a place in the queue on, as
// sequences of their own: the one that they were to be forked from goes another way.
func (s *Scheduler) separate(a *answer, place int) {
	if a.forked {
		return
	}
	a.forked = true
	for choice := 1; choice < a.Choices; choice++ {
		s.waiting = slices.Insert(s.waiting, place+choice-1, newAnswer(a.job, choice))
	}
}

// again repeats the work of sequences whose step has failed.
func (s *Scheduler) again(ctx context.Context, batch []*answer, err error) error {
	if fatal(err) {
		return err
	}
	for i := len(batch) - 1; i >= 0; i-- { // the oldest is first in the queue then
		a := batch[i]
		if a.ended {
			continue // releaseEnded follows
		}
		s.count(func(c *Counters) { c.Retries++ })
		a.failures++
		s.withdraw(ctx, a)
		if a.failures > maxFailures {
			s.endAll(a.job, s.waiting, Failed, err)
			s.endAll(a.job, s.running, Failed, err)
			s.waiting = slices.DeleteFunc(s.waiting, func(a *answer) bool { return a.ended })
		}
	}
	return s.releaseEnded(ctx)
}
