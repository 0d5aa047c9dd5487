package serve

import (
	"context"
	"slices"
	"time"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/messages"
)

// computeStep runs one kernel over the batch: it checks what was reused, then
// writes a chunk of each prefill and the last token of each answer.
func (s *Server) computeStep(ctx context.Context) error {
	budget := s.config.StepTokens
	lasts := time.Duration(0)
	s.lengths = s.lengths[:0]
	step := &s.compute.Step
	for _, q := range s.running {
		step.Waits = append(step.Waits, q.ready...)
		q.ready = q.ready[:0]
		if q.reused > 0 {
			step.Reads = append(step.Reads, host.Span{Chains: q.links, To: q.reused, Table: q.tables})
			q.reused = 0
		}
		if !q.prefilling() {
			if n := len(q.request.Tokens); n > q.computed && q.answered > 0 {
				q.next = n
				step.Writes = append(step.Writes, q.span())
				s.lengths = append(s.lengths, n)
			}
			continue
		}
		q.next = s.chunkEnd(q, budget)
		budget -= q.next - q.computed
		if q.next > q.computed {
			step.Writes = append(step.Writes, q.span())
			lasts += cost.Prefill(&s.config.Model, &s.config.GPU, cost.Span{From: q.computed, To: q.next})
		}
	}
	lasts += cost.Decode(&s.config.Model, &s.config.GPU, s.lengths)
	return s.compute.Run(ctx, max(lasts, s.config.GPU.Step))
}

// span is what the step computes of a sequence.
func (q *sequence) span() host.Span {
	return host.Span{Chains: q.links, From: q.computed, To: q.next, Table: q.tables}
}

// chunkEnd is how far the prompt of a sequence gets in this step: to its end,
// or to a block boundary that the budget reaches.
func (s *Server) chunkEnd(q *sequence, budget int) int {
	if s.config.ChunkTokens > 0 {
		budget = min(budget, s.config.ChunkTokens)
	}
	if end := q.computed + budget; end < q.prompt {
		return max(q.computed, end/s.tokens*s.tokens)
	}
	if s.config.ChunkTokens > 0 {
		// The engine's chunks end at block boundaries, wherever the reuse ended.
		if reach := (q.computed + s.config.ChunkTokens) / s.tokens * s.tokens; reach < q.prompt {
			return reach
		}
	}
	return q.prompt
}

// commitPrefills tells the engine of the chunks that were computed.
func (s *Server) commitPrefills(ctx context.Context) error {
	s.commits, s.owners = s.commits[:0], s.owners[:0]
	for _, q := range s.running {
		if !q.prefilling() || q.next == q.computed {
			continue
		}
		s.commits = append(s.commits, messages.CommitStep{
			Sequence: q.id, Computed: q.next, After: s.compute.Last,
		})
		s.owners = append(s.owners, q)
	}
	if len(s.commits) == 0 {
		return nil
	}
	results, err := s.config.Rig.Commit(ctx, s.commits)
	if err != nil {
		return err
	}
	for i, q := range s.owners {
		if refused := results[i].Err; refused != nil {
			if q.lost = lost(refused); !q.lost {
				return refused
			}
			continue
		}
		q.computed = q.next
		if err := s.take(ctx, q, &results[i]); err != nil {
			return err
		}
		if !q.prefilling() && q.answered == 0 {
			q.request.Outcome.First = s.Now()
			s.totals.Wait += s.Now() - q.request.Arrival
		}
	}
	return nil
}

// take adds the pages of a step to the sequence's tables.
func (s *Server) take(ctx context.Context, q *sequence, step *messages.StepResult) error {
	blocks := (len(q.request.Tokens) + s.tokens - 1) / s.tokens
	if !q.grow(step, blocks) {
		return nil
	}
	tables, err := s.config.Rig.TablesOf(ctx, q.id)
	if err != nil {
		return err
	}
	for p, beams := range tables {
		q.tables[p] = append(q.tables[p][:0], beams[0]...)
	}
	return nil
}

// appendSampled gives each sequence its sampled token, and makes room when none
// can go on.
func (s *Server) appendSampled(ctx context.Context) error {
	stalled, err := s.appendBatch(ctx)
	if err != nil || stalled < len(s.running) {
		return err
	}
	if stalled > 1 {
		return s.preempt(ctx)
	}
	s.config.Rig.Door.Lock()
	defer s.config.Rig.Door.Unlock()
	if s.config.Rig.Running.Load() > 1 {
		return s.preempt(ctx)
	}
	// Others may have released pages since: what it gets now reports whether it has
	// outgrown the whole engine.
	stalled, err = s.appendBatch(ctx)
	if err != nil || stalled == 0 {
		return err
	}
	q, err := s.withdraw(ctx)
	if err != nil {
		return err
	}
	return s.giveUp(q)
}

// appendBatch gives each sequence the token it has sampled, in one call for the
// whole batch, and commits the token that was computed for it. It counts those
// that found no page.
func (s *Server) appendBatch(ctx context.Context) (stalled int, err error) {
	s.appends, s.owners = s.appends[:0], s.owners[:0]
	s.sampled = slices.Grow(s.sampled[:0], len(s.running))[:len(s.running)]
	for i, q := range s.running {
		if q.prefilling() || q.complete() || q.lost {
			continue
		}
		s.sampled[i][0] = q.request.Sample(q.answered)
		s.appends = append(s.appends, messages.AppendStep{
			Sequence: q.id, Tokens: s.sampled[i][:], Computed: q.next, After: s.compute.Last,
		})
		s.owners = append(s.owners, q)
	}
	if len(s.appends) == 0 {
		return 0, nil
	}
	results, err := s.config.Rig.Append(ctx, s.appends)
	if err != nil {
		return 0, err
	}
	for i, q := range s.owners {
		if refused := results[i].Err; refused != nil {
			if q.lost = lost(refused); q.lost {
				continue
			}
			if !mayPass(refused) {
				return stalled, refused
			}
			stalled++
			continue
		}
		q.computed = q.next
		q.answered++
		s.totals.AnswerTokens++
		q.request.Tokens = append(q.request.Tokens, s.appends[i].Tokens[0])
		q.link()
		if err := s.take(ctx, q, &results[i]); err != nil {
			return stalled, err
		}
	}
	return stalled, nil
}

// preempt makes the youngest sequence wait again, at the front, with the answer
// so far as a part of its prompt.
func (s *Server) preempt(ctx context.Context) error {
	q, err := s.withdraw(ctx)
	if err != nil {
		return err
	}
	s.totals.Preemptions++
	s.waiting = slices.Insert(s.waiting, 0, q)
	s.crowded, s.alone = true, true
	return nil
}

// withdraw takes the youngest sequence out of the engine.
func (s *Server) withdraw(ctx context.Context) (*sequence, error) {
	q := s.running[len(s.running)-1]
	s.running = s.running[:len(s.running)-1]
	s.releases = append(s.releases[:0], messages.ReleaseStep{Sequence: q.id, After: s.compute.Last})
	return q, s.releaseAll(ctx)
}

// releaseAnswered releases the sequences whose answers are complete.
func (s *Server) releaseAnswered(ctx context.Context) error {
	s.releases = s.releases[:0]
	for _, q := range s.running {
		if q.complete() {
			s.releases = append(s.releases, messages.ReleaseStep{Sequence: q.id, After: s.compute.Last})
		}
	}
	if len(s.releases) == 0 {
		return nil
	}
	if err := s.releaseAll(ctx); err != nil {
		return err
	}
	s.crowded = false
	kept := s.running[:0]
	for _, q := range s.running {
		if !q.complete() {
			kept = append(kept, q)
			continue
		}
		s.totals.Requests++
		if err := s.finish(q); err != nil {
			return err
		}
	}
	clear(s.running[len(kept):])
	s.running = kept
	return nil
}

func (s *Server) releaseAll(ctx context.Context) error {
	results, err := s.config.Rig.Release(ctx, s.releases)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil && !lost(r.Err) { // what is lost has been released
			return r.Err
		}
	}
	s.config.Rig.Running.Add(-int64(len(s.releases)))
	return nil
}
