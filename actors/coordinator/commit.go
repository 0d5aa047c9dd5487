package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// commit serves Commit: computed tokens become reusable.
//
//	start ─▶ inspecting ─▶ storing ─▶ following ─▶ moving ─▶ applying ─▶ followingMoves ─▶ answer
//	         pages that    the tree   pools follow, │ pages of next chunks have victims
//	         forks commit  stores     windows move, │
//	                                  next chunks   └─▶ answer, when no chunk took pages
//	                                  take pages
//
// An Append commits what it computes in the same way, from storing on.
//
// batch and committing are the records that an Append uses as well. Each of the two
// transactions empties them when it starts, so neither finds what the other has left.
type commit struct {
	*shared
	stages[commit]
	batch      *stepBatch
	committing *commitStages // its stage is that of the commit
	request    *messages.Commit
}

// start enters the steps that are right.
func (c *commit) start(request any) {
	c.request = request.(*messages.Commit)
	b, r := c.batch, c.request
	b.reset()
	c.committing.reset()
	r.Results = emptyResults(r.Results, len(r.Steps), len(c.config.Pools))
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		s, err := b.find(request.Sequence, result)
		if err == nil {
			err = b.validateCommit(s, request.Computed, int(s.Length()))
		}
		if err != nil {
			b.refuse(result, request.After, err)
			continue
		}
		// The item is complete before the sequence changes: should the coordinator fail in
		// between, the recovery finds what the request has touched.
		it := b.add(s, result)
		it.computed, it.after = request.Computed, request.After
		s.Usage.SetAfter(it.after)
		// By default a commit is a part of the request before it on its sequence: pages that it
		// drops get that use. So it makes no difference to what is evicted first whether a host
		// commits in one piece or in several.
		if request.Computed > int(s.Computed()) && request.SeparateRequest || s.Usage.Use() == 0 {
			s.Usage.SetUse(c.uses.next())
		}
	}
	c.out.resetChange()
	// Without forks nothing has to be asked, and the commit begins with the tree.
	if c.inspectForks() {
		c.wait(c, "inspecting", (*commit).forksInspected)
		c.out.pools.send()
		return
	}
	c.commit()
}

// commit goes on with the stages that an Append has as well.
func (c *commit) commit() {
	c.wait(c, committing, (*commit).committed)
	c.committing.begin()
}

func (c *commit) committed() {
	if c.committing.proceed() {
		c.kernel.reply()
	}
}

// A page that a fork holds may cache a block by the time the fork commits it: a
// fork that had computed less of it was released and left it as a partial block.
// A page caches at most one block, so such pages are not offered.

// sharedRange is the range of blocks that a step stores and others may hold. Only
// forks have any. From SharedBlocks on the pages are the sequence's own. The ends are block
// indexes, [from, to).
func (c *commit) sharedRange(it *step) (from, to int) {
	s := it.sequence
	// Only pages that another sequence held, or holds, can cache something: a page of the
	// sequence's own caches nothing before the sequence stores it.
	if !s.Forked() || it.computed <= int(s.Computed()) {
		return 0, 0
	}
	tpb := c.config.TokensPerBlock
	return int(s.Computed()) / tpb, min(int(s.SharedBlocks()), it.computed/tpb)
}

// inspectForks asks the pools about the pages that forks commit. State pools are left out,
// because each fork has its own working page; so are cross pools, because a sequence is forked
// only when its prompt is computed, and its input with it.
func (c *commit) inspectForks() bool {
	c.out.pools.reset()
	asked := false
	for i := range c.batch.items {
		it := &c.batch.items[i]
		from, to := c.sharedRange(it)
		if from >= to {
			continue
		}
		asked = true
		for p := range c.self.end {
			c.out.pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: it.sequence.Table(p)[from:to]})
		}
	}
	return asked
}

// forksInspected leaves out what lies in pages that cache a block already. A block that is left
// out in one pool may still be offered in another.
func (c *commit) forksInspected() {
	c.out.pools.received()
	// A step has one operation in each pool, at the same index in all of them.
	next := 0
	for i := range c.batch.items {
		it := &c.batch.items[i]
		from, to := c.sharedRange(it)
		if from >= to {
			continue
		}
		// A copy of the tables: what is left out of an offer stays in the sequence's table.
		it.offered = make([][]messages.PageID, len(c.config.Pools))
		for p := range c.self.end {
			it.offered[p] = slices.Clone(it.sequence.Table(p))
			copy(it.offered[p][from:to], unstored(c.out.pools.op(p, next)))
		}
		next++
	}
	c.commit()
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

// undo leaves what was offered to the tree shared. What the tree has stored without an answer
// is offered a second time when the host repeats the commit, and the tree keeps the block that
// it has.
func (c *commit) undo() { c.batch.shareOffered() }

// String names the stage.
func (c *commit) String() string {
	if c.stage == committing {
		return fmt.Sprintf("commit: %v", c.committing.stage)
	}
	return fmt.Sprintf("commit: %v", c.stage)
}
