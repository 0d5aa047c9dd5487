package coordinator

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// rebalancing is the state of a Rebalance on its way through
//
//	divide → resize the pools → offload victims, copy moved pages
//	→ tree follows → device memory follows → answer
//
// All of it is one round: no request sees pools of two sizes.
type rebalancing struct {
	pages  []int // by pool, the new counts
	resize []protocol.ResizePool
	device *protocol.ResizeDevice
	before []int                 // by pool, the old counts
	back   []protocol.ResizePool // after the device has refused
	// followed: the tables have the new numbers. Before, a failure takes the
	// round back to the old counts; after, it is carried through.
	followed bool
	broken   [][]messages.PageID // by pool: moved pages whose copy failed
	cached   [][]messages.PageID // of these, those that cached a block
	// forgotten are the blocks that those cached: they may have clean copies.
	forgotten [][]protocol.BlockID
	losing    []*sequence // hold broken pages
}

// rebalance moves device memory between pools.
func (c *Coordinator) rebalance(r *messages.Rebalance) {
	r.Err, r.Rebalanced = nil, messages.Rebalanced{}
	fractions := r.Fractions
	if fractions == nil {
		fractions = c.demand()
	}
	pages, err := c.divide(fractions)
	if err == nil {
		err = c.shrinkable(pages)
	}
	if err != nil {
		r.Err = err
		c.reply()
		return
	}
	b := &c.rebalancing
	b.pages, b.followed = pages, false
	b.before = b.before[:0]
	for p := range c.pages {
		b.before = append(b.before, c.pages[p].Total)
	}
	b.resize = b.resize[:0]
	for p, n := range pages {
		b.resize = append(b.resize, protocol.ResizePool{Header: protocol.Header{Epoch: c.epoch}, Pool: messages.PoolID(p), Pages: n, Now: c.now})
	}
	c.pending += len(pages)
	c.next = (*Coordinator).resized
	for p := range b.resize {
		c.port.ResizePool(&b.resize[p])
	}
}

// divide turns fractions of the memory that the pools have together into pages.
func (c *Coordinator) divide(fractions map[string]float64) ([]int, error) {
	if fractions == nil { // nothing was in demand
		pages := make([]int, len(c.Pools))
		for p := range pages {
			pages[p] = c.pages[p].Total
		}
		return pages, nil
	}
	if err := c.validateFractions(fractions); err != nil {
		return nil, err
	}
	bytes := int64(0)
	for p := range c.Pools {
		bytes += int64(c.pages[p].Total) * c.Pools[p].PageBytes()
	}
	pages, err := c.Divide(fractions, bytes)
	if err != nil {
		return nil, messages.Refuse(messages.BadRequest, "%v", err)
	}
	return pages, nil
}

// validateFractions holds fractions to the rule of pool_fractions.
func (c *Coordinator) validateFractions(fractions map[string]float64) error {
	sum := 0.0
	for p := range c.Pools {
		name := c.Pools[p].Name
		f, ok := fractions[name]
		if !ok {
			return messages.Refuse(messages.BadRequest, "fractions lack pool %s", name)
		}
		if !(f > 0 && f <= 1) {
			return messages.Refuse(messages.BadRequest, "fraction %v of pool %s is not in (0, 1]", f, name)
		}
		sum += f
	}
	if len(fractions) > len(c.Pools) {
		for name := range fractions {
			if !slices.ContainsFunc(c.poolNames(), func(n string) bool { return n == name }) {
				return messages.Refuse(messages.BadRequest, "fractions name %q, which is no pool", name)
			}
		}
	}
	if math.Abs(sum-1) > 1e-6 {
		return messages.Refuse(messages.BadRequest, "fractions add up to %v, not to 1", sum)
	}
	return nil
}

func (c *Coordinator) poolNames() []string {
	var names []string
	for p := range c.Pools {
		names = append(names, c.Pools[p].Name)
	}
	return names
}

// shrinkable refuses counts below what is held or reserved.
func (c *Coordinator) shrinkable(pages []int) error {
	for p, n := range pages {
		if need := max(c.pages[p].Held+c.reserved[p], c.pages[p].Used); need > n {
			return messages.RefusePages(c.Pools[p].Name, need, n)
		}
	}
	return nil
}

// resized hands victims and moved pages to the offloader, and asks what must
// have passed before the memory that goes may go.
func (c *Coordinator) resized() {
	c.resetMove()
	ready, _ := c.addReady()
	for p := range c.rebalancing.resize {
		z := &c.rebalancing.resize[p]
		q := &c.move.Pools[p]
		q.Victims = z.Victims
		var pages []messages.PageID
		for i := range z.Moves {
			m := &z.Moves[i]
			q.Copies = append(q.Copies, protocol.PageCopy{
				From: messages.OnDevice(m.Old), Block: protocol.NoBlock, To: m.New, Tokens: c.TokensPerBlock,
			})
			pages = append(pages, m.New)
		}
		for page := z.Pages; page < c.pages[p].Total; page++ {
			pages = append(pages, messages.PageID(page))
		}
		ready.Write = append(ready.Write, pages)
		c.pages[p] = z.Counts
	}
	c.sequences.each(func(s *sequence) {
		for p := range s.pools {
			for _, table := range s.pools[p].tables {
				c.markRead(s, p, table)
				if last := len(c.move.Marks) - 1; s.lost && !s.after.IsZero() && len(table) > 0 {
					c.move.Marks[last].Write = true // what it has written nobody was told
				}
			}
		}
	})
	c.ordered = true
	c.sendMove((*Coordinator).resizeMoved)
}

// resizeMoved renumbers the pages in the tables and tells the tree where the
// blocks are now.
func (c *Coordinator) resizeMoved() {
	c.resetApply()
	c.moved()
	b := &c.rebalancing
	b.device = &protocol.ResizeDevice{Header: protocol.Header{Epoch: c.epoch}, Pages: b.pages, Waits: slices.Clone(c.move.Queries[0].Tickets)}
	b.broken, b.cached = make([][]messages.PageID, len(c.Pools)), make([][]messages.PageID, len(c.Pools))
	b.forgotten = make([][]protocol.BlockID, len(c.Pools))
	broken := false
	for p := range b.resize {
		renumber := map[messages.PageID]messages.PageID{}
		for i, m := range b.resize[p].Moves {
			renumber[m.Old] = m.New
			to := messages.OnDevice(m.New)
			if c.move.Pools[p].Copies[i].Failed {
				to, broken = messages.Nowhere, true
				b.broken[p] = append(b.broken[p], m.New)
				if m.Block != protocol.NoBlock {
					b.cached[p] = append(b.cached[p], m.New)
					b.forgotten[p] = append(b.forgotten[p], m.Block)
					c.pins.forget(p, []protocol.BlockID{m.Block})
				}
			}
			if m.Block != protocol.NoBlock {
				c.apply.Moves = append(c.apply.Moves, protocol.BlockMove{Pool: messages.PoolID(p), Block: m.Block, To: to})
			}
		}
		c.renumber(p, renumber)
	}
	b.followed = true
	b.losing = b.losing[:0]
	if broken {
		c.loseBroken()
		c.extra = (*Coordinator).dropBroken
	}
	c.sendApply((*Coordinator).resizeDevice)
}

// loseBroken notes the sequences that hold a page that could not be moved. They
// are lost from now on, also for a recovery from what may fail next.
func (c *Coordinator) loseBroken() {
	b := &c.rebalancing
	c.sequences.each(func(s *sequence) {
		for p, pages := range b.broken {
			for _, table := range s.pools[p].tables {
				if !s.lost && slices.ContainsFunc(table, func(page messages.PageID) bool { return page >= 0 && slices.Contains(pages, page) }) {
					s.lost = true // its reserve goes with what it holds
					b.losing = append(b.losing, s)
				}
			}
		}
	})
}

// dropBroken gives up what was on pages that could not be moved: the blocks,
// which the tree has forgotten, and what the lost sequences held.
func (c *Coordinator) dropBroken() {
	b := &c.rebalancing
	for p, pages := range b.cached {
		if len(pages) > 0 {
			c.add(p, protocol.PoolOp{Kind: protocol.DetachPages, Pages: pages})
			c.hostEffect(&protocol.Effect{Kind: protocol.HostForget, Pool: messages.PoolID(p), Blocks: b.forgotten[p]}) // clean copies
		}
	}
	for _, s := range b.losing {
		c.loseHeld(s)
	}
}

// loseHeld lets go what a lost sequence holds.
func (c *Coordinator) loseHeld(s *sequence) {
	for p := range s.pools {
		for b, table := range s.pools[p].tables {
			pages := slices.Clone(table)
			c.markRead(s, p, pages)
			c.dropRange(s, p, pages, 0)
			s.pools[p].tables[b] = table[:0]
		}
		c.reserved[p] -= s.pools[p].reserve
		s.pools[p].reserve = 0
	}
}

// resizeDevice moves the memory itself.
func (c *Coordinator) resizeDevice() {
	c.pending++
	c.next = (*Coordinator).rebalanced
	c.port.Offloader(c.rebalancing.device)
}

// undoRebalance goes back to the old counts, unless all that is left to do is
// the device's: then rebuilt carries on. The records may still be others'.
func (c *Coordinator) undoRebalance() {
	b := &c.rebalancing
	b.resize = slices.Clone(b.resize)
	if b.followed {
		return
	}
	for p, n := range b.before {
		c.pages[p].Total = n
	}
}

// resumeRebalance carries a rebalance through after a recovery; the device is
// at rest.
func (c *Coordinator) resumeRebalance() {
	b := &c.rebalancing
	b.device = &protocol.ResizeDevice{Header: protocol.Header{Epoch: c.epoch}, Pages: b.pages}
	c.resizeDevice()
}

// rebalanced takes back what pools have grown by, should the device have refused
// that memory, then answers.
func (c *Coordinator) rebalanced() {
	b := &c.rebalancing
	if b.device.Err == nil || !c.takeBack() {
		c.rebalanceEnd()
		return
	}
	c.next = (*Coordinator).tookBack
}

// takeBack makes the pools that grew as small as they were. What they got is
// free still.
func (c *Coordinator) takeBack() bool {
	b := &c.rebalancing
	b.back = b.back[:0]
	for p, n := range b.before {
		if b.pages[p] > n {
			b.pages[p] = n
			b.back = append(b.back, protocol.ResizePool{Header: protocol.Header{Epoch: c.epoch}, Pool: messages.PoolID(p), Pages: n, Now: c.now})
		}
	}
	c.pending += len(b.back)
	for i := range b.back {
		c.port.ResizePool(&b.back[i])
	}
	return len(b.back) > 0
}

// tookBack takes over the counts.
func (c *Coordinator) tookBack() {
	for i := range c.rebalancing.back {
		z := &c.rebalancing.back[i]
		if len(z.Victims)+len(z.Moves) > 0 {
			panic(fmt.Sprintf("coordinator: pool %s: %d pages that nobody was given are in use", c.Pools[z.Pool].Name, len(z.Victims)+len(z.Moves)))
		}
		c.pages[z.Pool] = z.Counts
	}
	c.rebalanceEnd()
}

// rebalanceEnd answers.
func (c *Coordinator) rebalanceEnd() {
	r := c.round.request.(*messages.Rebalance)
	b := &c.rebalancing
	if b.device.Err != nil {
		r.Err = messages.Refuse(messages.Internal, "rebalance of device memory: %v", b.device.Err)
	}
	r.Rebalanced = messages.Rebalanced{}
	for p := range b.resize {
		moved := []messages.PageMove{}
		for _, m := range b.resize[p].Moves {
			if m.Held {
				moved = append(moved, m.PageMove)
			}
		}
		c.Counts[p].Primary = b.pages[p]
		r.Rebalanced.Pools = append(r.Rebalanced.Pools, c.Pools[p].Describe(c.Counts[p]))
		r.Rebalanced.Moved = append(r.Rebalanced.Moved, moved)
	}
	c.settled, b.followed = true, false
	c.announce(r)
	c.reply()
}

// renumber follows moved pages in the tables of all sequences.
func (c *Coordinator) renumber(p int, to map[messages.PageID]messages.PageID) {
	if len(to) == 0 {
		return
	}
	c.sequences.each(func(s *sequence) {
		for _, table := range s.pools[p].tables {
			for i, page := range table {
				if moved, ok := to[page]; ok {
					table[i] = moved
				}
			}
		}
	})
}
