package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// append serves one engine step: first pages for all its sequences in order,
// then commits, then what left its window.
func (c *Coordinator) append(r *messages.Append) {
	c.startSteps()
	r.Results = c.results(r.Results, len(r.Steps))
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		result.Sequence = request.Sequence
		s, err := c.findStep(request.Sequence)
		if err == nil {
			err = c.validateAppend(s, request)
		}
		if err != nil {
			result.Err = err
			c.heard(request.Sequence, request.After)
			continue
		}
		it := c.addStep(s, result)
		it.request, it.computed, it.after = request, request.Computed, request.After
		s.use = c.nextUse()
		if !it.after.IsZero() {
			s.after = it.after
		}
	}
	if c.inspectShared() {
		c.sendPools((*Coordinator).inspected)
		return
	}
	c.takeSteps()
}

// validateAppend checks one step against its sequence.
func (c *Coordinator) validateAppend(s *sequence, r *messages.AppendStep) error {
	added := len(r.Tokens)
	if s.width() > 1 {
		added = min(1, len(r.Beams))
	}
	if err := c.validateShape(s, r); err != nil {
		return err
	}
	if s.computed < s.prompt {
		return messages.Refuse(messages.BadRequest, "append to a prompt of %d tokens of which %d are computed", s.prompt, s.computed)
	}
	s.stepped = c.stamp // its values are right: a second step is one too many
	if n := s.length() + added; n > c.MaxSeqLen {
		return messages.Refuse(messages.TooLong, "a sequence of %d tokens is over max_seq_len %d", n, c.MaxSeqLen)
	}
	if r.Computed != 0 {
		return c.validateCommit(s, r.Computed, s.length()+added)
	}
	return nil
}

// validateShape checks tokens or beams.
func (c *Coordinator) validateShape(s *sequence, r *messages.AppendStep) error {
	if s.width() == 1 {
		if len(r.Beams) > 0 {
			return messages.Refuse(messages.BadRequest, "beams for a sequence of beam width 1")
		}
		if len(r.Tokens) == 0 {
			return messages.Refuse(messages.BadRequest, "tokens is empty")
		}
		for _, t := range r.Tokens {
			if t < 0 {
				return messages.Refuse(messages.BadRequest, "token %d is not in 0 … 2³¹−1", t)
			}
		}
		return nil
	}
	if len(r.Tokens) > 0 {
		return messages.Refuse(messages.BadRequest, "tokens for a sequence of beam width %d", s.width())
	}
	if len(r.Beams) != s.width() {
		return messages.Refuse(messages.BadRequest, "%d beams for a sequence of beam width %d", len(r.Beams), s.width())
	}
	for _, b := range r.Beams {
		if b.Parent < 0 || b.Parent >= s.width() {
			return messages.Refuse(messages.BadRequest, "beam parent %d of beam width %d", b.Parent, s.width())
		}
		if b.Token < 0 {
			return messages.Refuse(messages.BadRequest, "token %d is not in 0 … 2³¹−1", b.Token)
		}
	}
	return nil
}

// inspectShared asks the pools about every page that a step may write to and
// that others may hold. Most steps have none.
func (c *Coordinator) inspectShared() bool {
	c.resetWork()
	asked := false
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		s := it.sequence
		blocks := len(s.pools[0].tables[0])
		it.first = min(s.computed/c.TokensPerBlock, blocks)
		first, last := it.first, min(s.sealed, blocks)
		if s.width() > 1 {
			first, last = it.followed(), blocks
		}
		if first >= last {
			continue
		}
		for p := range s.pools {
			for _, table := range s.pools[p].tables {
				c.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: table[first:last]})
				asked = true
			}
		}
	}
	return asked
}

// inspected remembers what the pools said of each page.
func (c *Coordinator) inspected() {
	c.pooled()
	for p := range c.work {
		for k := range c.work[p].Ops {
			op := &c.work[p].Ops[k]
			for j, page := range op.Pages {
				if page != messages.NoPage {
					c.stepping.shares[p][page] = op.Shares[j]
				}
			}
		}
	}
	c.takeSteps()
}

// takeSteps judges the steps in order and takes the pages of those that fit.
func (c *Coordinator) takeSteps() {
	c.resetWork()
	any := false
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if it.sequence.width() > 1 {
			any = c.takeBeams(it) || any
		} else {
			any = c.takeStep(it) || any
		}
	}
	if !any {
		c.addTokens()
		c.resetApply()
		c.commitPhase()
		return
	}
	c.sendPools((*Coordinator).stepsTaken)
}

// takeStep judges one step of beam width 1: all its pages in all pools or none.
func (c *Coordinator) takeStep(it *step) bool {
	s := it.sequence
	blocks := ceilDiv(s.length()+len(it.request.Tokens), c.TokensPerBlock)
	any := false
	for p := range s.pools {
		table := s.pools[p].tables[0]
		c.findRewrites(it, p)
		need := len(it.pools[p].copies) + blocks - len(table)
		if need == 0 {
			continue
		}
		any = true
		if available := max(0, c.available(p)-c.stepping.taken[p]); need > available {
			c.refuseStep(it, messages.RefusePages(c.Pools[p].Name, need, available))
			return false
		}
	}
	if !any {
		return len(c.stepping.shares[0]) > 0 && it.first < s.sealed
	}
	for p := range s.pools {
		pages := &it.pools[p]
		c.takeRewrites(it, p)
		if n := blocks - len(s.pools[p].tables[0]); n > 0 {
			pages.fresh = c.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.tenant, Pages: s.pools[p].tables[0]})
			c.stepping.taken[p] += n
		}
	}
	return true
}

// refuseStep leaves a sequence as it was.
func (c *Coordinator) refuseStep(it *step, err error) {
	it.refused, it.computed = true, 0
	it.result.Err = err
	it.sequence.use = it.use
	c.noteRefusal(err)
	for p := range it.pools {
		it.pools[p].copies = it.pools[p].copies[:0]
	}
}

// findRewrites lists the pages of a step that others hold.
func (c *Coordinator) findRewrites(it *step, p int) {
	s := it.sequence
	pages := &it.pools[p]
	pages.copies = pages.copies[:0]
	table := s.pools[p].tables[0]
	for b := it.first; b < min(s.sealed, len(table)); b++ {
		if share, known := c.stepping.shares[p][table[b]]; known && shared(share) {
			pages.copies = append(pages.copies, rewrite{block: b, from: table[b], to: messages.NoPage})
		}
	}
}

// shared tells whether a page that a sequence holds is held by others too.
func shared(s protocol.Share) bool { return s.References > 1 || s.Pins > 0 || s.Stored }

// takeRewrites takes pages for copies on write, then lets the old ones go.
func (c *Coordinator) takeRewrites(it *step, p int) {
	pages := &it.pools[p]
	n := len(pages.copies)
	if n == 0 {
		return
	}
	pages.copyOp = c.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: it.sequence.tenant})
	c.stepping.taken[p] += n
	old := make([]messages.PageID, 0, n)
	for _, w := range pages.copies {
		old = append(old, w.from)
		share := c.stepping.shares[p][w.from]
		share.References--
		c.stepping.shares[p][w.from] = share
		if share.References == 0 && share.Pins == 0 {
			c.stepping.taken[p]-- // cached from now on: a later step may take it
		}
	}
	c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: old, Use: it.sequence.use.Early()})
}

// stepsTaken writes the pages into the tables and orders the copies.
func (c *Coordinator) stepsTaken() {
	c.pooled()
	c.resetMove()
	c.takeVictims()
	c.markEarlier()
	c.addTokens()
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if !it.refused {
			c.settleStep(it)
		}
	}
	c.sendMove((*Coordinator).stepsMoved)
}

// markEarlier tells the offloader of kernels that write, before the step, what
// the step commits: copies on write must come after them.
func (c *Coordinator) markEarlier() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if !it.refused && it.computed > it.sequence.computed && !it.after.IsZero() {
			from := len(c.move.Marks)
			c.markWritten(it.sequence, it.sequence.computed, min(it.computed, it.sequence.length()), it.after)
			for k := range c.move.Marks[from:] {
				m := &c.move.Marks[from+k]
				m.Pages = slices.Clone(m.Pages) // the step changes the tables
			}
		}
	}
}

// written is how many tokens may have their KV in the pages before the step:
// what is computed, drafts, which are all but the last sampled token, and what
// the step itself commits.
func (it *step) written() int {
	s := it.sequence
	before := s.length() - added(it)
	return max(s.computed, before-1, min(it.computed, before))
}

// addTokens extends the sequences of all steps that were not refused.
func (c *Coordinator) addTokens() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		s := it.sequence
		switch {
		case it.refused:
			continue
		case s.width() > 1:
			c.addBeamTokens(it)
		default:
			s.tokens[0] = append(s.tokens[0], it.request.Tokens...)
		}
		it.extended = true
	}
}

// settleStep places the pages of one step, block by block, copies first.
func (c *Coordinator) settleStep(it *step) {
	s := it.sequence
	took := false
	for p := range s.pools {
		pages, count := &it.pools[p], &c.stats.Pools[p].PoolCounters
		if s.width() > 1 {
			took = c.settleBeams(it, p) || took
			continue
		}
		if pages.copyOp >= 0 {
			c.settleRewrites(it, p)
			took = true
		}
		if pages.fresh >= 0 {
			table := c.work[p].Ops[pages.fresh].Pages
			for _, w := range pages.copies { // the operation began with the old table
				table[w.block] = w.to
			}
			s.pools[p].tables[0] = table
			it.result.NewPages[p] = append(it.result.NewPages[p], table[pages.before:]...)
			count.AllocatedPages += int64(len(table) - pages.before)
			took = true
		}
	}
	if it.first < s.sealed {
		took = true
		s.sealed = it.first
	}
	if took && c.ordered {
		c.askStep(it)
	}
}

// settleRewrites gives copies on write their pages.
func (c *Coordinator) settleRewrites(it *step, p int) {
	s, pages := it.sequence, &it.pools[p]
	q := &c.move.Pools[p]
	taken := c.work[p].Ops[pages.copyOp].Pages
	written := it.written()
	for k := range pages.copies {
		w := &pages.copies[k]
		c.markRead(s, p, []messages.PageID{w.from})
		w.to = taken[k]
		s.pools[p].tables[w.beam][w.block] = w.to
		it.result.NewPages[p] = append(it.result.NewPages[p], w.to)
		c.stats.Pools[p].AllocatedPages++
		if tokens := min(c.TokensPerBlock, written-w.block*c.TokensPerBlock); tokens > 0 {
			q.Copies = append(q.Copies, protocol.PageCopy{From: messages.OnDevice(w.from), Block: protocol.NoBlock, To: w.to, Tokens: tokens})
			c.ordered = true
		}
	}
}

// added is the number of tokens that a step brought to each beam.
func added(it *step) int {
	if it.sequence.width() > 1 {
		return 1
	}
	return len(it.request.Tokens)
}

// askStep asks what the pages that a step may write to wait for.
func (c *Coordinator) askStep(it *step) {
	var r *protocol.WaitQuery
	r, it.ready = c.addReady()
	s := it.sequence
	for p := range s.pools {
		if s.width() == 1 {
			r.Write = append(r.Write, s.pools[p].tables[0][it.first:])
			continue
		}
		var pages []messages.PageID
		for _, table := range s.pools[p].tables {
			pages = append(pages, table[it.first:]...)
		}
		r.Write = append(r.Write, pages)
	}
}

// stepsMoved follows victims and copies, then commits.
func (c *Coordinator) stepsMoved() {
	c.resetApply()
	c.moved()
	c.takeReady()
	if c.undoFailedCopies() {
		c.owed = c.apply.Moves // the tree hears of them after this
		c.after = (*Coordinator).commitPhase
		c.sendEffects()
		return
	}
	c.commitPhase()
}
