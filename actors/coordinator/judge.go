package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// decideHow chooses takeover, copy or nothing for the source of item i.
func (c *Coordinator) decideHow(i int) {
	it, source := &c.admitting.items[i], &c.match.Items[i].Source
	it.how = messages.PartialNone
	if it.refused != nil || source.Block == protocol.NoBlock {
		return
	}
	unused := c.unreferenced(i)
	alone := unused && !source.HasChildren
	switch {
	case c.CopyOnPartial && alone && source.Stored < c.TokensPerBlock && source.Tokens == source.Stored && c.admitting.wishes.of(source.Block).n < 2:
		it.how = messages.PartialTakeover
	case c.CopyOnPartial:
		it.how = messages.PartialCopy
	case alone && c.admitting.wishes.of(source.Block).onlyFor(i):
		it.how = messages.PartialTakeover
	}
	c.noteSource(i, unused)
}

// unreferenced tells whether no sequence and no pin holds the source anywhere.
func (c *Coordinator) unreferenced(i int) bool {
	it, source := &c.admitting.items[i], &c.match.Items[i].Source
	for p := range c.Pools {
		if op := it.plans[p].inspect; op >= 0 {
			if share := c.work[p].Ops[op].Shares[0]; share.References > 0 || share.Pins > 0 {
				return false
			}
		} else if c.pins.count(p, source.Block) > 0 {
			return false
		}
	}
	return true
}

// noteSource counts the device pages of a source that are cached now: those
// that a takeover seizes, and those that no partial copy may be written to.
func (c *Coordinator) noteSource(i int, unused bool) {
	a := &c.admitting
	it, source := &a.items[i], &c.match.Items[i].Source
	for p := range c.Pools {
		op := it.plans[p].inspect
		if op < 0 {
			continue
		}
		page, _, _ := source.Pages[p].Page()
		share := c.work[p].Ops[op].Shares[0]
		cached := share.References == 0 && share.Pins == 0
		if it.how == messages.PartialTakeover && unused {
			a.seized[p]++
		}
		if it.how != messages.PartialNone {
			a.sources[p].add(page)
			a.sources[p].saw(page, cached)
		}
	}
}

// sheltered tells whether what the sequence takes in the pool is covered by
// its reserve.
func (c *Coordinator) sheltered(s *sequence, pool int) bool {
	return s.chunk > 0 && !c.Pools[pool].Full()
}

// shelterSource lets the reserve of the item under judgement stand for the pages
// that it takes over; until now they were claimed like others.
func (c *Coordinator) shelterSource(it *admission) {
	if it.how != messages.PartialTakeover {
		return
	}
	for p := range c.Pools {
		if it.plans[p].inspect >= 0 && c.sheltered(it.sequence, p) {
			c.admitting.seized[p]--
		}
	}
}

// judge goes through the items in order: each is admitted, with its pages
// promised, or refused, with its claims given back.
func (c *Coordinator) judge() {
	a := &c.admitting
	if a.purpose == toLookup {
		c.judgeLookup()
		return
	}
	for a.judging < len(a.items) {
		it := &a.items[a.judging]
		if it.refused != nil {
			a.judging++
			continue
		}
		if c.sourceFails(a.judging) {
			c.rematch((*Coordinator).judge)
			return
		}
		c.planItem(a.judging)
		c.shelterSource(it)
		if refusal, pool := c.lacking(it); refusal != nil {
			if c.mayWait(it) {
				c.park(refusal, pool)
			} else {
				c.refuse(it, refusal)
			}
			return
		}
		c.promise(a.judging)
		a.judging++
	}
	if a.purpose == toRehearse {
		c.rehearsed()
		return
	}
	c.take()
}

// sourceFails tells whether item i has a source but no way to reuse it: no
// takeover is allowed, or no page but a source is there for the copy.
func (c *Coordinator) sourceFails(i int) bool {
	it := &c.admitting.items[i]
	if c.match.Items[i].Source.Block == protocol.NoBlock || it.how == messages.PartialTakeover {
		return false
	}
	if it.how == messages.PartialNone {
		return true
	}
	for p := range c.Pools {
		if c.copyRoom(p) < 1 {
			return true
		}
	}
	return false
}

// copyRoom is the pages that further partial copies may be written to: neither
// a source nor promised to an earlier copy.
func (c *Coordinator) copyRoom(p int) int {
	a, counts := &c.admitting, &c.pages[p]
	return counts.Free + counts.Cached - a.sources[p].cached() - a.granted[p]
}

// rematch gives the claims of the item under judgement back and matches it
// again without partial reuse: the prefix may be shorter then, because a
// window that ends at a boundary reaches further back.
func (c *Coordinator) rematch(resume func(*Coordinator)) {
	c.admitting.resume = resume
	it := &c.admitting.items[c.admitting.judging]
	c.resetWork()
	c.letSource(it)
	c.unclaim(it)
	c.lookAtSources(it)
	c.sendPools((*Coordinator).rematchAsk)
}

// unclaim gives the claims of an item back.
func (c *Coordinator) unclaim(it *admission) {
	for p := range c.Pools {
		if it.plans[p].claimed > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.Unclaim, Pages: it.sequence.pools[p].tables[0]})
		}
	}
}

// rematchAsk matches one item; the record is lent to it alone, the others keep
// their answers behind it.
func (c *Coordinator) rematchAsk() {
	c.pooled()
	c.recountSources()
	i := c.admitting.judging
	m := &c.match
	m.Items[i].Partial = false
	m.Items[i].Multimodal = nil // the tokens hold their symbols already
	c.rematchRecord.Epoch = c.epoch
	c.rematchRecord.Items = append(c.rematchRecord.Items[:0], m.Items[i])
	c.pending++
	c.next = (*Coordinator).rematched
	c.port.Tree(&c.rematchRecord)
}

// rematched claims the shorter match and goes on judging.
func (c *Coordinator) rematched() {
	i := c.admitting.judging
	reach, lacking := c.match.Items[i].Reach, c.match.Items[i].Lacking
	c.match.Items[i] = c.rematchRecord.Items[0]
	// Reach is a matter of the prompt as it asked, partial reuse included.
	c.match.Items[i].Reach, c.match.Items[i].Lacking = reach, lacking
	c.resetWork()
	c.claim(i)
	c.admitting.items[i].how = messages.PartialNone
	c.lookAtSources(&c.admitting.items[i])
	c.sendPools((*Coordinator).reclaimed)
}

// reclaimed goes on judging with other claims than before.
func (c *Coordinator) reclaimed() {
	c.pooled()
	c.recountSources()
	c.admitting.resume(c)
}

// letSource takes an item from those that reuse a part of their source.
func (c *Coordinator) letSource(it *admission) {
	for p := range c.Pools {
		if it.how != messages.PartialNone && it.plans[p].inspect >= 0 {
			c.admitting.sources[p].drop(it.plans[p].source[0])
		}
	}
}

// lookAtSources asks once more who holds the sources among the whole blocks of
// an item: those that it has claimed or given back just now.
func (c *Coordinator) lookAtSources(it *admission) {
	for p := range c.Pools {
		sources := &c.admitting.sources[p]
		if it.plans[p].claimed == 0 || sources.none() {
			continue
		}
		table := it.sequence.pools[p].tables[0]
		for b, page := range table {
			if sources.has(page) {
				c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[b : b+1]})
			}
		}
	}
}

// recountSources takes over what the pools said of the sources.
func (c *Coordinator) recountSources() {
	for p := range c.work {
		for k := range c.work[p].Ops {
			op := &c.work[p].Ops[k]
			if op.Kind == protocol.Inspect {
				share := op.Shares[0]
				c.admitting.sources[p].saw(op.Pages[0], share.References == 0 && share.Pins == 0)
			}
		}
	}
}

// planItem says what item i needs in each pool.
func (c *Coordinator) planItem(i int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	s := it.sequence
	blocks := ceilDiv(s.prompt, c.TokensPerBlock)
	s.own = m.Blocks
	if c.admitting.purpose == toPrefetch {
		blocks = m.Blocks
	}
	s.chunkEnd = s.prompt
	if s.chunk > 0 {
		s.chunkEnd = c.chunkEnd(s, m.Matched)
	}
	for p := range c.Pools {
		pl := &it.plans[p]
		pl.blocks, pl.hosted = blocks, c.ownOnboards(i, p)
		s.pools[p].reserve = 0
		if c.sheltered(s, p) {
			pl.blocks = min(blocks, ceilDiv(s.chunkEnd, c.TokensPerBlock))
			s.pools[p].reserve = min(blocks-m.Blocks, c.Pools[p].PrefillReserve(s.chunk))
		}
	}
}

// ownOnboards counts the blocks that item i brings from host memory: those that
// no earlier item brings.
func (c *Coordinator) ownOnboards(i, p int) int {
	n := 0
	if pl := &c.admitting.items[i].plans[p]; pl.full == pl.claimed {
		return 0
	}
	m := &c.match.Items[i]
	for b, at := range m.Pages[p][:m.Blocks] {
		if _, tier, _ := at.Page(); tier == messages.Secondary && c.bringer(i, p, b) == nil {
			n++
		}
	}
	return n
}

// bringer is the earlier item that brings block b of item i from host memory.
func (c *Coordinator) bringer(i, p, b int) *admission {
	j, ok := c.admitting.bringers[p][c.match.Items[i].IDs[b]]
	if !ok || j >= i {
		return nil
	}
	return &c.admitting.items[j]
}

// brings notes what an admitted item brings from host memory, if no earlier one
// does.
func (c *Coordinator) brings(i, p int) {
	a, m := &c.admitting, &c.match.Items[i]
	for b, at := range m.Pages[p][:m.Blocks] {
		if _, tier, ok := at.Page(); !ok || tier != messages.Secondary {
			continue
		}
		if _, earlier := a.bringers[p][m.IDs[b]]; !earlier {
			a.bringers[p][m.IDs[b]] = i
		}
	}
}

// chunkEnd is how far a commit may reach when n tokens are computed: to the last
// block boundary within n + chunk, never past the prompt.
func (c *Coordinator) chunkEnd(s *sequence, n int) int {
	from := n / c.TokensPerBlock * c.TokensPerBlock
	if s.chunk >= s.prompt-from { // not their sum: a chunk may be as long as an int
		return s.prompt
	}
	return from + s.chunk
}

// need is the pages that an item takes in a pool, its reserve included.
func (c *Coordinator) need(it *admission, pool int) int {
	pl, s := &it.plans[pool], it.sequence
	if c.sheltered(s, pool) {
		return pl.hosted + s.pools[pool].reserve
	}
	need := pl.hosted + pl.blocks - s.own
	if it.how == messages.PartialTakeover && pl.inspect >= 0 {
		need-- // the source itself is the page
	}
	return need
}

// fits is the refusal of an item that lacks pages, else nil.
func (c *Coordinator) fits(it *admission) *messages.Refusal {
	refusal, _ := c.lacking(it)
	return refusal
}

// lacking compares what an item needs with what is available, pool by pool. It
// gives the first pool that lacks pages.
func (c *Coordinator) lacking(it *admission) (refusal *messages.Refusal, pool int) {
	if c.behind() {
		return c.lackAll(it)
	}
	for p := range c.Pools {
		available := c.available(p) - c.admitting.promised[p] - c.admitting.seized[p]
		// Without its partial block an item may claim pages that earlier copies
		// count on.
		crowded := it.how == messages.PartialNone && c.copyRoom(p) < 0
		switch need := c.need(it, p); {
		case crowded || need > max(0, available):
			return messages.RefusePages(c.Pools[p].Name, need, max(0, available)), p
		case available < 0 && c.admitting.purpose != toPrefetch:
			// What it claims, a chunked prefill has reserved. A prefetch gives its
			// claims back: where it needs no page, it lacks none.
			return messages.RefusePages(c.Pools[p].Name, -available, 0), p
		}
	}
	return nil, 0
}

// promise keeps the pages of an admitted item from those judged later.
func (c *Coordinator) promise(i int) {
	it := &c.admitting.items[i]
	for p := range c.Pools {
		if pl := &it.plans[p]; pl.full > pl.claimed {
			c.brings(i, p)
		}
		c.admitting.promised[p] += c.need(it, p)
		if it.how == messages.PartialCopy {
			c.admitting.granted[p]++
		}
	}
}

// refuse gives the claims of an item back and judges on.
func (c *Coordinator) refuse(it *admission, refusal *messages.Refusal) {
	it.refused = refusal
	if c.admitting.purpose == toAdmit {
		c.noteRefusal(refusal)
	}
	if it.how == messages.PartialTakeover {
		for p := range c.Pools {
			if it.plans[p].inspect >= 0 && !c.sheltered(it.sequence, p) {
				c.admitting.seized[p]--
			}
		}
	}
	c.admitting.judging++
	c.admitting.resume = (*Coordinator).judge
	c.resetWork()
	c.letSource(it)
	c.unclaim(it)
	c.lookAtSources(it)
	c.sendPools((*Coordinator).reclaimed)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
