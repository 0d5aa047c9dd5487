package coordinator

import (
	"slices"
	"time"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// outgoing is all work that a round sends: changes for the tree, operations for the
// pools, copies for the offloader. Changes of the tree have effects that the others
// must follow, in two stages of the transaction that asked for them:
//
//	outgoing.apply()        the tree changes
//	  ▼ answered
//	outgoing.applied()      its effects become work for pools and offloader
//	(the transaction adds work of its own)
//	outgoing.followUp()     which is sent
//	  ▼ answered
//	outgoing.followed()
//
// The change is lent to the tree from apply until its answer, the batches to pools and
// offloader from followUp until theirs. Nothing is added to a record that is lent.
type outgoing struct {
	*shared
	pools poolBatches
	move  moveBatch
	// change is for the tree. Its Moves have happened: they stay there until the tree has said
	// that it knows them.
	change protocol.Apply
	saves  *saves // what is to be saved to a store
	// symbols are those of prompts that have ended: the tree forgets them behind the round.
	symbols [][]messages.Token
	// nextExpiry comes with each Apply, so no message is needed to ask for it. It may be too
	// early, never too late.
	nextExpiry time.Duration // the tree's earliest timer
}

// reset empties the batches for pools and offloader.
func (o *outgoing) reset() {
	o.pools.reset()
	o.move.reset()
}

// resetChange empties the change of the tree.
func (o *outgoing) resetChange() {
	a := &o.change
	a.Now, a.Epoch = o.kernel.now, o.kernel.epoch
	a.Moves, a.Takeovers, a.Claims, a.Stores = a.Moves[:0], a.Takeovers[:0], a.Claims[:0], a.Stores[:0]
	a.ReleasedSymbols, a.Effects = a.ReleasedSymbols[:0], a.Effects[:0]
}

// end ends a sequence. The last that holds the symbols of a prompt gives them up.
func (o *outgoing) end(s *sequence.Sequence) {
	if symbols := s.ReleaseSymbols(); symbols != nil {
		o.symbols = append(o.symbols, symbols)
	}
	o.sequences.End(s)
}

// apply sends the change to the tree.
func (o *outgoing) apply() {
	o.saves.noteMoves(o.change.Moves)
	o.kernel.toTree(&o.change)
}

// applied makes work for pools and offloader of the effects of the change.
func (o *outgoing) applied() {
	o.nextExpiry = o.change.NextExpiry
	o.change.Moves = o.change.Moves[:0]
	o.saves.lose(o.change.Unsaved)
	// Blocks that were stored may be what a waiting batch needs.
	o.waiting.noteStored(o.change.Stores)
	o.reset()
	o.route(o.change.Effects)
}

// followUp sends the work for pools and offloader.
func (o *outgoing) followUp() {
	// Pools and offloader do not depend on each other's answers here, so one stage is enough.
	o.pools.send()
	o.move.send()
}

// followed takes over what pools and offloader have answered.
func (o *outgoing) followed() {
	o.pools.received()
	o.move.received()
}

// route turns effects of the tree into work for pools and offloader.
func (o *outgoing) route(effects []protocol.Effect) {
	for i := range effects {
		e := &effects[i]
		pool := int(e.Pool)
		o.saves.noteEffect(e)
		switch e.Kind {
		case protocol.Attach:
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.AttachPages, Pages: e.Pages, Blocks: e.Blocks,
				Depth: e.Depth, Priority: e.Priority, Useless: e.Useless})
			o.movePins(pool, e)
		// The block is gone from this pool, and so are its pins there.
		// A detached page has no contents to be kept; the pool frees it when it has no holder.
		case protocol.Detach:
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.DetachPages, Pages: e.Pages})
			o.pins.forget(pool, e.Blocks)
		case protocol.Reprioritize:
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.SetPriority, Pages: e.Pages,
				Priority: e.Priority})
		case protocol.Appraise:
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.SetUseless, Pages: e.Pages, Useless: e.Useless})
		case protocol.Follow:
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.FollowCheckpoint, Pages: e.Pages})
		case protocol.HostForget:
			o.pins.forget(pool, e.Blocks)
			o.move.effect(e)
		// What concerns host memory only: the offloader knows its pages by block.
		default:
			o.move.effect(e)
		}
	}
}

// movePins makes pins follow blocks that came to the device.
func (o *outgoing) movePins(pool int, e *protocol.Effect) {
	for i, block := range e.Blocks {
		// The offloader has ended the pins of the host page with its contents; the device page
		// has to be protected now.
		if n := o.pins.count(pool, block); n > 0 && e.Pages[i] != messages.NoPage {
			o.pools.add(pool, protocol.PoolOp{Kind: protocol.AddPins, Pages: e.Pages[i : i+1], N: n})
		}
	}
}

// moveBlock tells the tree where a pool keeps a block from now on: Nowhere if its contents are
// lost.
func (o *outgoing) moveBlock(pool int, block protocol.BlockID, to protocol.Location) {
	o.change.Moves = append(o.change.Moves, protocol.BlockMove{Pool: messages.PoolID(pool),
		Block: block, To: to})
}

// displaced counts and tells the tree of contents that host memory has displaced.
func (o *outgoing) displaced(pool int, block protocol.BlockID) {
	o.stats.pool(pool).Dropped++
	o.change.Moves = append(o.change.Moves, protocol.BlockMove{Pool: messages.PoolID(pool),
		Block: block, To: protocol.Nowhere, Displaced: true})
}

// moved takes over the answer of the offloader, counts what became of the victims
// and begins a change of the tree with it.
func (o *outgoing) moved() {
	o.resetChange()
	o.move.received()
	for p := range o.move.record.Pools {
		q := o.move.pool(p)
		o.pressure.noteVictims(p, q.Victims)
		// A large prompt may have thousands of victims: the list grows once.
		o.change.Moves = slices.Grow(o.change.Moves, len(q.Outcomes))
		for i := range q.Outcomes {
			o.outcome(p, &q.Victims[i], &q.Outcomes[i])
		}
	}
}

// outcome follows one victim: what it displaced was dropped first. Each victim ends as one of
// two moves: to its host page, or, as all victims of a pool without host memory, to nowhere.
func (o *outgoing) outcome(pool int, v *protocol.Victim, what *protocol.Outcome) {
	counters := o.stats.pool(pool)
	counters.Evicted++
	// Host memory was full: other contents were dropped to make room for these.
	// The displaced block first: it has left its host page to this victim, and the tree must not
	// see two blocks on one page.
	if what.Displaced != protocol.NoBlock {
		o.displaced(pool, what.Displaced)
	}
	if what.Host == messages.NoPage {
		counters.Dropped++
		o.moveBlock(pool, v.Block, protocol.Nowhere)
		return
	}
	o.stats.offloaded(pool, what)
	o.moveBlock(pool, v.Block, protocol.OnHost(what.Host))
}

// storeInput offers the encoder's input of a sequence to the cross pools, up to a
// block boundary. It returns the index of what is offered, −1 if there is nothing.
func (o *outgoing) storeInput(s *sequence.Sequence, from, to int) int {
	if !o.config.Reuse || s.Input.NoStore || from >= to {
		return -1
	}
	o.change.Stores = append(o.change.Stores, protocol.StoreItem{
		Cross: true, Namespace: s.Namespace, Session: s.Session, Tokens: s.Input.Tokens, From: from,
		To:     to,
		Tables: s.View(), Retention: s.InputRetention, Prompt: int(s.Input.Length),
		Cursor: s.Input.Cursor,
		// What is computed was reused or stored before, so it has had the retention of this request.
		RetentionFrom: int(s.Input.Computed) / o.config.TokensPerBlock,
	})
	return len(o.change.Stores) - 1
}

// store offers the tokens [from, to) of a sequence to the tree. It returns the index
// of what is offered, −1 if there is nothing to offer.
func (o *outgoing) store(s *sequence.Sequence, from, to int) int {
	if !o.config.Reuse || s.NoStore || from >= to {
		return -1
	}
	o.change.Stores = append(o.change.Stores, protocol.StoreItem{
		Namespace: s.Namespace, Session: s.Session, Tokens: s.Tokens(0), From: from, To: to,
		Tables: s.View(), Retention: s.Retention, Prompt: int(s.Prompt),
		RetentionFrom: int(s.RetentionFrom()), Cursor: s.Cursor,
	})
	return len(o.change.Stores) - 1
}
