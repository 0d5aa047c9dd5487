package oracle

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Admit takes one sequence in.
func (o *Oracle) Admit(ctx context.Context, r messages.AdmitRequest) (messages.Admitted, error) {
	all, err := o.AdmitBatch(ctx, []messages.AdmitRequest{r})
	if err != nil {
		return messages.Admitted{}, err
	}
	if err := all[0].Err; err != nil {
		return messages.Admitted{}, err
	}
	return all[0], nil
}

// AdmitBatch takes sequences in; the refusal of one is in its answer.
func (o *Oracle) AdmitBatch(
	_ context.Context, requests []messages.AdmitRequest,
) ([]messages.Admitted, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Namespace.Weights = o.weights
	}
	o.fetcher.fetchBefore(requests)
	all := o.planner.plans(requests, o.cfg.MaxSeqLen)
	sequences := o.admission.carryOut(all)
	answers := make([]messages.Admitted, len(all))
	for i, pl := range all {
		if pl.err != nil {
			answers[i] = messages.Admitted{Err: pl.err}
			continue
		}
		o.admission.recognise(pl, sequences[i])
		answers[i] = o.admission.admitted(pl, sequences[i])
	}
	return answers, nil
}

// Append is one engine step: pages for all sequences in order, then commits,
// then what left its window is dropped.
func (o *Oracle) Append(
	_ context.Context, steps []messages.AppendStep,
) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	results := make([]messages.StepResult, len(steps))
	var accepted []progress
	seen := map[messages.SequenceID]bool{}
	for i, step := range steps {
		results[i].Sequence = step.Sequence
		s, err := o.steps.checkAppend(step, seen)
		if err == nil {
			seen[step.Sequence] = true
			err = o.steps.extend(s, step, use{o.clock.request, i}, &results[i])
		}
		if err != nil {
			results[i].Err, results[i].NewPages = err, nil
			continue
		}
		if step.Computed > s.computed {
			accepted = append(accepted, progress{s, step.Computed, s.last, &results[i], nil})
		}
	}
	o.steps.advance(accepted)
	return results, nil
}

// Commit tells what is computed. All steps store, then all drop what left their
// windows, then all take the pages of their next chunk.
func (o *Oracle) Commit(
	_ context.Context, steps []messages.CommitStep,
) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	results := make([]messages.StepResult, len(steps))
	var accepted []progress
	seen := map[messages.SequenceID]bool{}
	for i, step := range steps {
		results[i].Sequence = step.Sequence
		s, err := o.references.running(step.Sequence)
		if err == nil && seen[step.Sequence] {
			err = bad("sequence %v is in this request twice", step.Sequence)
		}
		if err == nil {
			err = o.steps.validCommit(s, step.Computed)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		seen[step.Sequence] = true
		results[i].NewPages = o.noPages()
		if step.Computed == s.computed {
			continue
		}
		if step.SeparateRequest {
			s.last = use{o.clock.request, i}
		}
		accepted = append(accepted, progress{s, step.Computed, s.last, &results[i], nil})
	}
	o.steps.advance(accepted)
	return results, nil
}

// Lookup tells what an admission of the same tokens would reuse, were there
// pages for it.
func (o *Oracle) Lookup(_ context.Context, q messages.Prefix) (messages.Found, error) {
	if err := o.begin(); err != nil {
		return messages.Found{}, err
	}
	if err := validPrompt(q.Namespace, q.Tokens, q.Multimodal); err != nil {
		return messages.Found{}, err
	}
	q = o.named(q)
	pl := o.planner.plans(
		[]messages.AdmitRequest{{Namespace: q.Namespace, Tokens: q.Tokens, Multimodal: q.Multimodal}},
		len(q.Tokens))[0]
	if pl.err != nil {
		// Refused with or without a copy: what counts is what is stored.
		o.planner.setMatch(pl, pl.wanted)
	}
	found := messages.Found{MatchedTokens: pl.match.tokens, AttentionTokens: pl.attention}
	for index := range pl.lead {
		for _, p := range o.pools {
			if s := pl.claims[p.id][index]; s != nil && s.device == nil {
				found.SecondaryTokens += o.tpb
				break
			}
		}
	}
	if b := pl.match.source; b != nil {
		for _, p := range o.attentionPools() {
			if b.at[p.id].device == nil {
				found.SecondaryTokens += pl.match.tokens % o.tpb
				break
			}
		}
	}
	found.PrimaryTokens = found.MatchedTokens - found.SecondaryTokens
	return found, nil
}
