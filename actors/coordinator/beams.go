package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A beam step first follows the parents: beam i becomes a copy of its parent,
// parents that nobody chose let their pages go. Then every page that holds
// positions from the first uncomputed one on becomes the beam's own, and new
// blocks get their pages, one beam after the other.

// takeBeams judges one step of a sequence with beams.
func (c *Coordinator) takeBeams(it *step) bool {
	s := it.sequence
	blocks := ceilDiv(s.length()+1, c.TokensPerBlock)
	chosen := make([]int, s.width())
	for _, b := range it.request.Beams {
		chosen[b.Parent]++
	}
	shares := make([]map[messages.PageID]protocol.Share, len(s.pools))
	freed := make([]int, len(s.pools))
	for p := range s.pools {
		freed[p] = c.followParents(it, p, chosen, shares)
		need := c.findBeamRewrites(it, p, shares[p]) + s.width()*(blocks-it.pools[p].before)
		if available := max(0, c.available(p)-c.stepping.taken[p]+freed[p]); need > available {
			c.refuseStep(it, messages.RefusePages(c.Pools[p].Name, need, available))
			return false
		}
	}
	for p := range s.pools {
		c.takeBeamPages(it, p, chosen, blocks)
		c.stepping.taken[p] -= freed[p]
		for page, share := range shares[p] {
			c.stepping.shares[p][page] = share
		}
	}
	return true
}

// followed is the first block whose pages change hands when beams follow their
// parents: a parent that nobody chose lets all its pages go, others those only
// that their beams will write to.
func (it *step) followed() int {
	for parent := range it.sequence.width() {
		if !slices.ContainsFunc(it.request.Beams, func(b messages.BeamStep) bool { return b.Parent == parent }) {
			return 0
		}
	}
	return it.first
}

// followParents works out who holds these pages after the beams followed
// their parents; it answers how many pages nobody holds then.
func (c *Coordinator) followParents(it *step, p int, chosen []int, shares []map[messages.PageID]protocol.Share) int {
	s := it.sequence
	now := map[messages.PageID]protocol.Share{}
	for j, table := range s.pools[p].tables {
		for _, page := range table[it.followed():] {
			if page == messages.NoPage {
				continue
			}
			share, seen := now[page]
			if !seen {
				share = c.stepping.shares[p][page]
			}
			share.References += int32(chosen[j]) - 1
			now[page] = share
		}
	}
	freed := 0
	for _, share := range now {
		if share.References == 0 && share.Pins == 0 {
			freed++
		}
	}
	shares[p] = now
	return freed
}

// findBeamRewrites lists the pages that beams must copy, in order of beams.
func (c *Coordinator) findBeamRewrites(it *step, p int, shares map[messages.PageID]protocol.Share) int {
	s, pages := it.sequence, &it.pools[p]
	pages.copies = pages.copies[:0]
	for i, b := range it.request.Beams {
		table := s.pools[p].tables[b.Parent]
		for block := it.first; block < len(table); block++ {
			page := table[block]
			share := shares[page]
			if shared(share) {
				pages.copies = append(pages.copies, rewrite{beam: i, block: block, from: page, to: messages.NoPage})
				share.References--
				shares[page] = share
			}
		}
	}
	return len(pages.copies)
}

// takeBeamPages orders the operations of one pool: references of the parents
// that were chosen more than once, those that were not chosen, copies, blocks.
func (c *Coordinator) takeBeamPages(it *step, p int, chosen []int, blocks int) {
	s, pages := it.sequence, &it.pools[p]
	for j, n := range chosen {
		for range n - 1 {
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: s.pools[p].tables[j]})
		}
	}
	for j, n := range chosen {
		if n == 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: s.pools[p].tables[j], Use: s.use})
		}
	}
	n := len(pages.copies) + s.width()*(blocks-pages.before)
	c.stepping.taken[p] += n
	if n > 0 {
		pages.copyOp = c.add(p, protocol.PoolOp{Kind: protocol.Take, N: n, Tenant: s.tenant})
	}
	if len(pages.copies) > 0 {
		old := make([]messages.PageID, 0, len(pages.copies))
		for _, w := range pages.copies {
			old = append(old, w.from)
		}
		c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: old, Use: s.use.Early()})
	}
}

// settleBeams rebuilds the tables of one pool: parents' tables, copies, new
// blocks, in the order in which the pages were counted.
func (c *Coordinator) settleBeams(it *step, p int) bool {
	s, pages := it.sequence, &it.pools[p]
	old := s.pools[p].tables
	pages.old = old
	for _, table := range old { // some of them are let go
		c.markRead(s, p, table[it.followed():])
	}
	tables := make([][]messages.PageID, len(old))
	for i, b := range it.request.Beams {
		tables[i] = append([]messages.PageID(nil), old[b.Parent]...)
	}
	s.pools[p].tables = tables
	if pages.copyOp < 0 {
		return false
	}
	taken := c.work[p].Ops[pages.copyOp].Pages
	fresh := ceilDiv(s.length(), c.TokensPerBlock) - pages.before
	next, k := 0, 0
	for i := range tables {
		for ; k < len(pages.copies) && pages.copies[k].beam == i; k++ {
			c.settleBeamCopy(it, p, &pages.copies[k], taken[next])
			next++
		}
		tables[i] = append(tables[i], taken[next:next+fresh]...)
		it.result.NewPages[p] = append(it.result.NewPages[p], taken[next:next+fresh]...)
		next += fresh
	}
	c.stats.Pools[p].AllocatedPages += int64(len(taken))
	return true
}

// settleBeamCopy places one copy on write of a beam.
func (c *Coordinator) settleBeamCopy(it *step, p int, w *rewrite, page messages.PageID) {
	s := it.sequence
	c.markRead(s, p, []messages.PageID{w.from})
	w.to = page
	s.pools[p].tables[w.beam][w.block] = page
	it.result.NewPages[p] = append(it.result.NewPages[p], page)
	written := it.written()
	if tokens := min(c.TokensPerBlock, written-w.block*c.TokensPerBlock); tokens > 0 {
		q := &c.move.Pools[p]
		q.Copies = append(q.Copies, protocol.PageCopy{From: messages.OnDevice(w.from), Block: protocol.NoBlock, To: page, Tokens: tokens})
		c.ordered = true
	}
}

// addBeamTokens makes each beam its parent's tokens and one more.
func (c *Coordinator) addBeamTokens(it *step) {
	s := it.sequence
	tokens := make([][]messages.Token, s.width())
	for i, b := range it.request.Beams {
		tokens[i] = append(append([]messages.Token(nil), s.tokens[b.Parent]...), b.Token)
	}
	s.tokens = tokens
}
