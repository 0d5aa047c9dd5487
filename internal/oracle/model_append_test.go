package oracle

import (
	"slices"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// checkAppend refuses wrong values and names.
func (st *steps) checkAppend(
	step messages.AppendStep, seen map[messages.SequenceID]bool,
) (*sequence, error) {
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
	s, err := st.references.running(step.Sequence)
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
func (st *steps) extend(
	s *sequence, step messages.AppendStep, u use, result *messages.StepResult,
) error {
	if n := s.length() + max(len(step.Tokens), min(1, len(step.Beams))); n > st.cfg.MaxSeqLen {
		return refusals.New(messages.ErrTooLong, "%d tokens are more than max_seq_len %d", n,
			st.cfg.MaxSeqLen)
	}
	before := *s
	if len(step.Beams) > 0 {
		st.follow(s, step.Beams)
	} else {
		s.keys = [][]symbol{append(slices.Clone(s.keys[0]), symbols(step.Tokens, nil)...)}
	}
	for _, p := range st.pools {
		need, available := st.growth(p, s), max(0, st.references.available(p, nil))
		if need > available {
			*s = before
			return refusals.OutOfPages(p.Name, need, available)
		}
	}
	st.dropReferences(&before, s, u)
	result.NewPages = st.noPages()
	for _, p := range st.pools {
		for beam := range s.keys {
			result.NewPages[p.id] = append(result.NewPages[p.id], st.grow(p, s, beam, u)...)
		}
	}
	s.last = u
	return nil
}

// follow gives each beam the tokens and pages of its parent, and its token.
func (st *steps) follow(s *sequence, beams []messages.BeamStep) {
	var keys [][]symbol
	tables := make([][][]*page, len(st.pools))
	for _, b := range beams {
		keys = append(keys, append(slices.Clone(s.keys[b.Parent]), symbol{id: b.Token}))
		for _, p := range st.pools {
			tables[p.id] = append(tables[p.id], slices.Clone(s.tables[p.id][b.Parent]))
		}
	}
	s.keys, s.tables = keys, tables
}

// dropReferences leaves uses where beams hold fewer references than before.
func (st *steps) dropReferences(before, after *sequence, u use) {
	for _, p := range st.pools {
		for _, table := range before.tables[p.id] {
			for _, pg := range table {
				if before.entries(p, pg) > after.entries(p, pg) {
					st.memory.noteUse(p, pg, u)
				}
			}
		}
	}
}

// entries is how many table entries of the sequence are the page.
func (s *sequence) entries(p *pool, pg *page) int {
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
func (st *steps) growth(p *pool, s *sequence) int {
	if !p.attends() {
		return 0
	}
	n := 0
	gone := map[*page]int{} // references that beams before gave up
	for beam, table := range s.tables[p.id] {
		for index := s.computed / st.tpb; index < ceil(len(s.keys[beam]), st.tpb); index++ {
			if index >= len(table) {
				n++
				continue
			}
			pg := table[index]
			if pg.block != nil || len(st.references.holders(p, pg))-gone[pg] > 1 {
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
func (st *steps) grow(p *pool, s *sequence, beam int, u use) []messages.PageID {
	taken := []messages.PageID{}
	if !p.attends() {
		return taken
	}
	var replaced []*page
	table := s.tables[p.id][beam]
	for index := s.computed / st.tpb; index < len(table); index++ {
		old := table[index]
		if old.block == nil && len(st.references.holders(p, old)) == 1 {
			continue
		}
		// The page is released when all copies have theirs: until then it is read.
		replaced = append(replaced, old)
		st.references.guarded[old] = true
		table[index] = st.memory.take(p, s.namespace.Salt)
		taken = append(taken, numberOf(table[index]))
	}
	for _, old := range replaced {
		delete(st.references.guarded, old)
		st.memory.noteUse(p, old, u)
	}
	for len(s.tables[p.id][beam]) < ceil(len(s.keys[beam]), st.tpb) {
		pg := st.memory.take(p, s.namespace.Salt)
		s.tables[p.id][beam] = append(s.tables[p.id][beam], pg)
		taken = append(taken, numberOf(pg))
	}
	return taken
}
