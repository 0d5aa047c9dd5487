package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Failure says which actor failed, or that the device refused what a rebalance asked of it.
type Failure struct {
	Actor string
	// Dirty: the tree was in the middle of a change, or the coordinator of a stage. The offloader
	// says so itself, see protocol.ResizeDevice.
	Dirty bool
	Cause error // nil: the request of the round has the error
}

// broken tells whether the coordinator itself failed in the middle of a stage.
func (f *Failure) broken() bool { return f.Actor == "coordinator" && f.Dirty }

// recovery makes pools and host memory again after an actor has failed, from what
// the owners of their pages know: sequences and pins, which are the coordinator's
// own, and the tree.
//
//	begin ─▶ quiescing ─▶ listing ─▶ forgetting ─▶ listing ─▶ rebuilding ─▶ end
//	undo     the device   the tree   what cannot              pools and     abort
//	the      comes to     lists its  be trusted               host memory   the
//	round    rest         blocks     leaves the tree                        round
//
// Forgetting is left out when there is nothing to forget. After it the tree lists its
// blocks once more, since an Apply ends retention, too.
//
// Messages are new ones each time, since the device may take long over those before. A failure
// in the middle of a recovery starts it from quiescing.
type recovery struct {
	*shared
	stages[recovery]
	failures []Failure
	cause    error             // of the end of the round; nil: its request has the error
	waits    []messages.Ticket // that must pass before pages are relied on or memory shrinks

	device *protocol.ResizeDevice
	list   *protocol.ListLocations
	change *protocol.Apply
	pools  []protocol.RebuildPool
	host   *protocol.RebuildHost

	// moved are the blocks that failed rounds have moved, or whose pages they have given away. The
	// tree may not know of it, and the pages may hold other bytes.
	moved map[poolBlock]bool
}

// poolBlock is what one pool keeps of a block.
type poolBlock struct {
	pool  messages.PoolID
	block protocol.BlockID
}

// begin notes a failure, undoes the round and waits until the device is at rest. Answers
// that are still to come belong to an epoch that is over.
func (r *recovery) begin(f Failure) {
	// Failures add up until a recovery has come to its end: what one of them has put in doubt
	// stays in doubt when the next one begins it again.
	r.failures = append(r.failures, f)
	r.thrash.forget() // what a failure loses was not evicted
	// From here on answers of the old epoch are dropped; what they would have said is found
	// out from the owners of the pages.
	r.kernel.cancel()
	// An answer that was complete is given first. Only a coordinator that failed as it gave the
	// answer can have one.
	r.kernel.finishHandoff()
	// The sequences are the truth from which everything is rebuilt, so they go back first.
	r.undoRound(f)
	r.noteDoubts()
	r.out.saves.reset()
	r.kernel.active = r
	r.quiesceDevice()
}

// undoRound takes the round back. A coordinator that failed in the middle of a stage may have
// changed any of the sequences that the request names, which are lost then. Those that the
// request has opened end: no host knows them.
func (r *recovery) undoRound(f Failure) {
	round := &r.kernel.round
	if round.request != nil && r.cause == nil {
		r.cause = f.Cause
	}
	t := round.transaction
	if t == nil { // undone before, or not begun
		return
	}
	stamp := r.kernel.stamp
	if f.broken() {
		r.sequences.LoseTouchedBy(stamp)
	}
	if t, ok := t.(undoer); ok {
		t.undo()
	}
	r.sequences.EndOpenedBy(stamp)
	// Pages are relied on when the kernels have passed that hosts have named, those of this
	// request included, and memory shrinks when those of the rebalance have.
	r.sequences.Each(func(s *sequence.Sequence) {
		// The round may have offered its pages to the tree: they may cache blocks now, though no answer
		// will say so. So the pools are asked before one is written to.
		if s.Touched == stamp && !s.IsLost() {
			s.ShareAll()
		}
		if after := s.After; !after.IsZero() {
			r.waits = append(r.waits, after)
		}
	})
	if t, ok := t.(*rebalance); ok {
		r.waits = append(r.waits, t.waits...)
	}
	round.transaction = nil
}

// noteDoubts remembers what the records of the failed round say before they are
// left to those who may still answer them.
func (r *recovery) noteDoubts() {
	for _, m := range r.out.change.Moves {
		r.moved[poolBlock{m.Pool, m.Block}] = true
	}
	if r.out.move.sent {
		// The record has come back behind the fence: an offloader that has served it says what its
		// victims have displaced.
		for p := range r.out.move.record.Pools {
			q := r.out.move.pool(p)
			for _, v := range q.Victims {
				r.moved[poolBlock{messages.PoolID(p), v.Block}] = true
			}
			for _, o := range q.Outcomes {
				r.moved[poolBlock{messages.PoolID(p), o.Displaced}] = true
			}
		}
	}
	// The tree forgets symbols that no sequence holds when it lists its blocks.
	r.out.change.Moves, r.out.move.sent, r.out.symbols = nil, false, nil
	r.out.reset()
}

// quiesceDevice waits for everything that the offloader was told of. What the
// kernels of the round write may be in the tree already, and the offloader may not have
// been told of those kernels: they must have passed, too.
func (r *recovery) quiesceDevice() {
	r.wait(r, "recovery: quiescing", (*recovery).quiesced)
	// A resize to the same counts does nothing but wait. The device has other counts only after
	// a rebalance that broke off.
	r.device = &protocol.ResizeDevice{Header: protocol.Header{Epoch: r.kernel.epoch}, Quiesce: true,
		Pages: r.pressure.totals(), Waits: slices.Clone(r.waits)}
	r.kernel.toOffloader(r.device)
}

// quiesced asks the tree what it has.
func (r *recovery) quiesced() {
	// The tree starts empty, so what only it knew is forgotten here as well.
	// Here and not in begin: should another actor fail while the device comes to rest, the tree
	// is emptied all the same, once the next recovery asks it.
	if r.treeBroken() {
		r.pins.clear()
		r.sequences.Each((*sequence.Sequence).ForgetTree)
	}
	r.listBlocks()
}

// listed goes on with what the tree must forget, if there is anything.
func (r *recovery) listed() {
	r.sequences.ForgetSymbols(r.list.Held)
	if moves := r.doubtful(); len(moves) > 0 {
		r.change = &protocol.Apply{
			Header: protocol.Header{Epoch: r.kernel.epoch}, Now: r.kernel.now, Moves: moves,
		}
		r.wait(r, "recovery: forgetting", (*recovery).forgotten)
		r.kernel.toTree(r.change)
		return
	}
	r.rebuild()
}

// forgotten asks the tree once more.
func (r *recovery) forgotten() {
	r.out.saves.lose(r.change.Unsaved)
	r.listBlocks()
}

// treeBroken tells whether the tree failed in the middle of a change. It starts
// empty then.
func (r *recovery) treeBroken() bool {
	return slices.ContainsFunc(r.failures, func(f Failure) bool {
		return f.Actor == "tree" && f.Dirty
	})
}

// listBlocks asks the tree where each pool keeps each block.
func (r *recovery) listBlocks() {
	r.list = &protocol.ListLocations{Header: protocol.Header{Epoch: r.kernel.epoch},
		EmptyTree: r.treeBroken(), Held: r.sequences.HeldSymbols()}
	r.wait(r, "recovery: listing", (*recovery).listed)
	r.kernel.toTree(r.list)
}

// doubtful is what the tree lists and cannot be trusted: what failed rounds have moved, all host
// memory if the offloader broke off, and in any case the working pages of sequences that run. The
// tree knows one of these only from a release that broke off after the tree had heard of it. The
// sequence is still there, and should the release be given up its kernels write the page.
func (r *recovery) doubtful() (moves []protocol.BlockMove) {
	working := make([][]int32, len(r.config.Pools)) // references, by page
	for p := r.states.first; p < r.states.end; p++ {
		working[p] = r.sequences.References(p, r.counts.device[p].Total)
	}
	for i := range r.list.Blocks {
		b := &r.list.Blocks[i]
		page, tier, _ := b.At.Page()
		if r.moved[poolBlock{b.Pool, b.Block}] || r.device.Dirty && b.At.InHost() ||
			r.states.has(int(b.Pool)) && tier == messages.Primary && working[b.Pool][page] > 0 {
			moves = append(moves, protocol.BlockMove{Pool: b.Pool, Block: b.Block, To: protocol.Nowhere})
		}
	}
	return moves
}

// rebuild makes pools and host memory from the owners of their pages.
func (r *recovery) rebuild() {
	n := len(r.config.Pools)
	header := protocol.Header{Epoch: r.kernel.epoch}
	r.sequences.Each(func(s *sequence.Sequence) {
		if s.IsLost() {
			s.EndReserve() // no reserve stands for what it holds any more
		}
	})
	r.pins.forgetUnlisted(r.list.Blocks)
	// The reserves of lost sequences end before the pages are counted as covered or held.
	r.host = &protocol.RebuildHost{Header: header, Kept: make([][]protocol.KeptPage, n)}
	r.pools = make([]protocol.RebuildPool, n)
	for p := range n {
		r.pools[p] = protocol.RebuildPool{Header: header, Pages: r.counts.device[p].Total,
			Kept: r.referencedPages(p)}
	}
	for i := range r.list.Blocks {
		r.keep(&r.list.Blocks[i])
	}
	r.wait(r, "recovery: rebuilding", (*recovery).end)
	// The offloader keeps what the tree says of host memory; clean copies are dropped, which
	// costs a copy at the next eviction and nothing else.
	for p := range r.pools {
		// Pages that no one holds and that cache nothing are free.
		r.pools[p].Kept = slices.DeleteFunc(r.pools[p].Kept, func(k protocol.KeptPage) bool {
			return k.References == 0 && k.Block == protocol.NoBlock
		})
		r.kernel.toPool(messages.PoolID(p), &r.pools[p])
	}
	r.kernel.toOffloader(r.host)
}

// keep adds what the tree and the pins know of a block to the page that a pool keeps it on. Clean
// copies are not listed: the tree does not know them, and they are forgotten.
func (r *recovery) keep(b *protocol.BlockLocation) {
	page, tier, ok := b.At.Page()
	if !ok {
		return
	}
	k := protocol.KeptPage{
		Page: page, Block: b.Block, Depth: b.Depth, Priority: b.Priority, Useless: b.Useless,
		Pins: int32(r.pins.count(int(b.Pool), b.Block)), Tenant: r.config.Tenants[b.Salt],
	}
	if tier == messages.Secondary {
		r.host.Kept[b.Pool] = append(r.host.Kept[b.Pool], k)
		return
	}
	pool := &r.pools[b.Pool]
	held := &pool.Kept[page]
	k.References, k.CoveredReferences = held.References, held.CoveredReferences
	*held = k
	if b.Front != messages.NoPage {
		pool.Follow = append(pool.Follow, protocol.PoolOp{Kind: protocol.FollowCheckpoint,
			Pages: []messages.PageID{b.Front, page}})
	}
}

// referencedPages are all pages of a pool, by number, with what sequences know of them.
func (r *recovery) referencedPages(p int) []protocol.KeptPage {
	pages := make([]protocol.KeptPage, r.counts.device[p].Total)
	for i := range pages {
		pages[i] = protocol.KeptPage{Page: messages.PageID(i), Block: protocol.NoBlock}
	}
	r.sequences.EachPage(p, func(s *sequence.Sequence, block sequence.BlockIndex,
		page messages.PageID) {
		// Every entry of a table is one reference, also of a sequence that is lost: its host may
		// have kernels on the page.
		k := &pages[page]
		k.References++
		k.Tenant = s.Tenant
		if s.Covered(p) && block >= s.ReusedBlocks() {
			k.CoveredReferences++
		}
	})
	return pages
}

// end takes over the counts and answers the request of the round with the failure.
func (r *recovery) end() {
	for p := range r.config.Pools {
		r.counts.device[p] = r.pools[p].Counts
	}
	copy(r.counts.host, r.host.Counts)
	r.out.nextExpiry = 0 // the tree's last answer may have been lost
	if r.config.OnRecovered != nil {
		r.config.OnRecovered(Recovered{LostSequences: r.sequences.Counts().Lost,
			KeptPages: len(r.list.Blocks)})
	}
	cause := r.cause
	*r = recovery{shared: r.shared, moved: map[poolBlock]bool{}}
	switch r.kernel.active = nil; {
	case r.kernel.round.request == nil:
	case cause == nil: // a rebalance that has failed has its error
		r.kernel.reply()
	default:
		r.kernel.abort(cause)
	}
}

// check verifies that a recovery that waits has a reason.
func (r *recovery) check() error {
	if (r.stage == "") != (len(r.failures) == 0) {
		return fmt.Errorf("recovery: %v after %d failures", r.stage, len(r.failures))
	}
	return nil
}
