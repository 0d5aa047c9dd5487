package scheduler

import (
	"context"
	"errors"
	"slices"

	"github.com/kvactor/kvactor/cmd/demo/internal/model/runner"
	"github.com/kvactor/kvactor/messages"
)

// step runs one kernel over the running sequences.
func (s *Scheduler) step(ctx context.Context) error {
	batch, err := s.appendSampled(ctx)
	if err != nil {
		return err
	}
	batch = append(batch, s.prefills()...)
	if len(batch) == 0 {
		return s.stalled(ctx)
	}
	if err := s.runner.ComputeOnly(ctx, sequences(batch)...); err != nil {
		return s.again(ctx, batch, err)
	}
	s.count(func(c *Counters) {
		c.Steps++
		c.LargestBatch = max(c.LargestBatch, len(batch))
	})
	// Sampling comes before the commit: it decides how many drafts are committed. A
	// token that was sampled is right even if its sequence is lost then.
	for _, a := range batch {
		s.sampleRows(a)
	}
	lost, err := s.commit(ctx, batch)
	if err != nil {
		return s.again(ctx, batch, err)
	}
	if err := s.again(ctx, lost, messages.ErrSequenceLost); err != nil {
		return err
	}
	s.fork(ctx, batch)
	return s.releaseEnded(ctx)
}

func sequences(batch []*answer) []*runner.Sequence {
	out := make([]*runner.Sequence, len(batch))
	for i, a := range batch {
		out[i] = a.sequence
	}
	return out
}

// appendSampled appends the sampled token, and drafts, to the sequences whose prompts
// are computed, and gives those that found pages.
func (s *Scheduler) appendSampled(ctx context.Context) ([]*answer, error) {
	var decoding []*answer
	var tokens [][]messages.Token
	for _, a := range s.running {
		if a.prefilling() {
			continue
		}
		last := a.tokens[len(a.tokens)-1:]
		// A step gives one token more than it has drafts; none may go over a limit.
		most := min(s.config.Draft, a.New-a.generated()-1, s.runner.Config.MaxLen-len(a.tokens))
		decoding = append(decoding, a)
		tokens = append(tokens, append(last[:1:1], lookUp(a.tokens, most)...))
	}
	served, refused, err := s.append(ctx, decoding, tokens)
	if err != nil || len(refused) == 0 || s.config.Draft == 0 {
		return served, err
	}
	// Without drafts they may need no page.
	tokens = tokens[:0]
	for _, a := range refused {
		tokens = append(tokens, a.tokens[len(a.tokens)-1:])
	}
	more, _, err := s.append(ctx, refused, tokens)
	return append(served, more...), err
}

// append appends tokens to sequences. It gives those that were served, and those that
// found no pages.
func (s *Scheduler) append(
	ctx context.Context, batch []*answer, tokens [][]messages.Token,
) (served, refused []*answer, err error) {
	if len(batch) == 0 {
		return nil, nil, nil
	}
	errs, err := s.runner.Append(ctx, sequences(batch), tokens)
	if err != nil {
		return nil, nil, s.again(ctx, batch, err)
	}
	var lost []*answer
	for i, a := range batch {
		switch {
		case errs[i] == nil:
			a.appended, a.computed = len(tokens[i]), a.sequence.Computed()
			a.sequence.AllLogits = len(tokens[i]) > 1
			served = append(served, a)
		case errors.Is(errs[i], messages.ErrOutOfPages):
			refused = append(refused, a)
		default:
			lost = append(lost, a)
			err = errs[i]
		}
	}
	return served, refused, s.again(ctx, lost, err)
}

// prefills are the sequences that compute a chunk of their prompts, within the budget of
// a step.
func (s *Scheduler) prefills() []*answer {
	var out []*answer
	// The oldest go first, whole chunks only: a chunk ends at a block boundary, so that
	// its last block can be stored.
	budget := s.config.StepTokens
	for _, a := range s.running {
		if budget <= 0 {
			break
		}
		if !a.prefilling() {
			continue
		}
		left := a.sequence.Prompt - a.sequence.Computed()
		if chunk := s.runner.Config.Chunk; chunk > 0 {
			left = min(left, chunk)
		}
		budget -= left
		a.appended, a.computed = 0, a.sequence.Computed()
		out = append(out, a)
	}
	return out
}

// stalled makes room when no sequence can go on. One that stalls alone has outgrown the
// whole cache.
func (s *Scheduler) stalled(ctx context.Context) error {
	if len(s.running) > 1 {
		s.preempt(ctx)
		return nil
	}
	if len(s.running) == 1 {
		s.endAll(s.running[0].job, s.running, Failed, messages.ErrOutOfPages)
	}
	return s.releaseEnded(ctx)
}

// sampleRows samples the tokens of a step. Logits of a draft's position count as long as
// every draft before was what sampling chose.
func (s *Scheduler) sampleRows(a *answer) {
	a.accepted, a.failures = 0, 0
	rows := a.sequence.Logits
	if len(rows) == 0 {
		return // a chunk before the last
	}
	if a.appended == 0 && a.sequence.AllLogits {
		if rows = a.promptRows(rows); len(rows) == 0 {
			return // a chunk before the last
		}
	}
	if !a.started {
		a.started = true
		a.Sink.Started(*a.job.admitted)
	}
	drafts := a.sequence.Tokens[len(a.sequence.Tokens)-len(rows)+1:]
	generated := a.generated()
	for i, row := range rows {
		a.accepted = i + 1
		token := a.Sampling.sample(row, a.rng, a.past())
		s.take(a, token, row)
		if a.ended || i == len(drafts) || drafts[i] != token {
			break
		}
	}
	s.count(func(c *Counters) {
		c.GeneratedTokens += int64(a.generated() - generated)
		c.DraftedTokens += int64(len(drafts))
		c.AcceptedTokens += int64(a.accepted - 1)
	})
}

// promptRows tells the sink the logits of a chunk, but for those behind the last token of the
// prompt, which it returns: the first token is sampled from them.
func (a *answer) promptRows(rows [][]float32) (last [][]float32) {
	if a.sequence.Computed() == a.sequence.Prompt {
		rows, last = rows[:len(rows)-1], rows[len(rows)-1:]
		a.sequence.Logits = last // forks sample from them, too
	}
	if len(rows) > 0 {
		a.Sink.Prompt(a.computed, rows)
	}
	return last
}

// past is what comes before the next token.
func (a *answer) past() past {
	p := past{prompt: a.Tokens, generated: a.tokens[len(a.Tokens):]}
	if a.generated() < a.MinNew {
		p.banned = a.Stops
	}
	return p
}

// take adds a sampled token to a choice, or ends it.
func (s *Scheduler) take(a *answer, token messages.Token, row []float32) {
	a.tokens = append(a.tokens, token)
	stop := a.Stops[token]
	switch more := a.Sink.Token(a.choice, Sampled{token, row, stop}); {
	case stop, !more:
		a.end(Stopped, nil)
	case a.generated() >= a.New || len(a.tokens) >= s.runner.Config.MaxLen:
		a.end(Length, nil)
	}
}

// commit tells the engine what is computed and rewinds rejected drafts. It gives the
// sequences that are lost.
func (s *Scheduler) commit(ctx context.Context, batch []*answer) (lost []*answer, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	upTo := make([]int, len(batch))
	for i, a := range batch {
		if upTo[i] = a.sequence.Computed(); a.appended > 0 {
			upTo[i] = a.computed + a.accepted
		}
	}
	errs, err := s.runner.Commit(ctx, sequences(batch), upTo)
	if err != nil {
		return nil, err
	}
	var rejected []*answer
	var counts []int
	for i, a := range batch {
		if errs[i] != nil {
			lost = append(lost, a)
		} else if n := a.appended - a.accepted; a.appended > 0 && n > 0 {
			rejected, counts = append(rejected, a), append(counts, n)
		}
	}
	if len(rejected) == 0 {
		return lost, nil
	}
	errs, err = s.runner.Rewind(ctx, sequences(rejected), counts)
	if err != nil {
		return nil, err
	}
	for i, a := range rejected {
		if errs[i] != nil {
			lost = append(lost, a)
		}
	}
	return lost, nil
}

// fork makes the other choices of requests whose prompts are computed now: sequences
// that share the prompt's pages, and sample from the same logits.
func (s *Scheduler) fork(ctx context.Context, batch []*answer) {
	for _, a := range batch {
		if a.forked || a.sequence == nil || !a.started {
			continue
		}
		if a.Choices == 1 {
			a.forked = true
			continue
		}
		forks, err := s.runner.Fork(ctx, a.sequence, a.Choices-1)
		if err != nil {
			s.separate(a, 0) // no pages, or an actor failed: they compute the prompt themselves
			continue
		}
		a.forked = true
		for i, f := range forks {
			b := newAnswer(a.job, i+1)
			b.sequence = f
			s.running = append(s.running, b)
			s.sampleRows(b)
		}
	}
}

// releaseEnded ends the sequences of complete choices. What is computed of them stays
// in the cache.
func (s *Scheduler) releaseEnded(ctx context.Context) error {
	kept, ended := s.running[:0:0], s.running[:0:0]
	for _, a := range s.running {
		if a.ended {
			ended = append(ended, a)
		} else {
			kept = append(kept, a)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	s.running, s.full = kept, false
	err := s.runner.Release(ctx, sequences(ended)...)
	for _, a := range ended {
		s.complete(a.job)
	}
	if fatal(err) {
		return err
	}
	return nil // a lost sequence is released
}

// Lengths of the ends of a text that lookUp looks for, the longest first. One token
// alone says too little about the next.
const (
	longestMatch  = 4
	shortestMatch = 2
)

// lookUp drafts what comes behind a text, at most n tokens: what came behind the last
// earlier occurrence of its end. Texts that quote their prompts are drafted well, and
// the drafts cost nothing but the positions of a step.
func lookUp(text []messages.Token, n int) []messages.Token {
	if n <= 0 {
		return nil
	}
	for length := longestMatch; length >= shortestMatch; length-- {
		if len(text) <= length {
			continue
		}
		end := text[len(text)-length:]
		for at := len(text) - length - 1; at >= 0; at-- {
			if slices.Equal(text[at:at+length], end) {
				return text[at+length : min(at+length+n, len(text))]
			}
		}
	}
	return nil
}
