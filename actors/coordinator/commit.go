package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
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
		it := b.enter(request.Sequence, request.After, result, func(s *sequence.Sequence) error {
			return b.config.validateCommit(s, request.Computed, int(s.Length()))
		})
		if it == nil {
			continue
		}
		it.computed = request.Computed
		s := it.sequence
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

// offer is what a sequence offers to the tree. Some of its pages may cache a block already.
type offer struct {
	from, to int // blocks whose pages are asked about; none if from ≥ to
	op       int // the operation that asks, the same in all pools
	// by pool, without pages that cache a block; nil: those of the sequence
	tables [][]messages.PageID
}

// asks tells whether the pools have to be asked.
func (f *offer) asks() bool { return f.from < f.to }

// ask asks the pools of blocks what the pages cache. State pools are left out, because each fork
// has its own working page; so are cross pools, because a sequence is forked only when its prompt
// is computed, and its input with it.
func (f *offer) ask(s *sequence.Sequence, pools *poolBatches, blocks poolRange) {
	for p := range blocks.end {
		f.op = pools.add(p, protocol.PoolOp{Kind: protocol.Inspect, Pages: s.Table(p)[f.from:f.to]})
	}
}

// answered leaves out what lies in pages that cache a block already. A block that is left out in
// one pool may still be offered in another.
func (f *offer) answered(s *sequence.Sequence, pools *poolBatches, blocks poolRange) {
	// A copy of the tables: what is left out of an offer stays in the sequence's table.
	f.tables = make([][]messages.PageID, len(pools.work))
	for p := range blocks.end {
		f.tables[p] = slices.Clone(s.Table(p))
		for b, share := range pools.op(p, f.op).Shares {
			if share.Stored {
				f.tables[p][f.from+b] = messages.NoPage
			}
		}
	}
}

// inspectForks asks the pools about the pages that forks commit, and tells whether there are any.
// From SharedBlocks on the pages are the sequence's own, and cache nothing before the sequence
// stores it.
func (c *commit) inspectForks() (asked bool) {
	c.out.pools.reset()
	tpb := c.config.TokensPerBlock
	for i := range c.batch.items {
		it := &c.batch.items[i]
		s := it.sequence
		if !s.Forked() || it.computed <= int(s.Computed()) {
			continue
		}
		it.offer.from, it.offer.to = int(s.Computed())/tpb, min(int(s.SharedBlocks()), it.computed/tpb)
		if it.offer.asks() {
			it.offer.ask(s, &c.out.pools, c.self)
			asked = true
		}
	}
	return asked
}

// forksInspected takes over the answers.
func (c *commit) forksInspected() {
	c.out.pools.received()
	for i := range c.batch.items {
		if it := &c.batch.items[i]; it.offer.asks() {
			it.offer.answered(it.sequence, &c.out.pools, c.self)
		}
	}
	c.commit()
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
