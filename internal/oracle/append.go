package oracle

import (
	"context"
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// Append is one engine step: pages for all sequences in order, then commits,
// then what left its window is dropped.
func (o *Oracle) Append(_ context.Context, steps []messages.AppendStep) ([]messages.StepResult, error) {
	if err := o.begin(); err != nil {
		return nil, err
	}
	results := make([]messages.StepResult, len(steps))
	var accepted []progress
	seen := map[messages.SequenceID]bool{}
	for i, step := range steps {
		results[i].Sequence = step.Sequence
		s, err := o.checkAppend(step, seen)
		if err == nil {
			seen[step.Sequence] = true
			err = o.extend(s, step, use{o.request, i}, &results[i])
		}
		if err != nil {
			results[i].Err, results[i].NewPages = err, nil
			continue
		}
		if step.Computed > s.computed {
			accepted = append(accepted, progress{s, step.Computed, s.last, &results[i], nil})
		}
	}
	o.advance(accepted)
	return results, nil
}

// checkAppend refuses wrong values and names.
func (o *Oracle) checkAppend(step messages.AppendStep, seen map[messages.SequenceID]bool) (*sequence, error) {
	var tokens []messages.Token
	tokens = append(tokens, step.Tokens...)
	for _, b := range step.Beams {
		tokens = append(tokens, b.Token)
	}
	if err := validTokens(tokens); err != nil {
		return nil, err
	}
	if len(step.Tokens) > 0 && len(step.Beams) > 0 {
		return nil, bad("both tokens and beams")
	}
	s, err := o.running(step.Sequence)
	if err != nil {
		return nil, err
	}
	grown := s.length() + max(len(step.Tokens), min(1, len(step.Beams)))
	switch {
	case seen[step.Sequence]:
		return nil, bad("sequence %v is in this step twice", step.Sequence)
	case s.width() > 1 && len(step.Beams) != s.width(), s.width() == 1 && len(step.Beams) > 0:
		return nil, bad("%d beams where the width is %d", len(step.Beams), s.width())
	case s.prefilling():
		return nil, bad("append before the prompt is computed")
	case step.Computed < 0 || step.Computed > grown:
		return nil, bad("%d tokens computed of %d", step.Computed, grown)
	}
	for _, b := range step.Beams {
		if b.Parent < 0 || b.Parent >= s.width() {
			return nil, bad("parent %d of %d beams", b.Parent, s.width())
		}
	}
	return s, nil
}

// extend adds the tokens of a step to a sequence, or refuses and leaves it as
// it was.
func (o *Oracle) extend(s *sequence, step messages.AppendStep, u use, result *messages.StepResult) error {
	if n := s.length() + max(len(step.Tokens), min(1, len(step.Beams))); n > o.cfg.MaxSeqLen {
		return refusals.New(messages.ErrTooLong, "%d tokens are more than max_seq_len %d", n, o.cfg.MaxSeqLen)
	}
	before := *s
	if len(step.Beams) > 0 {
		o.follow(s, step.Beams)
	} else {
		s.keys = [][]symbol{append(slices.Clone(s.keys[0]), symbols(step.Tokens, nil)...)}
	}
	for _, p := range o.pool {
		need, available := o.growth(p, s), max(0, o.available(p, nil))
		if need > available {
			*s = before
			return refusals.OutOfPages(p.Name, need, available)
		}
	}
	o.dropReferences(&before, s, u)
	result.NewPages = o.noPages()
	for _, p := range o.pool {
		for beam := range s.keys {
			result.NewPages[p.id] = append(result.NewPages[p.id], o.grow(p, s, beam, u)...)
		}
	}
	s.last = u
	return nil
}

// follow gives each beam the tokens and pages of its parent, and its token.
func (o *Oracle) follow(s *sequence, beams []messages.BeamStep) {
	var keys [][]symbol
	tables := make([][][]*page, len(o.pool))
	for _, b := range beams {
		keys = append(keys, append(slices.Clone(s.keys[b.Parent]), symbol{id: b.Token}))
		for _, p := range o.pool {
			tables[p.id] = append(tables[p.id], slices.Clone(s.tables[p.id][b.Parent]))
		}
	}
	s.keys, s.tables = keys, tables
}

// dropReferences leaves uses where beams hold fewer references than before.
func (o *Oracle) dropReferences(before, after *sequence, u use) {
	for _, p := range o.pool {
		for _, table := range before.tables[p.id] {
			for _, pg := range table {
				if references(before, p, pg) > references(after, p, pg) {
					o.leave(p, pg, u)
				}
			}
		}
	}
}

// references is how many table entries of the sequence are the page.
func references(s *sequence, p *pool, pg *page) int {
	n := 0
	for _, table := range s.tables[p.id] {
		for _, entry := range table {
			if entry == pg {
				n++
			}
		}
	}
	return n
}

// growth counts the pages that the beams take in p, one after the other: copies
// of what others hold too, and new ones.
func (o *Oracle) growth(p *pool, s *sequence) int {
	if !p.attends() {
		return 0
	}
	n := 0
	gone := map[*page]int{} // references that beams before gave up
	for beam, table := range s.tables[p.id] {
		for index := s.computed / o.tpb; index < ceil(len(s.keys[beam]), o.tpb); index++ {
			if index >= len(table) {
				n++
				continue
			}
			pg := table[index]
			if pg.block != nil || len(o.holders(p, pg))-gone[pg] > 1 {
				n++
				gone[pg]++
			}
		}
	}
	return n
}

// grow makes the pages of one beam from the first token without KV on its own:
// what others hold is copied, what is missing is taken. It gives the pages
// taken, in block order.
func (o *Oracle) grow(p *pool, s *sequence, beam int, u use) []messages.PageID {
	taken := []messages.PageID{}
	if !p.attends() {
		return taken
	}
	var replaced []*page
	table := s.tables[p.id][beam]
	for index := s.computed / o.tpb; index < len(table); index++ {
		old := table[index]
		if old.block == nil && len(o.holders(p, old)) == 1 {
			continue
		}
		// The page is released when all copies have theirs: until then it is read.
		replaced = append(replaced, old)
		o.guarded[old] = true
		table[index] = o.take(p, s.namespace.Salt)
		taken = append(taken, numberOf(table[index]))
	}
	for _, old := range replaced {
		delete(o.guarded, old)
		o.leave(p, old, u)
	}
	for len(s.tables[p.id][beam]) < ceil(len(s.keys[beam]), o.tpb) {
		pg := o.take(p, s.namespace.Salt)
		s.tables[p.id][beam] = append(s.tables[p.id][beam], pg)
		taken = append(taken, numberOf(pg))
	}
	return taken
}
