package coordinator

import (
	"maps"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// commitStages is the part that Commit and Append have in common: what the steps of
// the batch compute is stored, what leaves its window is dropped, and prompts in
// chunks get the pages of their next chunk.
//
// The sequences change in commitAll and nowhere else. It is the last stage and asks no one, so
// a failure of an actor leaves them as they were. It answers the request.
type commitStages struct {
	*shared
	stages[commitStages]
	batch *stepBatch
	// checkpoints are those that the steps make. They are made before next chunks take
	// pages, which could evict the blocks that they belong to.
	checkpoints checkpointMaking
}

// begin goes on with the request under way: it offers what the steps have computed to the tree.
func (c *commitStages) begin() {
	c.kernel.active = c
	c.checkpoints.reset()
	for i := range c.batch.items {
		it := &c.batch.items[i]
		s := it.sequence
		// A commit of what is committed already changes nothing, and is no error: a host that
		// has lost an answer may send its commit again.
		if it.refused || it.computed <= int(s.Computed()) {
			it.computed = 0
			continue
		}
		// Drafts are in the pages and not computed, so they lie behind this end and are not
		// offered.
		to := it.computed
		if s.Width() > 1 { // beams differ behind the prompt
			to = min(to, int(s.Prompt))
		}
		// Whole blocks only: a block that is not full is offered by the release. The first one
		// begins where the last commit ended, perhaps in the middle of a block.
		it.store = c.out.store(s, c.config.wholeTokens(int(s.Computed())), c.config.wholeTokens(to))
		if it.store >= 0 {
			c.keepOnHost(it, to)
			// Only where something is offered: the checkpoint belongs to the block that the
			// offer ends with.
			if !c.states.empty() && s.WantsCheckpoint(it.computed, c.config.CheckpointInterval) {
				c.checkpoints.want(i, c.states.end, &c.out.change.Stores[it.store])
			}
		}
		if s.Input.Pending() {
			// The first commit of a sequence stores its whole input, also the first chunk of a
			// prompt: no token of the decoder could be computed without it.
			it.input = c.out.storeInput(s, int(s.Input.Computed), len(s.Input.Tokens))
		}
	}
	// When steps before the commit have moved blocks, the change has their moves, too.
	c.wait(c, "committing: storing", (*commitStages).stored)
	c.out.apply()
}

// keepOnHost makes what a pin holds in host memory stay there when a prompt in
// chunks computes the same block and no page is to spare: the pin would hold the
// page of the prompt then, beside the reserve that covers it, and a later chunk
// could find none. The prompt keeps its page as a duplicate.
func (c *commitStages) keepOnHost(it *step, to int) {
	s := it.sequence
	if !s.Chunked() {
		return
	}
	// An upper bound, since not all of these blocks are pinned. Where it is not met, a pin
	// stays in host memory that could have moved, which costs its pages there and no
	// correctness.
	blocks := to/c.config.TokensPerBlock - int(s.Computed())/c.config.TokensPerBlock
	var keep [][]protocol.BlockID
	for p := range c.config.Pools {
		// Without a reserve the page counts as held by the prompt, and a pin on a held page
		// takes no further one.
		if !s.Covered(p) || len(c.pins.counts[p]) == 0 {
			continue
		}
		// Enough pages are available for the pins to hold the new ones beside the reserve.
		if spare := &c.batch.taken[p]; c.counts.available(p)-*spare >= blocks {
			*spare += blocks
			continue
		}
		// Allocated only here: a pin in a pool that is short of pages is rare.
		if keep == nil {
			keep = make([][]protocol.BlockID, len(c.config.Pools))
		}
		keep[p] = slices.Collect(maps.Keys(c.pins.counts[p]))
	}
	c.out.change.Stores[it.store].KeepOnHost = keep
}

// follow adds what the steps drop to what follows from the store, then what the
// next chunks need.
func (c *commitStages) follow() {
	for i := range c.batch.items {
		it := &c.batch.items[i]
		// The offloader is told of the kernels before pages are dropped: a copy that reads what
		// they write, or a new owner, waits for them.
		if !it.after.IsZero() {
			c.markKernel(it)
		}
		// Blocks that leave the window were stored a stage before, so they stay as cached pages.
		if it.computed > 0 {
			c.dropPassed(it.sequence, it.computed)
		}
		if it.renewsStates() {
			c.dropDrafts(it)
		}
	}
	c.takeNext()
}

// markKernel tells the offloader of the kernel that a step names. It counts also where the step
// commits nothing new: it may have written drafts.
func (c *commitStages) markKernel(it *step) {
	s := it.sequence
	first := int(s.Computed()) / c.config.TokensPerBlock
	for p := range c.self.end {
		// Not the pages that the step itself has taken: the kernel began before it.
		before := it.pools[p].before
		for _, table := range s.Tables(p) {
			c.out.move.mark(p, table[min(first, before):before], true, it.after)
		}
	}
	// A state pool has one page for the sequence, its working page, which every kernel writes.
	c.out.move.markWritten(s, c.states, 0, it.after)
	if s.Input.Pending() {
		c.out.move.markWritten(s, c.cross, int(s.Input.Computed)/c.config.TokensPerBlock, it.after)
	}
}

// takeNext takes the pages of the next checkpoint, or, when all of them are made, those of the
// next chunks.
func (c *commitStages) takeNext() {
	// A next chunk may evict, in an attention pool, the block that a checkpoint is made for.
	if c.checkpoints.at < len(c.checkpoints.steps) {
		c.takeCheckpoint()
		return
	}
	c.dropCheckpoints()
	c.wait(c, "committing: following", (*commitStages).moveVictims)
	for i := range c.batch.items {
		// After all drops, so that a next chunk can have what other sequences of the commit
		// have dropped, wherever they stand in the request.
		if it := &c.batch.items[i]; it.computed > 0 && it.sequence.Chunked() {
			c.spreadBeams(it)
			c.nextChunk(it)
		}
	}
	c.out.followUp()
}

// dropPassed drops the pages that leave their windows when n tokens are computed.
// Sequence.Commit takes the same range out of the tables in the same round, so each page is
// dropped once.
func (c *commitStages) dropPassed(s *sequence.Sequence, n int) {
	for p := range c.self.end {
		// Asked before the sequence is committed: afterwards its tables have NoPage there.
		from, to := s.LeavingWindow(p, sequence.TokenCount(n))
		if from >= to {
			continue
		}
		for _, table := range s.Tables(p) {
			// A kernel that the host has named may still read the pages. Their next owner has
			// to wait for it, and the offloader learns of it here, the last time that the
			// sequence has them.
			c.out.move.markRead(s, p, table[from:to])
			c.out.pools.drop(s, p, table[from:to], from)
		}
	}
}

// renewsStates tells whether a step is an Append: the next tokens begin with the state after those
// that are computed by then.
func (it *step) renewsStates() bool { return it.request != nil && !it.refused }

// dropDrafts drops the pages of states that a sequence has beyond those that its step asks for.
func (c *commitStages) dropDrafts(it *step) {
	s := it.sequence
	for p := c.states.first; p < c.states.end; p++ {
		computed := max(s.Computed(), sequence.TokenCount(it.computed))
		if left := sequence.DraftsLeft(s, p, 1+it.request.DraftStates, computed); len(left) > 0 {
			c.out.move.markRead(s, p, left)
			c.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: left, Use: s.Use})
		}
	}
}

// renewStates makes the state after the computed tokens the working page, and says which pages
// have changed places.
func (c *commitStages) renewStates(it *step) {
	s := it.sequence
	swapped := sequence.RenewStates(s, 1+it.request.DraftStates)
	for p := c.states.first; p < c.states.end && swapped > 0; p++ {
		table := s.Table(p)
		first := messages.PlacedPage{Pool: messages.PoolID(p), Page: table[0], Replaced: messages.NoPage}
		if swapped < len(table) {
			first.Replaced = table[swapped]
			it.result.Placed = append(it.result.Placed, first, messages.PlacedPage{
				Pool: messages.PoolID(p), Block: swapped, Page: table[swapped], Replaced: table[0],
			})
			continue
		}
		it.result.Placed = append(it.result.Placed, first)
	}
}

// spreadBeams adds the references of further beams when a commit computes the
// prompt, to the pages that stay in their windows.
func (c *commitStages) spreadBeams(it *step) {
	s := it.sequence
	// Until the prompt is computed all beams would hold the same pages in the same order, so one
	// table stands for them.
	beams := s.Beams()
	if beams < 2 || it.computed < int(s.Prompt) {
		return
	}
	for p := range c.self.end {
		table := s.Table(p)
		from, to := s.LeavingWindow(p, sequence.TokenCount(it.computed))
		// Nothing leaves the window: the whole table stays.
		if from >= to {
			from, to = sequence.BlockIndex(len(table)), sequence.BlockIndex(len(table))
		}
		c.out.pools.claimBeams(p, table[:from], beams)
		c.out.pools.claimBeams(p, table[to:], beams)
	}
}

// nextChunk takes the pages of the next chunk, or ends the reserve of a prompt that
// is computed.
func (c *commitStages) nextChunk(it *step) {
	s := it.sequence
	for p := range c.config.Pools {
		if !s.Covered(p) {
			continue
		}
		// The reserve ends, so pages that it covered count like others from now on.
		if it.computed >= int(s.Prompt) {
			sink, window := s.EndOfReserve(p, sequence.TokenCount(it.computed))
			for _, pages := range [][]messages.PageID{sink, window} {
				if len(pages) > 0 {
					c.out.pools.add(p, protocol.PoolOp{Kind: protocol.EndCoverage, Pages: pages})
				}
			}
			continue
		}
		// The reserve guarantees that the pages are there: a commit never fails for them.
		table := s.Table(p)
		end := c.config.blocks(int(s.NextChunkEnd(sequence.TokenCount(it.computed))))
		if n := end - len(table); n > 0 {
			// The operation gets the table as it is, with what leaves the window now; commitOne
			// takes that out of the answer.
			it.pools[p].fresh = c.out.pools.add(p, protocol.PoolOp{
				Kind: protocol.Take, N: n, Tenant: s.Tenant, Pages: table, CoveredByReservation: true,
			})
		}
	}
}

func (c *commitStages) stored() {
	c.out.applied()
	c.noteStored()
	c.follow()
}

// moved tells the tree of the victims of next chunks.
func (c *commitStages) moved() {
	c.out.moved()
	c.batch.copyTickets()
	c.wait(c, "committing: applying", (*commitStages).applied)
	c.out.apply()
}

func (c *commitStages) applied() {
	c.wait(c, "committing: following moves", (*commitStages).followedMoves)
	c.out.applied()
	c.out.followUp()
}

func (c *commitStages) followedMoves() {
	c.out.followed()
	c.commitAll()
}

// noteStored keeps what the tree has answered to the offers: the change may be used again
// before the sequences are committed.
func (c *commitStages) noteStored() {
	stores := c.out.change.Stores
	for i := range c.batch.items {
		it := &c.batch.items[i]
		if it.store >= 0 {
			m := &stores[it.store]
			it.stored = sequence.Stored{Blocks: sequence.BlockIndex(m.To / c.config.TokensPerBlock),
				Cursor: m.Cursor}
		}
		if it.input >= 0 {
			it.inputCursor = stores[it.input].Cursor
		}
	}
	for k := range c.checkpoints.steps {
		w := &c.checkpoints.steps[k]
		w.end = stores[c.batch.items[w.step].store].End
	}
}

// moveVictims brings the pages that next chunks took in order. Without any the sequences are
// committed at once.
func (c *commitStages) moveVictims() {
	c.out.followed()
	took := false
	for i := range c.batch.items {
		if it := &c.batch.items[i]; it.computed > 0 && it.sequence.Chunked() {
			took = c.noteNext(it) || took
		}
	}
	if !took {
		c.commitAll()
		return
	}
	c.out.move.victims(&c.out.pools)
	for i := range c.batch.items {
		if it := &c.batch.items[i]; it.computed > 0 {
			c.askWrites(it)
		}
	}
	c.wait(c, "committing: moving", (*commitStages).moved)
	c.out.move.send()
}

// noteNext notes the pages of the next chunk of a step, and tells whether there are any.
func (c *commitStages) noteNext(it *step) (took bool) {
	for p := range c.config.Pools {
		pages := &it.pools[p]
		if pages.fresh < 0 {
			continue
		}
		pages.next = c.out.pools.op(p, pages.fresh).Pages
		it.noteNew(p, 0, pages.before, pages.next[pages.before:])
		c.stats.allocated(p, len(pages.next)-pages.before)
		took = true
	}
	return took
}

// commitAll changes the sequences and answers. All actors have answered, so nothing can fail any
// more.
func (c *commitStages) commitAll() {
	for i := range c.batch.items {
		if it := &c.batch.items[i]; it.computed > 0 {
			c.commitOne(it)
		}
		if it := &c.batch.items[i]; !c.states.empty() && it.renewsStates() {
			c.renewStates(it)
		}
	}
	c.kernel.reply()
}

// commitOne changes the sequence of a step.
func (c *commitStages) commitOne(it *step) {
	s := it.sequence
	// Without an offer the cursor and the blocks that the tree knows of the sequence stay as
	// they were.
	var stored *sequence.Stored
	if it.store >= 0 {
		stored = &it.stored
	}
	s.Commit(sequence.TokenCount(it.computed), stored)
	// No layer of the decoder could have computed anything without the encoder's input, so all
	// of it is computed. The zero cursor leaves that of the input as it is.
	if s.Input.Pending() {
		s.Input.Commit(it.inputCursor)
	}
	for p := range it.pools {
		if table := it.pools[p].next; table != nil {
			copy(table, s.Table(p)) // it began with the blocks that have left now
			s.SetTable(p, table)
		}
	}
}

// askWrites asks what the new pages of a step wait for. Pools in which the step took nothing
// have an empty list, because lists are by pool.
func (c *commitStages) askWrites(it *step) {
	it.query = c.out.move.ask(c.all.end, func(p int) (_, write []messages.PageID) {
		return nil, it.result.NewPages[p]
	})
}
