package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// addBeams gives each further beam its own references to the prompt's pages. A
// prefill in chunks has one table until its prompt is computed: until then the
// beams hold the same pages, and a reserve stands for them.
func (c *Coordinator) addBeams(s *sequence, beams int) {
	if beams < 2 {
		return
	}
	if s.chunk > 0 {
		s.fan = beams
		return
	}
	for p := range c.Pools {
		c.claimBeams(p, s.pools[p].tables[0], beams)
	}
	c.copyBeams(s, beams)
}

// claimBeams adds the references of all beams but the first.
func (c *Coordinator) claimBeams(p int, pages []messages.PageID, beams int) {
	for range beams - 1 {
		c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
	}
}

// copyBeams makes all beams from the first.
func (c *Coordinator) copyBeams(s *sequence, beams int) {
	tokens := s.tokens[0]
	s.tokens = reopen(s.tokens[:1], beams)
	s.tokens[0] = tokens
	for b := 1; b < beams; b++ {
		s.tokens[b] = append(s.tokens[b], tokens...)
	}
	for p := range c.Pools {
		table := s.pools[p].tables[0]
		s.pools[p].tables = reopen(s.pools[p].tables, beams)
		s.pools[p].tables[0] = table
		for b := 1; b < beams; b++ {
			s.pools[p].tables[b] = append(s.pools[p].tables[b], table...)
		}
	}
}

// fanOut adds the references of the beams when a commit computes the prompt, to
// the pages that stay in their windows. The tables follow when it is settled.
func (c *Coordinator) fanOut(it *step) {
	s := it.sequence
	if s.fan < 2 || it.computed < s.prompt {
		return
	}
	for p := range c.Pools {
		table := s.pools[p].tables[0]
		from, to := c.leaving(s, p, it.computed)
		if from >= to {
			from, to = len(table), len(table)
		}
		c.claimBeams(p, table[:from], s.fan)
		c.claimBeams(p, table[to:], s.fan)
	}
}
