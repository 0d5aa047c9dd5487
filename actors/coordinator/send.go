package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// resetWork empties the batches for the pools; their answers are gone then.
func (c *Coordinator) resetWork() {
	for p := range c.work {
		c.work[p].Ops = c.work[p].Ops[:0]
	}
}

// add queues an operation for a pool and gives its index. What an earlier
// operation at this index answered in Shares gives its array to this one.
func (c *Coordinator) add(pool int, op protocol.PoolOp) int {
	w := &c.work[pool]
	n := len(w.Ops)
	if n < cap(w.Ops) {
		op.Shares = w.Ops[:n+1][n].Shares[:0]
	}
	w.Ops = append(w.Ops, op)
	return n
}

// sendPools sends every pool that has operations its batch.
func (c *Coordinator) sendPools(next func(*Coordinator)) {
	c.next = next
	for p := range c.work {
		w := &c.work[p]
		w.Victims = w.Victims[:0]
		if len(w.Ops) == 0 {
			continue
		}
		w.Epoch, w.Now = c.epoch, c.now
		c.pending++
		c.port.Pool(w)
	}
}

// pooled takes over the counts that the pools answered.
func (c *Coordinator) pooled() {
	for p := range c.work {
		if len(c.work[p].Ops) > 0 {
			c.noteChurn(p)
			c.pages[p] = c.work[p].Counts
		}
	}
}

func (c *Coordinator) resetApply() {
	a := &c.apply
	a.Now, a.Epoch = c.now, c.epoch
	a.Moves, a.Takeovers, a.Claims, a.Stores, a.ReleasedSymbols = a.Moves[:0], a.Takeovers[:0], a.Claims[:0], a.Stores[:0], a.ReleasedSymbols[:0]
	a.Effects = a.Effects[:0]
}

// applyNeeded tells whether the tree has anything to do.
func (c *Coordinator) applyNeeded() bool {
	a := &c.apply
	return len(a.Moves)+len(a.Takeovers)+len(a.Claims)+len(a.Stores)+len(a.ReleasedSymbols) > 0
}

// sendApply sends the tree its changes; after them pools and offloader follow,
// then comes the stage after.
func (c *Coordinator) sendApply(after func(*Coordinator)) {
	c.after = after
	c.owed = c.apply.Moves
	c.next = (*Coordinator).applied
	c.pending++
	c.port.Tree(&c.apply)
}

// applied sends the effects of an Apply on.
func (c *Coordinator) applied() {
	c.nextExpiry = c.apply.NextExpiry
	c.owed = nil
	c.stored(c.apply.Stores)
	c.resetWork()
	c.resetMove()
	c.route(c.apply.Effects)
	if extra := c.extra; extra != nil {
		c.extra = nil
		extra(c)
	}
	c.sendEffects()
}

// sendEffects sends what route has queued, and goes on with the stage after.
func (c *Coordinator) sendEffects() {
	c.sendPools((*Coordinator).followed)
	if c.moveNeeded() {
		c.moving = true
		c.pending++
		c.port.Offloader(&c.move)
	}
}

// followed ends the effects.
func (c *Coordinator) followed() {
	c.pooled()
	c.hosted()
	c.next = c.after
}

// route turns effects of the tree into operations for pools and offloader.
func (c *Coordinator) route(effects []protocol.Effect) {
	for i := range effects {
		e := &effects[i]
		pool := int(e.Pool)
		switch e.Kind {
		case protocol.Attach:
			c.add(pool, protocol.PoolOp{Kind: protocol.AttachPages, Pages: e.Pages, Blocks: e.Blocks, Depth: e.Depth, Priority: e.Priority, Until: e.Until})
			c.movePins(pool, e)
		case protocol.Detach:
			c.add(pool, protocol.PoolOp{Kind: protocol.DetachPages, Pages: e.Pages})
			c.pins.forget(pool, e.Blocks)
		case protocol.Reprioritize:
			c.add(pool, protocol.PoolOp{Kind: protocol.SetPriority, Pages: e.Pages, Priority: e.Priority, Until: e.Until})
		case protocol.HostForget:
			c.pins.forget(pool, e.Blocks)
			c.hostEffect(e)
		default:
			c.hostEffect(e)
		}
	}
}

// hostEffect passes an effect to the offloader if the pool has host memory.
func (c *Coordinator) hostEffect(e *protocol.Effect) {
	if c.host[e.Pool].Total > 0 {
		c.move.Effects = append(c.move.Effects, *e)
	}
}

// movePins lets pins follow blocks that came to the device.
func (c *Coordinator) movePins(pool int, e *protocol.Effect) {
	if c.pins.empty() {
		return
	}
	for i, block := range e.Blocks {
		if n := c.pins.count(pool, block); n > 0 && e.Pages[i] != messages.NoPage {
			c.add(pool, protocol.PoolOp{Kind: protocol.AddPins, Pages: e.Pages[i : i+1], N: n})
		}
	}
}

func (c *Coordinator) resetMove() {
	m := &c.move
	m.Epoch, m.Stamp = c.epoch, c.stamp
	m.Effects, m.Marks, m.Queries = m.Effects[:0], m.Marks[:0], m.Queries[:0]
	for p := range m.Pools {
		q := &m.Pools[p]
		q.Victims, q.Outcomes, q.Copies, q.Onboards = nil, q.Outcomes[:0], q.Copies[:0], q.Onboards[:0]
		q.Pins, q.Unpins, q.Touches = q.Pins[:0], q.Unpins[:0], q.Touches[:0]
	}
}

// moveNeeded tells whether the offloader has anything to do.
func (c *Coordinator) moveNeeded() bool {
	m := &c.move
	if len(m.Effects)+len(m.Marks)+len(m.Queries) > 0 {
		return true
	}
	for p := range m.Pools {
		q := &m.Pools[p]
		if len(q.Victims) > 0 && c.host[p].Total > 0 {
			return true
		}
		if len(q.Copies)+len(q.Onboards)+len(q.Pins)+len(q.Unpins)+len(q.Touches) > 0 {
			return true
		}
	}
	return false
}

// addReady adds a question to the Move record and gives its index.
func (c *Coordinator) addReady() (*protocol.WaitQuery, int) {
	m := &c.move
	n := len(m.Queries)
	if n < cap(m.Queries) {
		m.Queries = m.Queries[:n+1]
	} else {
		m.Queries = append(m.Queries, protocol.WaitQuery{})
	}
	r := &m.Queries[n]
	r.Read, r.Write, r.Tickets = r.Read[:0], r.Write[:0], r.Tickets[:0]
	return r, n
}

// sendMove sends the offloader its work, if any.
func (c *Coordinator) sendMove(next func(*Coordinator)) {
	c.next = next
	if !c.moveNeeded() {
		c.move.Counts = c.move.Counts[:0]
		return
	}
	c.moving = true
	c.pending++
	c.port.Offloader(&c.move)
}

// hosted takes over the counts that the offloader answered.
func (c *Coordinator) hosted() {
	c.moving = false
	copy(c.host, c.move.Counts)
}

// takeVictims hands what the pools evicted to the offloader. Where there is no
// host memory nothing is asked and nothing copied: then victims alone are no
// reason to send it anything.
func (c *Coordinator) takeVictims() {
	for p := range c.work {
		if len(c.work[p].Ops) > 0 {
			c.move.Pools[p].Victims = c.work[p].Victims
		}
		if len(c.work[p].Victims) > 0 && c.host[p].Total > 0 {
			c.ordered = true
		}
	}
}

// moved counts what became of the victims and tells the tree.
func (c *Coordinator) moved() {
	c.hosted()
	for p := range c.move.Pools {
		q := &c.move.Pools[p]
		counters := &c.stats.Pools[p].PoolCounters
		if len(q.Outcomes) == 0 {
			c.dropVictims(p, q.Victims, counters)
			continue
		}
		for i := range q.Outcomes {
			c.outcome(p, &q.Victims[i], &q.Outcomes[i], counters)
		}
	}
}

// dropVictims follows victims that the offloader was not asked about: without
// host memory all go.
func (c *Coordinator) dropVictims(pool int, victims []protocol.Victim, counters *messages.PoolCounters) {
	counters.Evicted += int64(len(victims))
	counters.Dropped += int64(len(victims))
	moves := slices.Grow(c.apply.Moves, len(victims))
	for i := range victims {
		moves = append(moves, protocol.BlockMove{Pool: messages.PoolID(pool), Block: victims[i].Block, To: messages.Nowhere})
	}
	c.apply.Moves = moves
}

// outcome follows one victim: what it displaced went first.
func (c *Coordinator) outcome(pool int, v *protocol.Victim, o *protocol.Outcome, counters *messages.PoolCounters) {
	id := messages.PoolID(pool)
	counters.Evicted++
	if o.Displaced != protocol.NoBlock {
		counters.Dropped++
		c.apply.Moves = append(c.apply.Moves, protocol.BlockMove{Pool: id, Block: o.Displaced, To: messages.Nowhere})
	}
	to := messages.Nowhere
	if o.Host == messages.NoPage {
		counters.Dropped++
	} else {
		counters.Offloaded++
		to = messages.OnHost(o.Host)
		if o.Dirty {
			counters.DirtyTakes++
		} else {
			counters.BytesSaved += c.Pools[pool].PageBytes()
		}
		if o.Waits {
			counters.WaitingTakes++
		}
		if o.Copied {
			counters.BytesOffloaded += c.Pools[pool].PageBytes()
		}
	}
	c.apply.Moves = append(c.apply.Moves, protocol.BlockMove{Pool: id, Block: v.Block, To: to})
}

// available is the pages that may still be taken: total − held − reserves.
func (c *Coordinator) available(pool int) int {
	return c.pages[pool].Total - c.pages[pool].Held - c.reserved[pool]
}
