package oracle

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// TablesOf reads the page tables of a sequence.
func (o *Oracle) TablesOf(_ context.Context, id messages.SequenceID) (messages.Tables, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	s, err := o.references.running(id)
	if err != nil {
		return nil, err
	}
	return tablesOf(s), nil
}

// RewindOne drops the last tokens of a sequence.
func (o *Oracle) RewindOne(_ context.Context, id messages.SequenceID, tokens int) error {
	if err := o.begin(); err != nil {
		return err
	}
	if tokens < 1 {
		return bad("rewind of %d tokens", tokens)
	}
	s, err := o.references.running(id)
	if err != nil {
		return err
	}
	if s.width() > 1 {
		return refusals.New(messages.ErrNotSupported, "rewind with beam_width above 1")
	}
	if generated := s.length() - s.prompt; tokens > generated {
		return bad("rewind of %d tokens: %d are generated", tokens, generated)
	}
	length := s.length() - tokens
	if o.recurrent() && length < s.computed {
		return refusals.New(messages.ErrNotSupported,
			"rewind below the %d computed tokens with recurrent layers", s.computed)
	}
	computed := min(s.computed, length)
	for _, p := range o.attentionPools() {
		for index, pg := range s.tables[p.id][0] {
			if pg == nil && o.needs(p, index, computed) {
				return refusals.New(messages.ErrNotSupported,
					"rewind of %d tokens needs a page that left the window of pool %s", tokens, p.Name)
			}
		}
	}
	u := use{request: o.clock.request}
	s.last = u
	for _, p := range o.attentionPools() {
		table := s.tables[p.id][0]
		for index := len(table) - 1; index >= ceil(length, o.tpb); index-- {
			o.memory.drop(p, table, index, u)
		}
		s.tables[p.id][0] = table[:ceil(length, o.tpb)]
	}
	s.keys[0] = s.keys[0][:length]
	s.computed = computed
	return nil
}

// Fork makes new sequences that share all pages of others, step by step.
func (o *Oracle) Fork(_ context.Context, steps []messages.ForkStep) ([]messages.ForkResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var results []messages.ForkResult
	place := 0
	for _, step := range steps {
		ids, err := o.fork(step.Sequence, step.Count, place)
		results = append(results, messages.ForkResult{Sequence: step.Sequence, Forks: ids, Err: err})
		place += len(ids)
	}
	return results, nil
}

// Release ends sequences: what they computed and still hold is offered once
// more, then their pages are dropped.
func (o *Oracle) Release(
	_ context.Context, steps []messages.ReleaseStep,
) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	var results []messages.StepResult
	for i, step := range steps {
		r := messages.StepResult{Sequence: step.Sequence}
		s, err := o.references.running(step.Sequence)
		if err == nil {
			err = o.steps.validRelease(s, &step)
		}
		if err != nil {
			r.Err = err
		} else {
			if !step.Discard {
				before := s.computed
				s.computed = max(before, step.Computed)
				o.offering.store(s, span{0, s.computed}, atRelease, nil)
				o.checkpoints.handOver(s)
				if s.computed > before {
					o.steps.dropLeft(progress{sequence: s, computed: s.computed, use: s.last})
				}
			}
			for _, p := range o.pools {
				for _, table := range s.tables[p.id] {
					for index := len(table) - 1; index >= 0; index-- {
						o.memory.drop(p, table, index, use{o.clock.request, i})
					}
				}
			}
			o.references.sequences = slices.DeleteFunc(o.references.sequences,
				func(t *sequence) bool { return t == s })
		}
		results = append(results, r)
	}
	return results, nil
}

// fork makes new sequences that share all pages of one; so many have been made before
// in the request.
func (o *Oracle) fork(id messages.SequenceID, n, before int) ([]messages.SequenceID, error) {
	if n < 1 {
		return nil, bad("fork into %d sequences", n)
	}
	s, err := o.references.running(id)
	if err != nil {
		return nil, err
	}
	if s.width() > 1 {
		return nil, refusals.New(messages.ErrNotSupported, "fork with beam_width above 1")
	}
	if s.prefilling() {
		return nil, bad("fork before the prompt is computed")
	}
	for _, p := range o.statePools() {
		if available := max(0, o.references.available(p, nil)); n > available {
			return nil, refusals.OutOfPages(p.Name, n, available)
		}
	}
	var ids []messages.SequenceID
	for i := range n {
		f := *s
		o.references.last++
		f.id = o.references.last
		f.last = use{o.clock.request, before + i}
		f.retentionDone = map[string]bool{}
		for k := range s.retentionDone {
			f.retentionDone[k] = true
		}
		f.keys = [][]symbol{slices.Clone(s.keys[0])}
		f.tables = nil
		for _, beams := range s.tables {
			f.tables = append(f.tables, [][]*page{slices.Clone(beams[0])})
		}
		for _, p := range o.statePools() {
			f.tables[p.id][0][0] = o.memory.take(p, f.namespace.Salt)
		}
		o.references.sequences = append(o.references.sequences, &f)
		ids = append(ids, f.id)
	}
	return ids, nil
}
