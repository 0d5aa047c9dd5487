package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Failure says which actor failed.
type Failure struct {
	Actor string
	// Dirty: it was in the middle of a change.
	Dirty bool
	Cause error
}

// maxAttempts is how often a request is served again after the actors that
// served it failed: twice, so that two accidents in a row abort nothing, and a
// request that breaks an actor each time is given up before the engine is.
const maxAttempts = 2

// recovering is the state of a recovery on its way through
//
//	quiesce the device → survey the tree → forget what cannot be trusted
//	→ rebuild pools and host memory → serve the request once more
//
// Sequences and their tables are the coordinator's own and are the truth; a
// request that was under way is undone there first.
type recovering struct {
	failures []Failure
	running  bool
	// The messages of a recovery are made anew each time: another failure
	// may leave those before on their way.
	quiesce *protocol.Quiesce
	survey  *protocol.ListLocations
	pools   []protocol.RebuildPool
	host    *protocol.RebuildHost
	owed    []protocol.BlockMove // of an Apply that the tree did not get
	lost    []writtenPage        // what the failed round may have written to
	// unheard: a Move was on its way whose outcomes nobody heard.
	unheard  bool
	attempts int // how often the round under way has been served again
}

// Failed begins a recovery. What is under way is given up; answers that are
// still to come belong to an epoch that is over.
func (c *Coordinator) Failed(f Failure) {
	c.recovering.failures = append(c.recovering.failures, f)
	c.stats.Restarts++
	c.epoch++
	c.pending, c.next, c.after, c.extra = 0, nil, nil, nil
	if f.Actor == "coordinator" && f.Dirty {
		c.putDown()
		c.loseRound()
	}
	c.undo()
	c.forfeitBroken()
	c.renewRecords()
	c.recovering.running = true
	c.quiesceDevice()
	c.run()
}

// Epoch is the epoch that answers must bear.
func (c *Coordinator) Epoch() uint32 { return c.epoch }

// renewRecords leaves the records of the epoch that is over to those who may
// still answer them.
func (c *Coordinator) renewRecords() {
	r := &c.recovering
	r.owed = append(r.owed[:len(r.owed):len(r.owed)], c.owed...) // what a failure before this one owes, too
	for p := range c.move.Pools {
		q := &c.move.Pools[p]
		if c.moving && len(q.Victims)+len(q.Copies)+len(q.Onboards) > 0 {
			r.unheard = true
		}
		for i := range q.Copies {
			r.lost = append(r.lost, writtenPage{messages.PoolID(p), q.Copies[i].To})
		}
		for i := range q.Onboards {
			r.lost = append(r.lost, writtenPage{messages.PoolID(p), q.Onboards[i].To})
		}
	}
	c.moving = false
	c.owed = nil
	c.records = newRecords(len(c.Pools))
	c.lostHost, c.letGo = nil, nil
}

// sealOffered seals what the round may have offered to the tree already: its
// pages may cache blocks now, though their sequences will not hear of it. They
// are as if a fork had stored them.
func (c *Coordinator) sealOffered() {
	seal := func(s *sequence) { s.sealed, s.forked = max(s.sealed, len(s.pools[0].tables[0])), true }
	switch c.round.request.(type) {
	case *messages.Commit, *messages.Append:
		for i := range c.stepping.items {
			if it := &c.stepping.items[i]; it.store >= 0 && it.sequence.running && !it.sequence.lost {
				seal(it.sequence)
			}
		}
	case *messages.Release:
		for i := range c.releasing.items {
			if s := c.releasing.items[i].sequence; s.running && !s.lost {
				seal(s)
			}
		}
	}
}

// forgetRound empties the batches of the round before.
func (c *Coordinator) forgetRound() {
	c.admitting.items, c.admitting.served = c.admitting.items[:0], c.admitting.served[:0]
	c.stepping.items = c.stepping.items[:0]
	c.releasing.items = c.releasing.items[:0]
	c.rebalancing.before, c.rebalancing.followed = c.rebalancing.before[:0], false
	c.rebalancing.losing = c.rebalancing.losing[:0]
}

// forfeitBroken empties the tables of sequences that a rebalance is losing: their
// pages could not be moved, and may be beyond the end of the pool by now.
func (c *Coordinator) forfeitBroken() {
	for _, s := range c.rebalancing.losing {
		for p := range s.pools {
			for b := range s.pools[p].tables {
				s.pools[p].tables[b] = s.pools[p].tables[b][:0]
			}
		}
	}
}

// loseRound gives up what a round of a broken coordinator has touched: sequences
// that it steps are lost, those that it has made have never been. A round that has
// settled them, or is over, has left them whole.
func (c *Coordinator) loseRound() {
	if c.round.request == nil {
		return
	}
	c.sequences.each(func(s *sequence) {
		switch {
		case s.stepped == c.stamp && (!c.settled || c.stepsMany()):
			s.lose()
		case s.born == c.stamp && !c.settled:
			s.symbols = nil // they stay in the tree, unused
			c.sequences.end(s)
		}
	})
}

// stepsMany tells whether the request under way is a step of many sequences,
// which goes on after it has settled the first of them.
func (c *Coordinator) stepsMany() bool {
	switch c.round.request.(type) {
	case *messages.Append, *messages.Commit, *messages.Release:
		return true
	}
	return false
}

// roundTickets are the tickets that the request under way has named.
func (c *Coordinator) roundTickets() (tickets []messages.Ticket) {
	switch r := c.round.request.(type) {
	case *messages.Commit:
		for i := range r.Steps {
			tickets = append(tickets, r.Steps[i].After)
		}
	case *messages.Append:
		for i := range r.Steps {
			tickets = append(tickets, r.Steps[i].After)
		}
	case *messages.Release:
		for i := range r.Steps {
			tickets = append(tickets, r.Steps[i].After)
		}
	}
	return slices.DeleteFunc(tickets, messages.Ticket.IsZero)
}

func (c *Coordinator) quiesceDevice() {
	if waits := c.roundTickets(); len(waits) > 0 {
		// What the round's kernels write may be in the tree already, and nobody
		// was told to wait for them: they must have passed.
		device := &protocol.ResizeDevice{Header: protocol.Header{Epoch: c.epoch}, Waits: waits}
		for p := range c.Pools {
			device.Pages = append(device.Pages, c.pages[p].Total)
		}
		c.pending++
		c.port.Offloader(device)
	}
	c.recovering.quiesce = &protocol.Quiesce{Header: protocol.Header{Epoch: c.epoch}}
	c.pending++
	c.next = (*Coordinator).quiesced
	c.port.Offloader(c.recovering.quiesce)
}

// quiesced empties a tree that is not sound.
func (c *Coordinator) quiesced() {
	r := &c.recovering
	renew := c.treeBroken()
	if renew {
		c.loseTree()
		r.owed = nil
	}
	c.askSurvey()
}

// tellOwed tells a sound tree what it was owed, and asks again; false if it
// knows already: it may have heard, and its answer was nobody's any more.
func (c *Coordinator) tellOwed() bool {
	r := &c.recovering
	if len(r.owed) == 0 || c.owedKnown() {
		r.owed = nil
		return false
	}
	c.resetApply()
	c.apply.Moves = append(c.apply.Moves, r.owed...)
	c.pending++
	c.next = (*Coordinator).askSurvey
	c.port.Tree(&c.apply)
	return true
}

// owedKnown tells whether the tree has done the moves that it was owed: they
// were one message, so one that shows is enough.
func (c *Coordinator) owedKnown() bool {
	type place struct {
		pool  messages.PoolID
		block protocol.BlockID
	}
	last, at := map[place]messages.Location{}, map[place]messages.Location{}
	for _, m := range c.recovering.owed {
		last[place{m.Pool, m.Block}] = m.To
	}
	for _, b := range c.recovering.survey.Blocks {
		at[place{b.Pool, b.Block}] = b.At
	}
	for k, to := range last {
		if now, held := at[k]; !held || now == to {
			return true
		}
	}
	return false
}

// treeBroken tells whether the tree failed in the middle of a change.
func (c *Coordinator) treeBroken() bool {
	return slices.ContainsFunc(c.recovering.failures, func(f Failure) bool { return f.Actor == "tree" && f.Dirty })
}

// loseTree forgets what only the tree knew: pins, cursors, and the symbols of
// prompts with items, whose sequences store nothing more. Nor does it know any
// longer which pages are taken: sequences hold pages of which they have computed
// different lengths, like forks, and only one of them may store there.
func (c *Coordinator) loseTree() {
	c.pins.init(len(c.Pools))
	c.nextExpiry = protocol.NoExpiry
	c.sequences.each(func(s *sequence) {
		s.cursor = protocol.Cursor{}
		s.sealed, s.forked = max(s.sealed, len(s.pools[0].tables[0])), true
		if s.symbols != nil {
			s.symbols, s.mute = nil, true
		}
	})
}

func (c *Coordinator) askSurvey() {
	r := &c.recovering
	r.survey = &protocol.ListLocations{Header: protocol.Header{Epoch: c.epoch}, EmptyTree: c.treeBroken()}
	c.pending++
	c.next = (*Coordinator).surveyed
	c.port.Tree(r.survey)
}

// surveyed makes the tree forget what cannot be trusted: after an offloader
// that broke off, all host memory and all pages that it may have written to.
func (c *Coordinator) surveyed() {
	r := &c.recovering
	if c.tellOwed() {
		return
	}
	if c.transfersDoubtful() {
		c.resetApply()
		kept := r.survey.Blocks[:0]
		for _, b := range r.survey.Blocks {
			if c.doubtful(&b) {
				c.apply.Moves = append(c.apply.Moves, protocol.BlockMove{Pool: b.Pool, Block: b.Block, To: messages.Nowhere})
				c.pins.forget(int(b.Pool), []protocol.BlockID{b.Block})
				c.stats.Pools[b.Pool].Dropped++
				continue
			}
			kept = append(kept, b)
		}
		r.survey.Blocks = kept
		if c.applyNeeded() {
			c.pending++
			c.next = (*Coordinator).askSurvey // once more: an Apply ends retention, too
			c.port.Tree(&c.apply)
			return
		}
	}
	c.rebuild()
}

// writtenPage is a device page that a transfer may have written to.
type writtenPage struct {
	pool messages.PoolID
	page messages.PageID
}

// transfersDoubtful tells whether host memory and the pages of the last
// transfers may hold something else than the tree thinks: the offloader broke
// off, or it did what nobody heard of. One that failed before it began has done
// nothing.
func (c *Coordinator) transfersDoubtful() bool {
	r := &c.recovering
	only := !slices.ContainsFunc(r.failures, func(f Failure) bool { return f.Actor != "offloader" })
	return r.quiesce.Dirty || r.unheard && !only
}

// doubtful tells whether a broken offloader may have overwritten a block.
func (c *Coordinator) doubtful(b *protocol.BlockLocation) bool {
	page, tier, _ := b.At.Page()
	if tier == messages.Secondary {
		return true
	}
	return slices.Contains(c.recovering.lost, writtenPage{b.Pool, page})
}

// rebuild makes pools and host memory anew.
func (c *Coordinator) rebuild() {
	r := &c.recovering
	r.pools = make([]protocol.RebuildPool, 0, len(c.Pools))
	r.host = &protocol.RebuildHost{Header: protocol.Header{Epoch: c.epoch}, Kept: make([][]protocol.KeptPage, len(c.Pools))}
	c.pending += len(c.Pools) + 1
	c.next = (*Coordinator).rebuilt
	for p := range c.Pools {
		r.host.Pages = append(r.host.Pages, c.pages[p].Total)
		r.pools = append(r.pools, protocol.RebuildPool{Header: protocol.Header{Epoch: c.epoch}, Pool: messages.PoolID(p), Pages: c.pages[p].Total, Kept: c.keptPages(p)})
	}
	for i := range r.survey.Blocks {
		b := &r.survey.Blocks[i]
		if page, tier, ok := b.At.Page(); ok && tier == messages.Secondary {
			r.host.Kept[b.Pool] = append(r.host.Kept[b.Pool], protocol.KeptPage{
				Page: page, Block: b.Block, Depth: b.Depth, Priority: b.Priority, Pins: int32(c.pins.count(int(b.Pool), b.Block)),
				Tenant: c.Tenants[b.Salt],
			})
		}
	}
	for p := range r.pools {
		c.port.RebuildPool(&r.pools[p])
	}
	c.port.Offloader(r.host)
}

// keptPages joins what sequences, pins and tree know of the pages of a pool.
func (c *Coordinator) keptPages(p int) []protocol.KeptPage {
	pages := make([]protocol.KeptPage, c.pages[p].Total)
	for i := range pages {
		pages[i] = protocol.KeptPage{Page: messages.PageID(i), Block: protocol.NoBlock}
	}
	c.sequences.each(func(s *sequence) {
		if s.lost {
			s.lose() // no reserve stands for what it holds any more
		}
		for _, table := range s.pools[p].tables {
			for b, page := range table {
				if page == messages.NoPage {
					continue
				}
				pages[page].References++
				pages[page].Tenant = s.tenant
				if c.sheltered(s, p) && b >= s.own {
					pages[page].CoveredReferences++
				}
			}
		}
	})
	for i := range c.recovering.survey.Blocks {
		b := &c.recovering.survey.Blocks[i]
		if page, tier, ok := b.At.Page(); int(b.Pool) == p && ok && tier == messages.Primary {
			k := &pages[page]
			k.Block, k.Depth, k.Priority, k.Pins = b.Block, b.Depth, b.Priority, int32(c.pins.count(p, b.Block))
			k.Tenant, k.Until = c.Tenants[b.Salt], b.Until
		}
	}
	kept := pages[:0]
	for _, k := range pages {
		if k.References > 0 || k.Block != protocol.NoBlock {
			kept = append(kept, k)
		}
	}
	return kept
}

// rebuilt ends the recovery. What had finished is answered; what had not is
// served once more, and if that fails too it is answered as aborted.
func (c *Coordinator) rebuilt() {
	r := &c.recovering
	for p := range c.Pools {
		c.pages[p] = r.pools[p].Counts
		c.reserved[p] = 0
		c.sequences.each(func(s *sequence) {
			if s.lost {
				s.pools[p].reserve = 0
			}
			c.reserved[p] += s.pools[p].reserve
		})
	}
	copy(c.host, r.host.Counts)
	c.nextExpiry = 0 // the tree's last answer may have been lost
	cause := r.failures[len(r.failures)-1]
	r.failures, r.running, r.survey, r.quiesce = nil, false, nil, nil
	r.lost, r.unheard = r.lost[:0], false
	switch {
	case c.round.request == nil:
	case c.settled:
		c.reply()
	case c.rebalancing.followed:
		c.resumeRebalance()
	case r.attempts == maxAttempts || cause.Actor == "coordinator" && cause.Dirty:
		c.abort(cause.Cause)
	default:
		r.attempts++
		c.stamp++
		c.start()
	}
}

// Stop answers everything that waits with the cause: nothing is served any more.
func (c *Coordinator) Stop(cause error) {
	for _, q := range []queued{c.hand.queued, c.round} {
		if q.request != nil {
			c.port.Abort(q.request, q.sender, cause)
		}
	}
	c.hand, c.round = hand{}, queued{}
	for {
		q, ok := c.line.pop()
		if !ok {
			break
		}
		c.port.Abort(q.request, q.sender, cause)
	}
	c.endWaiting(cause)
}
