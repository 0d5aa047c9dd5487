package oracle

import "github.com/kvactor/kvactor/messages"

// steps advances running sequences: tokens and pages are added, what is computed is
// stored, what left its window is dropped.
type steps struct {
	*layout
	references  *references
	memory      *memory
	offering    *offering
	checkpoints *checkpoints
	worth       *worth
}

// progress is a commit that was accepted.
type progress struct {
	sequence *sequence
	computed int
	use      use
	result   *messages.StepResult
	stays    []bool // by pool: what pins hold in host memory stays there
}

// validCommit refuses what goes backwards, past the tokens or the chunk, or off
// a block boundary before the prompt's end.
func (st *steps) validCommit(s *sequence, computed int) error {
	switch {
	case computed < s.computed:
		return bad("commit of %d tokens after %d", computed, s.computed)
	case computed > s.length():
		return bad("commit of %d tokens of %d", computed, s.length())
	case computed == s.computed || !s.prefilling():
		return nil
	case computed < s.prompt && computed%st.tpb != 0:
		return bad("commit of %d tokens, before the prompt's end and off a block boundary", computed)
	case s.chunk > 0 && computed > st.target(s):
		return bad("commit of %d tokens, past the chunk that ends at %d", computed, st.target(s))
	}
	return nil
}

// advance does accepted commits: stores, drops, chunks.
func (st *steps) advance(accepted []progress) {
	st.keepReserves(accepted)
	for _, c := range accepted {
		st.offering.store(c.sequence, span{c.sequence.computed / st.tpb * st.tpb,
			c.computed / st.tpb * st.tpb}, atCommit, c.stays)
	}
	st.worth.appraise()
	for _, c := range accepted {
		st.checkpoints.makeCheckpoints(c)
		st.worth.appraise()
	}
	for _, c := range accepted {
		if st.statesAlone() {
			c.sequence.passRetention(c.computed, st.tpb)
		}
	}
	chunked := map[*sequence]bool{}
	for _, c := range accepted {
		s := c.sequence
		chunked[s] = s.chunk > 0 && s.prefilling()
		st.dropLeft(c)
	}
	for _, c := range accepted {
		if !chunked[c.sequence] {
			continue
		}
		for _, p := range st.attentionPools() {
			st.takeChunk(p, c)
		}
	}
}

// validRelease refuses a release whose commit is wrong.
func (st *steps) validRelease(s *sequence, step *messages.ReleaseStep) error {
	switch {
	case step.Computed == 0:
		return nil
	case step.Discard:
		return bad("a release that commits and discards")
	}
	return st.validCommit(s, step.Computed)
}

// dropLeft makes the tokens of a commit computed, and drops what leaves its window.
func (st *steps) dropLeft(c progress) {
	s := c.sequence
	s.computed = c.computed
	for _, p := range st.pools {
		for _, table := range s.tables[p.id] {
			for index := range table {
				if st.left(p, index, s.computed) {
					st.memory.drop(p, table, index, c.use)
				}
			}
		}
	}
}

// keepReserves tells in which pools a chunked prefill's pages may not become
// those of a pin: no page is to spare for the blocks of its commit.
func (st *steps) keepReserves(accepted []progress) {
	for _, p := range st.pools {
		spared := 0
		for i := range accepted {
			c := &accepted[i]
			if c.stays == nil {
				c.stays = make([]bool, len(st.pools))
			}
			blocks := c.computed/st.tpb - c.sequence.computed/st.tpb
			if !c.sequence.coveredByReserve(p, c.sequence.reused) {
				continue
			}
			if c.stays[p.id] = st.references.available(p, nil)-spared < blocks; !c.stays[p.id] {
				spared += blocks
			}
		}
	}
}

// takeChunk takes the pages up to where the next commit may reach.
func (st *steps) takeChunk(p *pool, c progress) {
	s := c.sequence
	for len(s.tables[p.id][0]) < ceil(st.target(s), st.tpb) {
		pg := st.memory.take(p, s.namespace.Salt)
		for beam := range s.tables[p.id] {
			s.tables[p.id][beam] = append(s.tables[p.id][beam], pg)
		}
		c.result.NewPages[p.id] = append(c.result.NewPages[p.id], numberOf(pg))
	}
}
