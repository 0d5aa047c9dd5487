package script

import (
	"errors"
	"slices"

	"github.com/kvactor/kvactor/internal/host"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

type admitRequest struct{ admitLine }

// do handles one admission as a batch of one, but sends it by the engine's method for a single one.
func (q *admitRequest) do(p *player) (any, error) {
	a := p.admit([]admitLine{q.admitLine},
		func(rs []messages.AdmitRequest) ([]messages.Admitted, error) {
			admitted, err := p.engine.Admit(p.ctx, rs[0])
			admitted.Err = errors.Join(admitted.Err, err)
			return []messages.Admitted{admitted}, nil
		})
	return a[0].answer, a[0].err
}

type admitBatchRequest struct {
	Requests []admitLine `json:"requests"`
}

func (q *admitBatchRequest) do(p *player) (any, error) {
	results := resultsAnswer{done("admit_batch"), []any{}}
	for _, a := range p.admit(q.Requests,
		func(rs []messages.AdmitRequest) ([]messages.Admitted, error) {
			return p.engine.AdmitBatch(p.ctx, rs)
		}) {
		if a.err != nil {
			results.Results = append(results.Results, failed("admit", a.err))
		} else {
			results.Results = append(results.Results, a.answer)
		}
	}
	return results, nil
}

// admission is one admission on its way through a line.
type admission struct {
	line    admitLine
	request messages.AdmitRequest
	reply   messages.Admitted
	s       *sequence // once it is in
	answer  admitAnswer
	err     error
}

// admit checks the admissions of a line in order, sends the valid ones to the
// engine, computes and commits their prompts, and answers all of them.
func (p *player) admit(
	lines []admitLine, call func([]messages.AdmitRequest) ([]messages.Admitted, error),
) []*admission {
	all := make([]*admission, len(lines))
	taken := make(map[string]bool) // by valid requests of this batch
	var sent []*admission
	var requests []messages.AdmitRequest
	for i, line := range lines {
		a := &admission{line: line}
		all[i] = a
		if a.err = p.checkAdmission(a, taken); a.err == nil {
			taken[line.Seq] = true
			sent, requests = append(sent, a), append(requests, a.request)
		}
	}
	if len(sent) == 0 {
		return all
	}
	replies, err := call(requests)
	for i, a := range sent {
		if a.err = err; err != nil {
			continue
		}
		if a.reply, a.err = replies[i], replies[i].Err; a.err == nil {
			a.s = p.started(a)
		}
	}
	p.prefill(sent)
	for _, a := range sent {
		p.finish(a)
	}
	return all
}

// checkAdmission checks values, then the name, then the length. What is left for the
// engine is pages.
func (p *player) checkAdmission(a *admission, taken map[string]bool) error {
	var err error
	if a.request, err = a.line.value("admit"); err != nil {
		return err
	}
	if a.request.Tokens != nil {
		if err := p.engine.Validate(a.request); err != nil {
			return err
		}
	}
	if taken[a.line.Seq] {
		return duplicate(a.line.Seq)
	}
	if err := p.vacant(a.line.Seq); err != nil {
		return err
	}
	if err := p.tooLong("admit", a.line.Tokens.length()); err != nil {
		return err
	}
	if a.request.Tokens == nil { // max_seq_len is larger still than what is written out
		return refusals.New(messages.ErrTooLong, "admit: more than %d tokens", maxWritten)
	}
	return nil
}

// started is the host's view of a sequence just admitted.
func (p *player) started(a *admission) *sequence {
	r := &a.request
	namespace := r.Namespace
	namespace.Weights = p.weights
	chains := host.Chains(messages.Prefix{Namespace: namespace, Tokens: r.Tokens,
		Multimodal: r.Multimodal})
	s := &sequence{
		id: a.reply.Sequence, prompt: len(r.Tokens), chunk: r.ChunkTokens,
		manual:   or(a.line.Prefill, "auto") == "manual",
		computed: a.reply.ReusedTokens, written: a.reply.ReusedTokens, stated: a.reply.ReusedTokens,
		checkpoints: slices.Clone(a.reply.Checkpoints),
		ready:       a.reply.Ready, beams: [][]host.Chain{chains},
	}
	for range r.BeamWidth - 1 {
		s.beams = append(s.beams, append([]host.Chain(nil), chains...))
	}
	return s
}

// prefill computes and commits the prompts of what was admitted and is not the
// script's to commit. Prompts that fit into one commit go together, as one
// engine step. Chunks and checkpoints take pages when they are committed: a batch
// with some goes sequence by sequence, so that the order of what is taken and given
// back is that of the batch.
func (p *player) prefill(admissions []*admission) {
	var now []*admission
	chunked := false
	for _, a := range admissions {
		if a.err == nil && !a.s.manual {
			now = append(now, a)
			chunked = chunked || a.s.chunk > 0 || len(a.s.checkpoints) > 0
		}
	}
	if !chunked {
		p.computePrompts(now)
		return
	}
	for _, a := range now {
		for a.err == nil && a.s.computed < a.s.prompt {
			p.computePrompts([]*admission{a})
		}
	}
}

// computePrompts commits the next part of each prompt.
func (p *player) computePrompts(admissions []*admission) {
	if len(admissions) == 0 {
		return
	}
	works := make([]work, len(admissions))
	for i, a := range admissions {
		works[i] = work{s: a.s, from: a.s.computed, to: p.nextCommit(a.s)}
	}
	results, err := p.commit("prefill", works, sameRequest)
	for i, a := range admissions {
		if a.err = err; err == nil {
			a.err = results[i].Err
		}
	}
}

// reach is how far the prompt's next commit may go: with chunks to the last
// block boundary within computed + chunk, never past the prompt.
func (p *player) reach(s *sequence) int {
	from := s.computed / p.tokensPerBlock * p.tokensPerBlock
	if s.chunk == 0 || s.computed >= s.prompt || s.prompt-from <= s.chunk {
		return s.length()
	}
	return from + s.chunk
}

// nextCommit is where the prompt's next commit ends: at the next checkpoint, or as
// far as it may reach.
func (p *player) nextCommit(s *sequence) int {
	for _, position := range s.checkpoints {
		if position > s.computed {
			return min(position, p.reach(s))
		}
	}
	return p.reach(s)
}

// finish gives the answer, and the name to the sequence. What the engine let in
// but could not keep, because an actor died meanwhile, is released.
func (p *player) finish(a *admission) {
	if a.err == nil {
		a.answer = admitAnswer{head: done("admit"), Seq: a.line.Seq, ReusedTokens: a.reply.ReusedTokens,
			Why: a.reply.MissReason}
		a.answer.Tables, a.err = p.tablesOf(a.s)
	}
	if a.err != nil {
		if a.s != nil {
			// Its answer is the refusal; whether there was anything left to let
			// go does not matter.
			_, _ = p.engine.Release(p.ctx,
				[]messages.ReleaseStep{{Sequence: a.s.id, Discard: true, After: a.s.last}})
		}
		return
	}
	for i, pool := range p.engine.Pools() {
		r := a.reply.Reuse[i]
		if r.PartialReuse == "" {
			r.PartialReuse = messages.PartialNone
		}
		a.answer.Reuse = append(a.answer.Reuse, named[reuseAnswer]{pool.Name,
			reuseAnswer{r.Full, r.Partial, r.PartialReuse, r.Onboarded}})
	}
	if p.recurrent() {
		a.answer.statesAnswer = &statesAnswer{append([]int{}, a.reply.Checkpoints...),
			a.reply.AttentionTokens}
	}
	p.sequences[a.line.Seq] = a.s
}
