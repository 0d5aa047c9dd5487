package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// admitAnswer ends the batch.
func (c *Coordinator) admitAnswer() {
	switch c.admitting.purpose {
	case toPrefetch:
		c.prefetched()
		return
	case toLookup:
		c.lookedUp()
		return
	}
	c.resetWork()
	c.resetMove()
	for i := range c.admitting.items {
		c.claimShared(&c.admitting.items[i])
	}
	for i := range c.admitting.items {
		if it := &c.admitting.items[i]; it.refused == nil {
			c.addBeams(it.sequence, it.beams)
		} else if it.refused == errTransfer {
			c.giveBack(it)
		}
	}
	c.move.Effects = append(c.move.Effects, c.lostHost...)
	c.lostHost = c.lostHost[:0]
	c.after = (*Coordinator).admitReply
	c.sendEffects()
}

// claimShared gives an item its own references to pages that an earlier one has
// brought in, before that one may let go of them. An item that failed has none
// to give back.
func (c *Coordinator) claimShared(it *admission) {
	for p := range it.plans {
		shared := it.plans[p].shared
		switch {
		case len(shared) == 0:
		case it.refused == nil:
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: shared})
		case it.refused == errTransfer:
			table := it.sequence.pools[p].tables[0]
			for b, page := range table { // they are in the order of the table
				if len(shared) > 0 && page == shared[0] {
					table[b], shared = messages.NoPage, shared[1:]
				}
			}
		}
	}
}

// giveBack drops everything that a failed item took, without a use.
func (c *Coordinator) giveBack(it *admission) {
	for p := range c.Pools {
		table := it.sequence.pools[p].tables[0]
		c.dropRange(it.sequence, p, table, 0)
		it.sequence.pools[p].tables[0] = table[:0]
	}
}

// admitReply answers every item. Those whose transfers failed are admitted
// once more; each time there is less left that could fail.
func (c *Coordinator) admitReply() {
	again := false
	for i := range c.admitting.items {
		it := &c.admitting.items[i]
		if it.refused == errTransfer {
			again = true
			continue
		}
		if it.refused != nil {
			c.endRefused(it)
			continue
		}
		c.answerItem(i)
	}
	if again {
		c.admitAgain()
		return
	}
	c.admitLet()
}

// endRefused ends the sequence of a refused item.
func (c *Coordinator) endRefused(it *admission) {
	if it.sequence == nil {
		return
	}
	if it.result != nil {
		*it.result = messages.Admitted{Err: it.refused, Reuse: it.result.Reuse[:0], Tables: it.result.Tables[:0], Ready: it.result.Ready[:0]}
	}
	c.letSymbols(it.sequence)
	c.sequences.end(it.sequence)
	it.sequence = nil
}

// letSymbols notes symbols that no sequence holds any more.
func (c *Coordinator) letSymbols(s *sequence) {
	if s.symbols == nil {
		return
	}
	if *s.symbols--; *s.symbols == 0 {
		c.letGo = append(c.letGo, append([]messages.Token(nil), s.tokens[0][:s.prompt]...))
	}
	s.symbols = nil
}

// admitAgain makes a batch of the items whose transfers failed.
func (c *Coordinator) admitAgain() {
	a := &c.admitting
	n := 0
	for i := range a.items {
		if a.items[i].refused != errTransfer {
			if s := a.items[i].sequence; s != nil {
				a.served = append(a.served, s)
			}
			continue
		}
		a.items[n], a.items[i] = a.items[i], a.items[n]
		c.match.Items[n], c.match.Items[i] = c.match.Items[i], c.match.Items[n]
		a.items[n].refused = nil
		a.items[n].how = messages.PartialNone
		c.match.Items[n].Multimodal, c.match.Items[n].Partial = nil, false
		n++
	}
	a.again = true
	a.items, c.match.Items = a.items[:n], c.match.Items[:n]
	c.clearPromises()
	c.matchBatch()
}

// admitLet lets the symbols of refused items go, then answers.
func (c *Coordinator) admitLet() { c.letThen((*Coordinator).reply) }

// letThen lets symbols go that nobody holds any more, then comes the stage.
func (c *Coordinator) letThen(stage func(*Coordinator)) {
	if len(c.letGo) == 0 {
		stage(c)
		return
	}
	c.resetApply()
	c.apply.ReleasedSymbols = append(c.apply.ReleasedSymbols, c.letGo...)
	c.letGo = c.letGo[:0]
	c.sendApply(stage)
}

// answerItem fills the answer of an admitted item and counts it.
func (c *Coordinator) answerItem(i int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	s, r := it.sequence, it.result
	s.sealed, s.anew, s.computed = m.Blocks, m.Blocks, m.Matched
	r.Sequence, r.ReusedTokens, r.MissReason = s.id, m.Matched, c.why(m)
	blocks := ceilDiv(s.prompt, c.TokensPerBlock)
	partial := 0
	if it.how != messages.PartialNone {
		partial = 1
	}
	c.stats.Requests++
	c.stats.PromptTokens += int64(s.prompt)
	c.stats.ReusedTokens += int64(m.Matched)
	c.demanding.noteMatch(m, s.prompt)
	for p := range c.Pools {
		pl, count := &it.plans[p], &c.stats.Pools[p].PoolCounters
		c.reserved[p] += s.pools[p].reserve
		reuse := messages.PoolReuse{Full: pl.full, Partial: partial, PartialReuse: it.how, Onboarded: pl.hosted}
		if it.how == messages.PartialTakeover && pl.inspect < 0 {
			reuse.Onboarded++
		}
		r.Reuse = append(r.Reuse, reuse)
		count.ReusedFull += int64(pl.full)
		count.ReusedPartial += int64(partial)
		count.Missed += int64(blocks - m.Blocks - partial)
		s.pools[p].kept = c.Pools[p].FirstKept(m.Matched)
	}
	r.Tables = s.copyTables(r.Tables)
}

// why says how a prompt met the cache.
func (c *Coordinator) why(m *protocol.MatchItem) messages.MissReason {
	switch {
	case !c.Reuse:
		return messages.ReasonDisabled
	case m.Reach == 0:
		return messages.ReasonCold
	case m.Matched == m.Reach:
		return messages.ReasonHit
	case m.Lacking:
		return messages.ReasonEvicted
	default:
		return messages.ReasonWindowHole
	}
}
