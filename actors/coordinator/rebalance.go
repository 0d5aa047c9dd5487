package coordinator

import (
	"fmt"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// rebalance serves Rebalance: device memory moves between pools. All of it is one
// round: no request sees pools of two sizes.
//
//	start ─▶ resizing ─▶ moving ─▶ applying ─▶ following ─▶ device ─┬─▶ answer
//	         pools get   victims   the tree    pools follow │       │
//	         new counts  and moved follows     what could   │       └─▶ takingBack
//	                     pages are             not be moved │           the device refused:
//	                     copied                is dropped   │           pools that grew get
//	                                                        │           their old counts
//	         before the tables have the new numbers         │ after it the request
//	         a failure takes everything back                │ is carried through
//
// From start to the answer pages and before have an entry for each pool. Pools with the same
// count in both are asked as well, so that every pool answers its counts.
type rebalance struct {
	*shared
	auto    *autoRebalance
	request *messages.Rebalance
	stage   rebalanceStage

	// pages are also what a recovery gives the pools once the tables are renumbered, so they
	// are the counts that can be kept: takeBack lowers those of pools that grew.
	pages  []int // by pool, the new counts
	before []int // by pool, the old counts
	resize []protocol.ResizePool
	back   []protocol.ResizePool // after the device has refused
	device *protocol.ResizeDevice
	waits  []messages.Ticket // that must have passed before memory may shrink
	// renumbered: the tables have the new numbers. Before that a failure takes the
	// round back to the old counts; after it, the rest is carried through.
	renumbered bool
	done       bool // only the answer is left
	// refusal is what the device said of the memory that pools were to grow by. It is kept
	// here because a recovery asks the device once more, for the counts that it can have.
	refusal error

	// What is on a page that could not be moved has no bytes any more: both lists are acted on
	// in two steps. First the sequences are marked, while the tables have the pages; then, when
	// the tree has answered, pools and host memory drop what was there.
	failed []failedMoves        // by pool
	losing []*sequence.Sequence // that hold a page which could not be moved
}

// failedMoves are the pages of one pool that could not be moved.
type failedMoves struct {
	pages  []messages.PageID  // their new numbers
	cached []messages.PageID  // of these, those that cached a block
	blocks []protocol.BlockID // that those cached: they may have clean copies
}

// rebalanceStage is what the rebalance waits for.
type rebalanceStage uint8

// The stages.
const (
	rebalanceIdle       rebalanceStage = iota // nothing has been sent
	rebalanceResizing                         // pools take their new counts, and name victims and moves
	rebalanceMoving                           // the offloader takes victims and copies moved pages
	rebalanceApplying                         // the tree learns where blocks are
	rebalanceFollowing                        // pools and host memory follow
	rebalanceDevice                           // the device gives the pools their memory
	rebalanceTakingBack                       // the device has refused: pools that grew shrink again
	rebalanceRecovered                        // a recovery has rebuilt the pools, and the device's part is left
)

// String names the stage.
func (s rebalanceStage) String() string {
	return [...]string{"idle", "resizing", "moving", "applying", "following", "device", "taking back", "recovered"}[s]
}

// open begins a request.
func (r *rebalance) open(m *messages.Rebalance) {
	r.request, r.stage, r.renumbered, r.done = m, rebalanceIdle, false, false
	r.before, r.losing = r.before[:0], r.losing[:0]
}

// start refuses what cannot be, and resizes the pools.
func (r *rebalance) start() {
	m := r.request
	m.Err, m.Rebalanced = nil, messages.Rebalanced{}
	pages, err := r.split(m)
	if err == nil {
		err = r.validateCounts(pages)
	}
	// Refused before anything has changed: the counts say whether every pool can have what
	// it is to have.
	if err != nil {
		m.Err = err
		r.kernel.reply()
		return
	}
	r.pages, r.renumbered, r.done, r.refusal = pages, false, false, nil
	r.before = r.before[:0]
	for p := range r.counts.device {
		r.before = append(r.before, r.counts.device[p].Total)
	}
	// The records are new ones: a failure may leave the last ones with the pools.
	r.resize = make([]protocol.ResizePool, 0, len(pages))
	// All records are made before the first is sent: the pools may answer while the others are
	// still being sent to, and the slice must not be moved under a record that is lent.
	for p, n := range pages {
		r.resize = append(r.resize, r.resizeTo(p, n))
	}
	r.stage = rebalanceResizing
	for p := range r.resize {
		r.kernel.resizePool(&r.resize[p])
	}
}

// resizeTo is the message that gives a pool a number of pages.
func (r *rebalance) resizeTo(p, pages int) protocol.ResizePool {
	return protocol.ResizePool{
		Header: protocol.Header{Epoch: r.kernel.epoch}, Pool: messages.PoolID(p), Pages: pages, Now: r.kernel.now,
	}
}

// resume does the stage that follows.
func (r *rebalance) resume() {
	switch r.stage {
	case rebalanceResizing:
		r.resized()
	case rebalanceMoving:
		r.moved()
	case rebalanceApplying:
		r.out.applied()
		r.dropFailed()
		r.stage = rebalanceFollowing
		r.out.followUp()
	case rebalanceFollowing:
		r.out.followed()
		r.resizeDevice(r.waits)
	case rebalanceDevice:
		if r.device.Err != nil {
			r.refusal = r.device.Err
		}
		if r.device.Err == nil || !r.takeBack() {
			r.end()
		}
	case rebalanceTakingBack:
		r.tookBack()
		r.end()
	case rebalanceRecovered:
		r.resizeDevice(nil) // the device is at rest
	case rebalanceIdle:
	}
}

// resized passes victims and moved pages on to the offloader, and asks what must
// have passed before the memory that shrinks may go.
func (r *rebalance) resized() {
	r.out.move.reset()
	// The memory beyond the new ends may be given away, and the new places may be written
	// to, when everything that uses them has passed.
	query, _ := r.out.move.query()
	for p := range r.resize {
		z := &r.resize[p]
		q := r.out.move.pool(p)
		// Victims are offloaded like those of any eviction.
		q.Victims = z.Victims
		var pages []messages.PageID
		for i := range z.Moves {
			m := &z.Moves[i]
			r.out.move.copy(p, protocol.PageCopy{
				From: protocol.OnDevice(m.Old), Block: protocol.NoBlock, To: m.New, Tokens: r.config.TokensPerBlock,
			})
			pages = append(pages, m.New)
		}
		for page := z.Pages; page < r.counts.device[p].Total; page++ {
			pages = append(pages, messages.PageID(page))
		}
		query.Write = append(query.Write, pages)
		// The counts are those after the resize, though nothing has been copied yet: no page is
		// taken before the round ends, so no one can act on them too early.
		r.counts.device[p] = z.Counts
	}
	// The kernels are named before the moves are planned: a copy must come after what writes
	// its source, and the new owner of a page after what reads it.
	r.sequences.Each(r.markTables)
	r.out.move.ordered = true
	r.stage = rebalanceMoving
	r.out.move.send()
}

// markTables tells the offloader of the kernels that use the pages of a sequence.
// Those of a lost sequence may have written pages without the engine being told, so they
// count as writers.
func (r *rebalance) markTables(s *sequence.Sequence) {
	after := s.Usage.After()
	if after.IsZero() {
		return
	}
	for p := range r.config.Pools {
		// The host may have launched kernels on pages that are about to move.
		for _, table := range s.Tables(p) {
			if len(table) > 0 {
				r.out.move.mark(p, table, s.IsLost(), after)
			}
		}
	}
}

// moved renumbers the pages in the tables and tells the tree where the blocks are
// now.
func (r *rebalance) moved() {
	r.out.resetChange()
	r.out.moved()
	// The record of the Move is reused by the next message, and the device is resized after
	// that.
	r.waits = slices.Clone(r.out.move.tickets(0))
	r.failed = make([]failedMoves, len(r.config.Pools))
	for p := range r.resize {
		renumber := map[messages.PageID]messages.PageID{}
		for i := range r.resize[p].Moves {
			m := &r.resize[p].Moves[i]
			// Also when the copy has failed: the old number may lie beyond the end of the pool, or
			// be another page's new one.
			renumber[m.Old] = m.New
			to := protocol.OnDevice(m.New)
			if r.out.move.pool(p).Copies[i].Failed {
				to = protocol.Nowhere
				r.noteFailed(p, m)
			}
			if m.Block != protocol.NoBlock {
				r.out.moveBlock(p, m.Block, to)
			}
		}
		r.sequences.Renumber(p, renumber)
	}
	// Tables have the new numbers: there is no way back from here.
	// In this order: loseFailed looks for the new numbers of the pages that could not be moved.
	r.renumbered = true
	r.loseFailed()
	r.stage = rebalanceApplying
	r.out.apply()
}

// noteFailed notes a page whose copy failed: what it cached is forgotten.
func (r *rebalance) noteFailed(p int, m *protocol.PageMoved) {
	f := &r.failed[p]
	f.pages = append(f.pages, m.New)
	if m.Block != protocol.NoBlock {
		f.cached, f.blocks = append(f.cached, m.New), append(f.blocks, m.Block)
		// The tree is told that the block is nowhere in this pool, and no effect of that comes back
		// for a pin, so the pin is ended here.
		r.pins.forget(p, []protocol.BlockID{m.Block})
	}
}

// loseFailed marks the sequences that hold a page which could not be moved. They
// are lost from now on, also for a recovery from what may fail next.
func (r *rebalance) loseFailed() {
	for p := range r.failed {
		r.sequences.Each(func(s *sequence.Sequence) {
			// One that is lost already holds its pages for its host's kernels only.
			if !s.IsLost() && s.HoldsAny(p, r.failed[p].pages) {
				s.MarkLost(sequence.LostMove)
				r.losing = append(r.losing, s)
			}
		})
	}
}

// dropFailed gives up what was on pages that could not be moved: the blocks, which
// the tree has forgotten, and what the lost sequences held.
func (r *rebalance) dropFailed() {
	for p := range r.failed {
		if f := &r.failed[p]; len(f.cached) > 0 {
			r.out.pools.add(p, protocol.PoolOp{Kind: protocol.DetachPages, Pages: f.cached})
			r.out.move.effect(&protocol.Effect{Kind: protocol.HostForget, Pool: messages.PoolID(p), Blocks: f.blocks}) // clean copies
		}
	}
	// A lost sequence holds its pages until its release, elsewhere. Here it cannot: the host
	// has the old numbers, which may be other pages now or lie behind the end of a pool.
	for _, s := range r.losing {
		for p := range r.config.Pools {
			for _, table := range s.Tables(p) {
				// The table is emptied below, and the pools read the pages later.
				pages := slices.Clone(table)
				r.out.move.markRead(s, p, pages)
				r.out.pools.drop(s, p, pages, 0)
			}
		}
		s.Clear() // its reserve goes with what it held
	}
}

// resizeDevice moves the memory itself. The tables are right whatever it answers: with a
// refusal pools that grew give back what they were to get.
func (r *rebalance) resizeDevice(waits []messages.Ticket) {
	// A new record: after a failure the offloader may still have the last one.
	r.device = &protocol.ResizeDevice{Header: protocol.Header{Epoch: r.kernel.epoch}, Pages: r.pages, Waits: waits}
	r.stage = rebalanceDevice
	r.kernel.toOffloader(r.device)
}

// takeBack gives the pools that grew their old counts, since the device has refused
// the memory. What they got is free still. It tells whether there are any.
func (r *rebalance) takeBack() bool {
	r.back = make([]protocol.ResizePool, 0, len(r.before))
	for p, n := range r.before {
		// Pools that shrank stay small: their memory may have been given back, and what they have
		// evicted is not brought back.
		if r.pages[p] > n {
			r.pages[p] = n
			r.back = append(r.back, r.resizeTo(p, n))
		}
	}
	r.stage = rebalanceTakingBack
	for i := range r.back {
		r.kernel.resizePool(&r.back[i])
	}
	return len(r.back) > 0
}

// tookBack takes over the counts.
func (r *rebalance) tookBack() {
	for i := range r.back {
		z := &r.back[i]
		// Nothing takes a page in this round, so what a pool has grown by is free.
		if len(z.Victims)+len(z.Moves) > 0 {
			panic(fmt.Sprintf("coordinator: pool %s: %d pages beyond its old end are in use, in the round that added them", r.config.Pools[z.Pool].Name, len(z.Victims)+len(z.Moves)))
		}
		r.counts.device[z.Pool] = z.Counts
	}
}

// end answers. It ends renumbered: from here on a failure only leaves the answer to be given,
// see undo.
func (r *rebalance) end() {
	m := r.request
	if r.refusal != nil {
		m.Err = refusals.New(messages.ErrInternal, "rebalance of device memory: %v", r.refusal)
	}
	// Also with a refusal: pages have moved and counts have changed, and the host must follow.
	for p := range r.resize {
		moved := []messages.PageMove{}
		for i := range r.resize[p].Moves {
			// Tables and pins are what a host can name, so it is told of those pages only.
			if page := &r.resize[p].Moves[i]; page.Held {
				moved = append(moved, page.PageMove)
			}
		}
		r.config.Counts[p].Primary = r.pages[p]
		m.Rebalanced.Pools = append(m.Rebalanced.Pools, r.config.Pools[p].Describe(r.config.Counts[p]))
		m.Rebalanced.Moved = append(m.Rebalanced.Moved, moved)
	}
	r.done, r.renumbered = true, false
	// Before the next answer goes out, so that no host uses an old number behind it.
	r.auto.announce(m)
	r.kernel.reply()
}

// undo goes back to the old counts, unless the tables have the new numbers: then the
// rest is the device's, and is carried through. What lost sequences held could not
// be moved, and may lie beyond the ends of the pools by now.
func (r *rebalance) undo(bool) verdict {
	// Their tables name pages without contents, perhaps behind the end of a pool, from which a
	// recovery could not rebuild anything.
	for _, s := range r.losing {
		s.Clear()
	}
	switch {
	case r.done:
		return answerNow
	// No way back: the tables have the new numbers, and the old pages may be overwritten. The
	// pools are rebuilt with the new counts, and then only the device is left to be told.
	case r.renumbered:
		for p, n := range r.pages { // fewer than the pools say if they are about to be taken back
			r.counts.device[p].Total = n
		}
		r.stage = rebalanceRecovered
		return carryOn
	}
	// Tables still have the old numbers, so the pools are rebuilt with the old counts. Copies
	// that were made have written only to pages that were free.
	for p, n := range r.before {
		r.counts.device[p].Total = n
	}
	return serveAgain
}

// check verifies that there is a count for every pool.
func (r *rebalance) check() error {
	if r.stage != rebalanceIdle && (len(r.pages) != len(r.config.Pools) || len(r.before) != len(r.config.Pools)) {
		return fmt.Errorf("rebalance: %d new and %d old counts for %d pools", len(r.pages), len(r.before), len(r.config.Pools))
	}
	return nil
}

// String names the stage.
func (r *rebalance) String() string { return fmt.Sprintf("rebalance: %v", r.stage) }
