package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Checkpoints of recurrent states. A commit that ends where its sequence wants a
// checkpoint copies the working page for the block that ends there. Of the stages of a
// commit these have a part in it:
//
//	storing ─▶ following ─▶ copying ─▶ attaching ─┐
//	the tree   state pools  working    the tree   │
//	finds the  take pages   page to    learns of  │
//	block         ▲         the other  it         │
//	              └───────────────────────────────┘ next step, then next chunks
//
// Checkpoints are made in the order of the steps, one step after the other, each on the state
// that those before it have left: a page for one may be that of another's checkpoint, of a block
// that a later step ends in.
//
// A commit never fails for want of a checkpoint. Where there is no page none is made.

// checkpointMaking is the checkpoints of one commit. It is apart from the steps, which
// are many more in a step of a large batch, and are passed over each time.
type checkpointMaking struct {
	steps []checkpointStep // in the order of the steps
	at    int              // the step whose checkpoint is made next; those before it are done
}

// checkpointStep is a step that makes a checkpoint. end.Lacks are the pools that have no
// checkpoint of the block yet. Only those have an operation in pages.
type checkpointStep struct {
	step   int
	end    protocol.StoredEnd // the block that its offer ends with
	pages  []checkpointPage   // by pool
	made   []messages.PageID  // by pool: the pages that hold the checkpoint
	lacked []messages.PoolID  // array for an answer that is not needed
	offer  int                // to the tree, in the change that attaches the checkpoint; −1: none
}

// checkpointPage is the page of a checkpoint, taken by an operation; −1: none. page is the
// array that the operation appends to, so that taking a page allocates nothing.
type checkpointPage struct {
	page [1]messages.PageID
	op   int
}

func (m *checkpointMaking) reset() {
	m.steps, m.at = m.steps[:0], 0
}

// want notes that step i makes a checkpoint of the block that its offer ends with. The
// arrays of an earlier commit are used again.
func (m *checkpointMaking) want(i, pools int, offer *protocol.StoreItem) {
	w := lengthen(&m.steps)
	if w.step = i; w.pages == nil {
		w.pages = make([]checkpointPage, pools)
	}
	for p := range w.pages {
		w.pages[p].op = -1
	}
	offer.FindEnd, offer.End.Lacks = true, w.end.Lacks[:0]
}

// takeCheckpoint takes pages for the checkpoint of the step that is next. A pool without a page
// that may be taken leaves the operation empty; that is no refusal.
func (c *commitStages) takeCheckpoint() {
	it := &c.checkpoints.steps[c.checkpoints.at]
	for _, p := range it.end.Lacks {
		pages := &it.pages[p]
		pages.op = c.out.pools.add(int(p), protocol.PoolOp{
			Kind: protocol.TakeForCheckpoint, Pages: pages.page[:0], Priority: it.end.Priority,
			Tenant: c.batch.items[it.step].sequence.Tenant,
		})
	}
	c.wait(c, "committing: following", (*commitStages).copyCheckpoint)
	c.out.followUp()
}

// copyCheckpoint orders the copies, and asks when the working pages may be written to again.
func (c *commitStages) copyCheckpoint() {
	c.out.followed()
	c.out.move.victims(&c.out.pools)
	w := &c.checkpoints.steps[c.checkpoints.at]
	it := &c.batch.items[w.step]
	copies := false
	for _, p := range w.end.Lacks {
		pages := &w.pages[p]
		op := c.out.pools.op(int(p), pages.op)
		// No page was free, and none caches what is worth less.
		if len(op.Pages) == 0 {
			c.stats.pool(int(p)).CheckpointsSkipped++
			pages.op = -1
			continue
		}
		// The offloader has been told of the kernel that writes the working page with the
		// message before, so the copy waits for it.
		copies = true
		c.stats.allocated(int(p), 1)
		c.out.move.copy(int(p), protocol.PageCopy{
			From:  protocol.OnDevice(it.sequence.StateAfter(int(p), sequence.TokenCount(it.computed))),
			Block: protocol.NoBlock,
			To:    op.Pages[0], Tokens: c.config.TokensPerBlock,
		})
	}
	if copies {
		c.askWorkingPages(it)
	}
	c.wait(c, "committing: copying", (*commitStages).attachCheckpoint)
	c.out.move.send()
}

// askWorkingPages asks what the working pages of a step wait for. The copy reads them until it
// is over, and the next kernel of the sequence writes to them.
func (c *commitStages) askWorkingPages(it *step) {
	it.query = c.out.move.ask(c.states.end, func(p int) (_, write []messages.PageID) {
		if c.states.has(p) {
			write = it.sequence.Table(p)
		}
		return nil, write
	})
}

// attachCheckpoint tells the tree of the checkpoint, and of the victims that its pages had. The
// tree learns of both in one change, moves first: a victim has left its page when that becomes a
// checkpoint. Blocks may have got or lost checkpoints since the tree was asked where the next
// step ends, so it is asked again.
func (c *commitStages) attachCheckpoint() {
	// The answers to the stores have been noted: the change is used again.
	c.out.moved()
	c.batch.copyTickets()
	m := &c.checkpoints
	if step := &c.batch.items[m.steps[m.at].step]; c.handOver(&m.steps[m.at]) {
		c.thrash.note(&step.sequence.Namespace, step.sequence.Tokens(0)[:step.computed])
	}
	if m.at++; m.at < len(m.steps) {
		it := &m.steps[m.at]
		c.offerEnd(it).End.Lacks = it.end.Lacks[:0]
	}
	c.wait(c, "committing: attaching", (*commitStages).attached)
	c.out.apply()
}

// handOver gives the pages of a step that hold its checkpoint to the tree, and tells whether all
// pools have the checkpoint then. Without pools of tokens the step is offered in any case, since
// the block, if it is there, is shared by it.
func (c *commitStages) handOver(it *checkpointStep) (whole bool) {
	it.made, it.offer = it.made[:0], -1
	for range c.states.end {
		it.made = append(it.made, messages.NoPage)
	}
	offered, whole := c.self.empty(), true
	for _, p := range it.end.Lacks {
		pages := &it.pages[p]
		if pages.op < 0 {
			whole = false
			continue
		}
		page := pages.page[0]
		// The block goes without. The page is dropped with nothing in it, and is free.
		if c.out.move.copyFailed(int(p), page) {
			c.stats.pool(int(p)).CheckpointsSkipped++
			whole = false
			continue
		}
		c.stats.pool(int(p)).Checkpoints++
		it.made[p], offered = page, true
	}
	if offered {
		offer := c.offerEnd(it)
		offer.HandOver, offer.End.Lacks = it.made, it.lacked[:0]
	}
	return whole
}

// offerEnd makes an offer of the block that a step ends with, without pages of tokens.
func (c *commitStages) offerEnd(it *checkpointStep) *protocol.StoreItem {
	step := &c.batch.items[it.step]
	to := c.config.wholeTokens(step.computed)
	it.offer = c.out.store(step.sequence, to-c.config.TokensPerBlock, to)
	offer := &c.out.change.Stores[it.offer]
	offer.Tables, offer.FindEnd, offer.Cursor = nil, true, step.stored.Cursor
	return offer
}

// attached notes what the tree has answered of the step and of the next one, and goes on with
// that.
func (c *commitStages) attached() {
	c.out.applied()
	m := &c.checkpoints
	for k := m.at - 1; k <= m.at && k < len(m.steps); k++ {
		it := &m.steps[k]
		if it.offer < 0 {
			continue
		}
		offer := &c.out.change.Stores[it.offer]
		c.batch.items[it.step].stored.Cursor = offer.Cursor
		if k < m.at {
			it.lacked = offer.End.Lacks
		} else {
			it.end = offer.End
		}
	}
	c.takeNext()
}

// dropCheckpoints gives up the references with which the pages of all checkpoints were taken:
// from now on they are cached, last used by the request that has made them. Until the last is
// made they are held, for a request evicts no checkpoint that it has made itself.
func (c *commitStages) dropCheckpoints() {
	for k := range c.checkpoints.steps {
		it := &c.checkpoints.steps[k]
		for _, p := range it.end.Lacks {
			if pages := &it.pages[p]; pages.op >= 0 {
				c.out.pools.add(int(p), protocol.PoolOp{Kind: protocol.Drop, Pages: pages.page[:],
					Use: c.batch.items[it.step].sequence.Use})
			}
		}
	}
}
