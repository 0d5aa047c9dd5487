package coordinator

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// stepping is the state of a Commit or an Append on its way through
//
//	[inspect → take → move →] store → drop what left its window
//	[→ take the next chunk's pages → move] → answer
type stepping struct {
	items  []step
	shares []map[messages.PageID]protocol.Share // by pool: pages that may be shared
	taken  []int                                // by pool: pages of steps judged before
	undo   bool                                 // some copy on write failed
}

// step is the part of one sequence.
type step struct {
	sequence *sequence
	result   *messages.StepResult
	request  *messages.AppendStep // nil in a Commit
	computed int                  // tokens to commit to; 0: none
	after    messages.Ticket
	store    int          // index in Apply.Stores, −1: none
	ready    int          // index in Move.Ready, −1: none
	first    int          // first block that may be written to
	use      protocol.Use // that the sequence had before
	refused  bool
	extended bool // the sequence has the step's tokens and pages
	pools    []stepPages
	// offered, of a fork whose pages others hold, are by pool the pages that it
	// offers: those that cache nothing yet.
	offered [][]messages.PageID
}

// stepPages is what a step takes in one pool.
type stepPages struct {
	copies []rewrite           // copies on write
	copyOp int                 // −1: none
	fresh  int                 // the operation that takes new pages, −1: none
	before int                 // length of the table before the step
	old    [][]messages.PageID // the tables before it, by beam; nil: they follow from copies and before
}

// rewrite is a page that is copied because others hold it too.
type rewrite struct {
	beam, block int
	from, to    messages.PageID // to: NoPage until the pages are taken
}

func (st *stepping) init(pools int) {
	st.taken = make([]int, pools)
	st.shares = make([]map[messages.PageID]protocol.Share, pools)
	for p := range st.shares {
		st.shares[p] = map[messages.PageID]protocol.Share{}
	}
}

// startSteps empties the state.
func (c *Coordinator) startSteps() {
	st := &c.stepping
	st.items, st.undo = st.items[:0], false
	clear(st.taken)
	for p := range st.shares {
		clear(st.shares[p])
	}
}

// addStep adds the part of one sequence.
func (c *Coordinator) addStep(s *sequence, result *messages.StepResult) *step {
	st := &c.stepping
	if n := len(st.items); n < cap(st.items) {
		st.items = st.items[:n+1]
	} else {
		st.items = append(st.items, step{})
	}
	it := &st.items[len(st.items)-1]
	pools := it.pools
	if pools == nil {
		pools = make([]stepPages, len(c.Pools))
	}
	for p := range pools {
		pools[p] = stepPages{copies: pools[p].copies[:0], copyOp: -1, fresh: -1, before: len(s.pools[p].tables[0])}
	}
	*it = step{sequence: s, result: result, store: -1, ready: -1, use: s.use, pools: pools}
	s.stepped = c.stamp
	return it
}

// results gives n empty results, reusing their arrays.
func (c *Coordinator) results(list []messages.StepResult, n int) []messages.StepResult {
	for len(list) < n {
		list = append(list, messages.StepResult{})
	}
	list = list[:n]
	for i := range list {
		list[i] = messages.StepResult{NewPages: reopen(list[i].NewPages[:0], len(c.Pools)), Ready: list[i].Ready[:0]}
	}
	return list
}

// findStep finds the sequence of a step; each may be there once.
func (c *Coordinator) findStep(id messages.SequenceID) (*sequence, error) {
	s, refusal := c.sequences.find(id)
	if refusal != nil {
		return nil, refusal
	}
	if s.stepped == c.stamp {
		return nil, messages.Refuse(messages.BadRequest, "sequence %v is twice in one request", id)
	}
	return s, nil
}

// heard notes the kernel of a step that is refused: it runs all the same, on the
// pages that the sequence holds, and it may be lost.
func (c *Coordinator) heard(id messages.SequenceID, after messages.Ticket) {
	if slot := uint32(id); !after.IsZero() && int(slot) < len(c.sequences.slots) {
		if s := c.sequences.slots[slot]; s.id == id && s.running {
			s.after = after
		}
	}
}

// commit serves a Commit.
func (c *Coordinator) commit(r *messages.Commit) {
	c.startSteps()
	r.Results = c.results(r.Results, len(r.Steps))
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		result.Sequence = request.Sequence
		s, err := c.findStep(request.Sequence)
		if err == nil {
			err = c.validateCommit(s, request.Computed, s.length())
		}
		if err != nil {
			result.Err = err
			c.heard(request.Sequence, request.After)
			continue
		}
		it := c.addStep(s, result)
		it.computed, it.after = request.Computed, request.After
		if request.Computed > s.computed && request.SeparateRequest || s.use == 0 {
			s.use = c.nextUse()
		}
	}
	c.resetApply()
	if c.inspectCommits() {
		c.sendPools((*Coordinator).commitsInspected)
		return
	}
	c.commitPhase()
}

// validateCommit checks that the first n tokens may be committed, of length.
func (c *Coordinator) validateCommit(s *sequence, n, length int) error {
	switch {
	case n < s.computed:
		return messages.Refuse(messages.BadRequest, "commit of %d tokens: %d are computed already", n, s.computed)
	case n > length:
		return messages.Refuse(messages.BadRequest, "commit of %d tokens: the sequence has %d", n, length)
	case n == s.computed || s.computed >= s.prompt:
		return nil
	case s.chunk > 0 && n > s.chunkEnd:
		return messages.Refuse(messages.BadRequest, "commit of %d tokens: the chunk ends at %d", n, s.chunkEnd)
	case n < s.prompt && n%c.TokensPerBlock != 0:
		return messages.Refuse(messages.BadRequest, "commit of %d tokens ends off a block boundary before the prompt's end at %d", n, s.prompt)
	}
	return nil
}

// commitPhase stores what the steps have computed, adding to the Apply record.
func (c *Coordinator) commitPhase() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		s := it.sequence
		if it.refused || it.computed <= s.computed {
			it.computed = 0
			continue
		}
		to := it.computed
		if s.width() > 1 {
			to = min(to, s.prompt)
		}
		it.store = c.store(s, s.computed/c.TokensPerBlock*c.TokensPerBlock, to/c.TokensPerBlock*c.TokensPerBlock)
		c.keepReserve(it, to)
		if it.store >= 0 && it.offered != nil {
			c.apply.Stores[it.store].Tables = it.offered
		}
	}
	if c.applyNeeded() {
		c.extra = (*Coordinator).commitExtras
		c.sendApply((*Coordinator).committed)
		return
	}
	c.resetWork()
	c.resetMove()
	c.commitExtras()
	c.after = (*Coordinator).committed
	c.sendEffects()
}

// store offers the tokens [from, to) of a sequence to the tree; −1 if there is
// nothing to offer.
func (c *Coordinator) store(s *sequence, from, to int) int {
	if !c.Reuse || s.mute || from >= to {
		return -1
	}
	s.view = s.view[:0]
	for p := range s.pools {
		s.view = append(s.view, s.pools[p].tables[0])
	}
	item := protocol.StoreItem{
		Namespace: s.namespace, Session: s.session, Tokens: s.tokens[0], From: from, To: to,
		Tables: s.view, Retention: s.retention, Prompt: s.prompt,
		RetentionFrom: max(s.anew, s.settled.blocks(s.tokens[0], c.TokensPerBlock)), Cursor: s.cursor,
	}
	c.apply.Stores = append(c.apply.Stores, item)
	return len(c.apply.Stores) - 1
}

// commitExtras adds to the effects of the store what the steps let go and then
// what the next chunks need.
func (c *Coordinator) commitExtras() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if it.computed == 0 {
			continue
		}
		if !it.after.IsZero() {
			it.sequence.after = it.after
			c.markWritten(it.sequence, it.sequence.computed, it.computed, it.after)
		}
		c.dropLeft(it.sequence, it.computed)
	}
	for i := range c.stepping.items {
		if it := &c.stepping.items[i]; it.computed > 0 && it.sequence.chunk > 0 {
			c.fanOut(it)
			c.chunkExtras(it)
		}
	}
}

// markWritten tells the offloader that a kernel of the host writes the tokens
// [from, to) until the ticket has passed.
func (c *Coordinator) markWritten(s *sequence, from, to int, after messages.Ticket) {
	c.ordered = true
	first, last := from/c.TokensPerBlock, ceilDiv(to, c.TokensPerBlock)
	for p := range s.pools {
		for _, table := range s.pools[p].tables {
			c.move.Marks = append(c.move.Marks, protocol.Mark{
				Pool: messages.PoolID(p), Pages: table[min(first, len(table)):min(last, len(table))], Write: true, Ticket: after,
			})
		}
	}
}

// dropLeft drops the pages that leave their windows when n tokens are computed.
func (c *Coordinator) dropLeft(s *sequence, n int) {
	for p := range s.pools {
		from, to := c.leaving(s, p, n)
		if from >= to {
			continue
		}
		for _, table := range s.pools[p].tables {
			c.markRead(s, p, table[from:to])
			c.dropRange(s, p, table[from:to], from)
		}
	}
}

// markRead tells the offloader that kernels of the host may still read pages
// that the sequence drops: its kernels read all that their tokens attend to.
func (c *Coordinator) markRead(s *sequence, p int, pages []messages.PageID) {
	if !s.after.IsZero() && len(pages) > 0 {
		c.move.Marks = append(c.move.Marks, protocol.Mark{Pool: messages.PoolID(p), Pages: pages, Ticket: s.after})
	}
}

// leaving is the range of blocks that leave the window of a pool.
func (c *Coordinator) leaving(s *sequence, p, n int) (from, to int) {
	pool := &c.Pools[p]
	if pool.Full() {
		return 0, 0
	}
	return max(s.pools[p].kept, pool.SinkBlocks()), min(pool.FirstKept(n), len(s.pools[p].tables[0]))
}

// dropRange drops pages of blocks that start at index from; a chunked
// prefill's own are sheltered.
func (c *Coordinator) dropRange(s *sequence, p int, pages []messages.PageID, from int) {
	if !c.sheltered(s, p) {
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: s.use})
		return
	}
	own := min(max(s.own-from, 0), len(pages))
	if own < len(pages) {
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages[own:], Use: s.use, CoveredByReservation: true})
	}
	if own > 0 {
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages[:own], Use: s.use})
	}
}

// chunkExtras ends the reserve of a prompt that is computed, or takes the
// pages of the next chunk.
func (c *Coordinator) chunkExtras(it *step) {
	s := it.sequence
	for p := range s.pools {
		if !c.sheltered(s, p) {
			continue
		}
		table := s.pools[p].tables[0]
		if it.computed >= s.prompt {
			_, kept := c.leaving(s, p, it.computed)
			sink := min(c.Pools[p].SinkBlocks(), len(table))
			if s.own < sink {
				c.add(p, protocol.PoolOp{Kind: protocol.EndCoverage, Pages: table[s.own:sink]})
			}
			if from := max(kept, sink, s.own); from < len(table) {
				c.add(p, protocol.PoolOp{Kind: protocol.EndCoverage, Pages: table[from:]})
			}
			continue
		}
		end := ceilDiv(c.chunkEnd(s, it.computed), c.TokensPerBlock)
		if n := end - len(table); n > 0 {
			it.pools[p].fresh = c.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.tenant, Pages: table, CoveredByReservation: true})
		}
	}
}

// committed takes over what the commit changed. Pages taken for the next
// chunks may have victims.
func (c *Coordinator) committed() {
	chunks := false
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if it.computed == 0 {
			continue
		}
		chunks = c.settleCommit(it) || chunks
	}
	c.settled = true
	if !chunks {
		c.stepReply()
		return
	}
	c.resetMove()
	c.takeVictims()
	c.oweVictims()
	if c.ordered {
		for i := range c.stepping.items {
			if it := &c.stepping.items[i]; it.computed > 0 {
				c.askWrites(it)
			}
		}
	}
	c.sendMove((*Coordinator).chunkMoved)
}

// oweVictims notes what the tree must hear if the round breaks off here: the
// sequences have the victims' pages for good.
func (c *Coordinator) oweVictims() {
	c.owed = nil
	for p := range c.move.Pools {
		for i := range c.move.Pools[p].Victims {
			c.owed = append(c.owed, protocol.BlockMove{Pool: messages.PoolID(p), Block: c.move.Pools[p].Victims[i].Block, To: messages.Nowhere})
		}
	}
}

// settleCommit updates the sequence of a step; it tells whether pages of a
// next chunk were taken.
func (c *Coordinator) settleCommit(it *step) bool {
	s := it.sequence
	for p := range s.pools {
		from, to := c.leaving(s, p, it.computed)
		for _, table := range s.pools[p].tables {
			for b := from; b < to; b++ {
				table[b] = messages.NoPage
			}
		}
		s.pools[p].kept = max(s.pools[p].kept, to)
	}
	if it.store >= 0 {
		item := &c.apply.Stores[it.store]
		stored := item.To / c.TokensPerBlock
		s.cursor = item.Cursor
		s.sealed, s.anew = max(s.sealed, stored), max(s.anew, stored)
	}
	s.computed = it.computed
	if s.chunk == 0 {
		return false
	}
	return c.settleChunk(it)
}

// settleChunk ends the chunking of a computed prompt or adds the new pages.
func (c *Coordinator) settleChunk(it *step) bool {
	s := it.sequence
	if s.computed >= s.prompt {
		for p := range s.pools {
			c.reserved[p] -= s.pools[p].reserve
			s.pools[p].reserve = 0
		}
		if s.chunk = 0; s.fan > 1 {
			c.copyBeams(s, s.fan)
			s.fan = 0
		}
		return false
	}
	s.chunkEnd = c.chunkEnd(s, s.computed)
	took := false
	for p := range s.pools {
		op := it.pools[p].fresh
		if op < 0 {
			continue
		}
		before := len(s.pools[p].tables[0])
		table := c.work[p].Ops[op].Pages
		copy(table, s.pools[p].tables[0]) // the operation began with the blocks that have left since
		s.pools[p].tables[0] = table
		it.result.NewPages[p] = append(it.result.NewPages[p], table[before:]...)
		c.stats.Pools[p].AllocatedPages += int64(len(table) - before)
		took = true
	}
	return took
}

// askWrites asks what the new pages of a step wait for.
func (c *Coordinator) askWrites(it *step) {
	var r *protocol.WaitQuery
	r, it.ready = c.addReady()
	for p := range c.Pools {
		r.Write = append(r.Write, it.result.NewPages[p])
	}
}

// chunkMoved follows the victims of the next chunks.
func (c *Coordinator) chunkMoved() {
	c.owed = nil
	c.resetApply()
	c.moved()
	c.takeReady()
	if c.applyNeeded() {
		c.sendApply((*Coordinator).stepReply)
		return
	}
	c.stepReply()
}

// takeReady copies the tickets into the answers.
func (c *Coordinator) takeReady() {
	for i := range c.stepping.items {
		it := &c.stepping.items[i]
		if it.ready >= 0 {
			it.result.Ready = append(it.result.Ready, c.move.Queries[it.ready].Tickets...)
			it.ready = -1
		}
	}
}

// stepReply answers.
func (c *Coordinator) stepReply() { c.reply() }
