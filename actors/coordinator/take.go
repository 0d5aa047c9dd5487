package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// take asks the pools for the pages of all admitted items: first the pages for
// partial copies, their sources held so that they are no victims, then all
// others.
func (c *Coordinator) take() {
	c.resetWork()
	a := &c.admitting
	for i := range a.items {
		if it := &a.items[i]; it.refused == nil {
			it.sequence.use = c.nextUse()
			c.holdSource(i)
		}
	}
	for i := range a.items {
		if it := &a.items[i]; it.refused == nil && it.how == messages.PartialCopy {
			c.takeCopyPages(it)
		}
	}
	for i := range a.items {
		if it := &a.items[i]; it.refused == nil && it.how == messages.PartialCopy {
			c.dropSource(i)
		}
	}
	for i := range a.items {
		if it := &a.items[i]; it.refused == nil {
			c.takePages(it)
		}
	}
	c.sendPools((*Coordinator).taken)
}

// holdSource claims the source of a partial reuse: for good by a takeover,
// until the copies have their pages otherwise.
func (c *Coordinator) holdSource(i int) {
	it, source := &c.admitting.items[i], &c.match.Items[i].Source
	if it.how == messages.PartialNone {
		return
	}
	for p := range c.Pools {
		page, tier, _ := source.Pages[p].Page()
		if tier != messages.Primary {
			continue
		}
		pages := it.plans[p].source[:]
		if it.how == messages.PartialCopy {
			c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
			continue
		}
		c.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages, CoveredByReservation: c.sheltered(it.sequence, p)})
		held := &it.sequence.pools[p]
		held.tables[0] = append(held.tables[0], page)
	}
}

// takeCopyPages takes a page in each pool for a partial copy.
func (c *Coordinator) takeCopyPages(it *admission) {
	for p := range c.Pools {
		pl := &it.plans[p]
		pl.copyPage = c.add(p, protocol.PoolOp{
			Kind: protocol.Take, N: 1, Pages: pl.copied[:0], Tenant: it.sequence.tenant, CoveredByReservation: c.sheltered(it.sequence, p),
		})
		held := &it.sequence.pools[p]
		held.tables[0] = append(held.tables[0], messages.NoPage)
	}
}

// dropSource lets the source of a copy go: from now on it may be a victim.
func (c *Coordinator) dropSource(i int) {
	it, source := &c.admitting.items[i], &c.match.Items[i].Source
	for p := range c.Pools {
		if _, tier, _ := source.Pages[p].Page(); tier == messages.Primary {
			c.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: it.plans[p].source[:], Use: it.sequence.use.Early()})
		}
	}
}

// takePages takes pages for what comes from host memory, then for all tokens
// that must be computed. A block that is taken over from host memory is the
// first after the whole ones.
func (c *Coordinator) takePages(it *admission) {
	for p := range c.Pools {
		pl, held := &it.plans[p], &it.sequence.pools[p]
		if pl.hosted > 0 {
			pl.onboard = c.add(p, protocol.PoolOp{Kind: protocol.Take, N: pl.hosted, Tenant: it.sequence.tenant})
		}
		if n := pl.blocks - len(held.tables[0]); n > 0 {
			pl.fresh = c.add(p, protocol.PoolOp{
				Kind: protocol.Take, N: n, Tenant: it.sequence.tenant, Pages: held.tables[0], CoveredByReservation: c.sheltered(it.sequence, p),
			})
		}
	}
}

// taken writes the pages into the tables and hands victims and transfers to
// the offloader.
func (c *Coordinator) taken() {
	c.pooled()
	c.resetMove()
	c.takeVictims()
	a := &c.admitting
	for i := range a.items {
		if it := &a.items[i]; it.refused == nil {
			c.settle(i)
		}
	}
	if c.ordered {
		for i := range a.items {
			if it := &a.items[i]; it.refused == nil {
				c.askReady(it)
			}
		}
	}
	c.sendMove((*Coordinator).admitMoved)
}

// settle completes the tables of item i and plans its transfers.
func (c *Coordinator) settle(i int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	for p := range c.Pools {
		pl, held := &it.plans[p], &it.sequence.pools[p]
		ops := c.work[p].Ops
		count := &c.stats.Pools[p].PoolCounters
		if pl.fresh >= 0 {
			held.tables[0] = ops[pl.fresh].Pages
			count.AllocatedPages += int64(ops[pl.fresh].N)
		}
		if pl.onboard >= 0 {
			count.AllocatedPages += int64(ops[pl.onboard].N)
		}
		if pl.full > pl.claimed {
			c.settleOnboards(i, p)
		}
		switch it.how {
		case messages.PartialCopy:
			c.settleCopy(i, p)
			count.AllocatedPages++
		case messages.PartialTakeover:
			if pl.inspect < 0 { // from host memory
				q := &c.move.Pools[p]
				q.Onboards = append(q.Onboards, protocol.Onboard{Block: m.Source.Block, To: held.tables[0][m.Blocks], Free: true})
				c.ordered = true
			}
		}
	}
}

// settleOnboards gives the blocks that come from host memory their pages. What
// an earlier item brings is shared with it.
func (c *Coordinator) settleOnboards(i, p int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	pl := &it.plans[p]
	var pages []messages.PageID
	if pl.onboard >= 0 {
		pages = c.work[p].Ops[pl.onboard].Pages
	}
	q := &c.move.Pools[p]
	table := it.sequence.pools[p].tables[0]
	next := 0
	for b, at := range m.Pages[p][:m.Blocks] {
		if _, tier, ok := at.Page(); ok && tier == messages.Secondary {
			if from := c.bringer(i, p, b); from != nil {
				table[b] = from.sequence.pools[p].tables[0][b]
				pl.shared = append(pl.shared, table[b])
				continue
			}
			table[b] = pages[next]
			q.Onboards = append(q.Onboards, protocol.Onboard{Block: m.IDs[b], To: pages[next]})
			next++
		}
	}
	c.ordered = true
}

// settleCopy plans the partial copy of item i.
func (c *Coordinator) settleCopy(i, p int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	page := c.work[p].Ops[it.plans[p].copyPage].Pages[0]
	it.sequence.pools[p].tables[0][m.Blocks] = page
	q := &c.move.Pools[p]
	q.Copies = append(q.Copies, protocol.PageCopy{From: m.Source.Pages[p], Block: m.Source.Block, To: page, Tokens: m.Source.Tokens})
	if _, tier, _ := m.Source.Pages[p].Page(); tier == messages.Secondary {
		q.Touches = append(q.Touches, protocol.Touch{Block: m.Source.Block, Use: it.sequence.use.Early()})
	}
	c.ordered = true
}

// askReady asks what an admission's pages wait for: whole blocks are read,
// all others written.
func (c *Coordinator) askReady(it *admission) {
	var r *protocol.WaitQuery
	r, it.ready = c.addReady()
	own := it.sequence.own
	for p := range c.Pools {
		table := it.sequence.pools[p].tables[0]
		r.Read = append(r.Read, table[:own])
		r.Write = append(r.Write, table[own:])
	}
}

// admitMoved tells the tree what moved and what was claimed. An item whose
// transfer failed is taken back, to be admitted again with what is left.
func (c *Coordinator) admitMoved() {
	c.resetApply()
	c.moved()
	for p := range c.move.Pools {
		c.applyTransfers(p)
	}
	for i := range c.admitting.items {
		it := &c.admitting.items[i]
		if it.refused != nil && it.refused != errTransfer {
			continue
		}
		if it.ready >= 0 && it.result != nil {
			it.result.Ready = append(it.result.Ready[:0], c.move.Queries[it.ready].Tickets...)
		}
		c.applyClaim(i)
	}
	if c.applyNeeded() {
		c.sendApply((*Coordinator).admitAnswer)
		return
	}
	c.admitAnswer()
}

// applyTransfers tells the tree which blocks are on the device now. A block
// that could not be brought in is forgotten, so that its admission finds what
// is left when it is matched again.
func (c *Coordinator) applyTransfers(p int) {
	q, count := &c.move.Pools[p], &c.stats.Pools[p].PoolCounters
	var failed map[messages.PageID]bool
	fail := func(page messages.PageID) {
		if failed == nil {
			failed = map[messages.PageID]bool{}
		}
		failed[page] = true
	}
	id := messages.PoolID(p)
	for k := range q.Onboards {
		o := &q.Onboards[k]
		to := messages.OnDevice(o.To)
		if o.Failed {
			to = messages.Nowhere
			count.Dropped++
			c.lostHost = append(c.lostHost, protocol.Effect{Kind: protocol.HostForget, Pool: id, Blocks: []protocol.BlockID{o.Block}})
			c.pins.forget(p, c.lostHost[len(c.lostHost)-1].Blocks)
			fail(o.To)
		} else {
			count.Onboarded++
			count.BytesOnboarded += c.Pools[p].PageBytes()
		}
		if !o.Free {
			c.apply.Moves = append(c.apply.Moves, protocol.BlockMove{Pool: id, Block: o.Block, To: to})
		}
	}
	for k := range q.Copies {
		if q.Copies[k].Failed {
			fail(q.Copies[k].To)
		}
	}
	if failed != nil {
		c.markAgain(p, failed)
	}
}

// markAgain notes the items whose tables hold a page that has not been written.
func (c *Coordinator) markAgain(p int, failed map[messages.PageID]bool) {
	for i := range c.admitting.items {
		it := &c.admitting.items[i]
		if it.refused == nil && slices.ContainsFunc(it.sequence.pools[p].tables[0], func(page messages.PageID) bool { return failed[page] }) {
			it.refused = errTransfer
		}
	}
}

// errTransfer marks an item whose transfer failed.
var errTransfer = messages.Refuse(messages.Internal, "a transfer into the pages of the admission failed")

// applyClaim tells the tree what the item reuses.
func (c *Coordinator) applyClaim(i int) {
	it, m := &c.admitting.items[i], &c.match.Items[i]
	source := m.Source.Block
	if it.how == messages.PartialTakeover {
		c.apply.Takeovers = append(c.apply.Takeovers, source)
		source = protocol.NoBlock
	}
	if c.admitting.purpose != toAdmit || it.refused != nil || m.Blocks == 0 && source == protocol.NoBlock {
		return
	}
	s := it.sequence
	c.apply.Claims = append(c.apply.Claims, protocol.ClaimItem{
		Blocks: m.IDs[:m.Blocks], Source: source, Session: s.session, Retention: s.retention, Prompt: s.prompt,
	})
}
