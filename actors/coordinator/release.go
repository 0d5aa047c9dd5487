package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// releasing is the state of a Release: pages that may cache something already
// are looked at, all computed blocks are offered once more, then every page is
// dropped. Those are the pages of trailing partial blocks, and all pages of
// forks: one that was rewound may have offered less of the same page. Forks
// whose trailing blocks lie in one page go one after the other, in waves: a page
// caches one block, the first offered.
type releasing struct {
	items  []leaving
	served int // items of the waves before
	wave   int // items in this wave and those before
}

// leaving is one sequence that is released.
type leaving struct {
	sequence *sequence
	request  *messages.ReleaseStep
	inspect  bool
	lost     bool // it offers nothing
	to       int  // tokens to offer
	// offered, if anything was looked at, are by pool the pages that cache nothing
	// yet: all that the sequence offers.
	offered [][]messages.PageID
}

// release serves a Release.
func (c *Coordinator) release(r *messages.Release) {
	r.Results = c.results(r.Results, len(r.Steps))
	rel := &c.releasing
	rel.items, rel.served, rel.wave = rel.items[:0], 0, 0
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		result.Sequence = request.Sequence
		s, err := c.findStep(request.Sequence)
		if err != nil {
			result.Err = err
			c.releaseLost(request)
			continue
		}
		s.stepped = c.stamp
		s.use = c.nextUse()
		it := leaving{sequence: s, request: request, to: s.computed}
		if !c.Partial {
			it.to = s.computed / c.TokensPerBlock * c.TokensPerBlock
		}
		if last := it.to / c.TokensPerBlock; it.to%c.TokensPerBlock != 0 && last < s.sealed {
			it.inspect = true
		}
		if s.forked || it.inspect {
			it.offered = make([][]messages.PageID, len(c.Pools))
		}
		rel.items = append(rel.items, it)
	}
	c.releaseWave()
}

// releaseWave serves the items up to the first that shares its trailing block
// with one of the same wave.
func (c *Coordinator) releaseWave() {
	rel := &c.releasing
	rel.served = rel.wave
	c.resetWork()
	asked := false
	for ; rel.wave < len(rel.items) && !c.joined(rel.wave); rel.wave++ {
		it := &rel.items[rel.wave]
		last := it.to / c.TokensPerBlock
		for p := range c.Pools {
			table := it.sequence.pools[p].tables[0]
			if it.sequence.forked && !it.lost {
				c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[:last]})
				asked = true
			}
			if it.inspect {
				c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[last : last+1]})
				asked = true
			}
		}
	}
	if asked {
		c.sendPools((*Coordinator).releaseInspected)
		return
	}
	c.releaseStore()
}

// joined tells whether the page of an item's trailing block is also held by an
// earlier item of the wave, or the other way round.
func (c *Coordinator) joined(i int) bool {
	rel := &c.releasing
	for j := rel.served; j < i; j++ {
		if c.trails(&rel.items[i], &rel.items[j]) || c.trails(&rel.items[j], &rel.items[i]) {
			return true
		}
	}
	return false
}

// trails tells whether the page of an item's trailing block is held by another.
func (c *Coordinator) trails(it, other *leaving) bool {
	if !it.inspect {
		return false
	}
	last := it.to / c.TokensPerBlock
	for p := range c.Pools {
		table := other.sequence.pools[p].tables[0]
		if page := it.sequence.pools[p].tables[0][last]; last < len(table) && page != messages.NoPage && table[last] == page {
			return true
		}
	}
	return false
}

// releaseLost lets a lost sequence go, which has said so now. It has held its
// pages until here: its host did not know, and kernels may have been launched on
// them.
func (c *Coordinator) releaseLost(request *messages.ReleaseStep) {
	s := c.sequences.lost(request.Sequence)
	if s == nil || s.stepped == c.stamp {
		return
	}
	s.stepped, s.use = c.stamp, c.nextUse()
	c.releasing.items = append(c.releasing.items, leaving{sequence: s, request: request, lost: true})
}

// releaseInspected leaves out, pool by pool, what lies in pages that cache a
// block already: a page caches at most one.
func (c *Coordinator) releaseInspected() {
	c.pooled()
	at := make([]int, len(c.Pools))
	for i := range c.inWave() {
		it := &c.inWave()[i]
		if it.offered == nil {
			continue
		}
		last := it.to / c.TokensPerBlock
		for p := range c.Pools {
			ops := c.work[p].Ops
			it.offered[p] = slices.Clone(it.sequence.pools[p].tables[0])
			if it.sequence.forked {
				copy(it.offered[p], unstored(&ops[at[p]]))
				at[p]++
			}
			if it.inspect {
				copy(it.offered[p][last:], unstored(&ops[at[p]]))
				at[p]++
			}
		}
	}
	c.releaseStore()
}

// unstored are the inspected pages, NoPage for those that cache something.
func unstored(op *protocol.PoolOp) []messages.PageID {
	pages := slices.Clone(op.Pages)
	for b := range pages {
		if op.Shares[b].Stored {
			pages[b] = messages.NoPage
		}
	}
	return pages
}

// releaseStore offers what is computed.
func (c *Coordinator) releaseStore() {
	c.resetApply()
	for i := range c.inWave() {
		it := &c.inWave()[i]
		s := it.sequence
		if !it.request.Discard && !it.lost {
			if k := c.store(s, 0, it.to); k >= 0 && it.offered != nil {
				c.apply.Stores[k].Tables = it.offered
			}
		}
		if s.symbols != nil {
			c.letSymbols(s)
			s.mute = true // should a failure leave it running, it has no symbols to store with
		}
	}
	c.apply.ReleasedSymbols = append(c.apply.ReleasedSymbols, c.letGo...)
	c.letGo = c.letGo[:0]
	if c.applyNeeded() {
		c.extra = (*Coordinator).releasePages
		c.sendApply((*Coordinator).released)
		return
	}
	c.resetWork()
	c.resetMove()
	c.releasePages()
	c.after = (*Coordinator).released
	c.sendEffects()
}

// releasePages drops all pages from tail to head.
func (c *Coordinator) releasePages() {
	for i := range c.inWave() {
		it := &c.inWave()[i]
		s := it.sequence
		for p := range s.pools {
			for _, table := range s.pools[p].tables {
				if !it.request.After.IsZero() {
					c.markReleased(s, p, table, it.request.After)
				} else {
					c.markRead(s, p, table)
				}
				c.dropRange(s, p, table, 0)
			}
		}
	}
}

// markReleased tells the offloader that kernels of the host use the pages
// until the ticket has passed: they may still write what is not committed.
func (c *Coordinator) markReleased(s *sequence, p int, table []messages.PageID, after messages.Ticket) {
	c.ordered = true
	written := min(s.computed/c.TokensPerBlock, len(table))
	c.move.Marks = append(c.move.Marks,
		protocol.Mark{Pool: messages.PoolID(p), Pages: table[:written], Ticket: after},
		protocol.Mark{Pool: messages.PoolID(p), Pages: table[written:], Write: true, Ticket: after})
}

// inWave is the items that are under way.
func (c *Coordinator) inWave() []leaving {
	return c.releasing.items[c.releasing.served:c.releasing.wave]
}

// released ends the sequences, after the last wave.
func (c *Coordinator) released() {
	if c.releasing.wave < len(c.releasing.items) {
		c.releaseWave()
		return
	}
	for i := range c.releasing.items {
		s := c.releasing.items[i].sequence
		for p := range s.pools {
			c.reserved[p] -= s.pools[p].reserve
		}
		c.sequences.end(s)
	}
	c.reply()
}
