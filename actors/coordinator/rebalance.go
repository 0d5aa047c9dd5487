package coordinator

import (
	"errors"
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// rebalance serves Rebalance: device memory moves between pools. All of it is one
// round: no request sees pools of two sizes.
//
//	start ─▶ resizing ─▶ moving ─▶ applying ─▶ following ─▶ device ─▶ answer
//	         pools get   victims   the tree    pools follow │
//	         new counts  and       follows                  │
//	                     moved                              │
//	                     pages                              │
//	                     are                                │
//	                     copied                             │
//	         before the tables have the new numbers │ after it the pools get their old counts, and
//	         a failure takes everything back        │ those that shrink stay small if the device
//	                                                │ was asked
//
// A copy that fails and a device that refuses the memory are failures like that of an actor: a
// recovery rebuilds the pools, see undo, and answers with the error.
//
// From start to the answer pages has an entry for each pool. Pools whose count stays are asked as
// well, so that every pool answers its counts. The configuration has the old counts meanwhile.
type rebalance struct {
	*shared
	stages[rebalance]
	recovery *recovery
	request  *messages.Rebalance
	auto     messages.Rebalance // the request of the engine itself, for the pages that demand asks for
	next     int64              // the round from which on demand is measured once more

	pages  []int // by pool, the new counts; nil before any pool is asked
	resize []protocol.ResizePool
	device *protocol.ResizeDevice // nil before the device is asked
	waits  []messages.Ticket      // that must have passed before memory may shrink
	// renumbered: the tables have the new numbers. Before that a failure takes the
	// round back to the old counts; after it the host is told of the new numbers.
	renumbered bool
}

// start refuses what cannot be, and resizes the pools.
func (r *rebalance) start(request any) {
	r.request, r.device, r.renumbered = request.(*messages.Rebalance), nil, false
	r.pages = nil
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
	r.pages, r.waits = pages, nil
	r.wait(r, "rebalance: resizing", (*rebalance).resized)
	// The records are new ones: a failure may leave the last ones with the pools. All are made
	// before the first is sent, because the list must not be moved under a record that is lent.
	r.resize = make([]protocol.ResizePool, len(pages))
	for p, n := range pages {
		r.resize[p] = protocol.ResizePool{Header: protocol.Header{Epoch: r.kernel.epoch},
			Pages: n, Now: r.kernel.now}
	}
	for p := range r.resize {
		r.kernel.toPool(messages.PoolID(p), &r.resize[p])
	}
}

// resized passes victims and moved pages on to the offloader, and asks what must
// have passed before the memory that shrinks may go.
func (r *rebalance) resized() {
	r.out.move.reset()
	// The memory beyond the new ends may be given away, and the new places may be written
	// to, when everything that uses them has passed.
	r.out.move.ask(r.all.end, r.planMoves)
	// The kernels are named before the moves are planned: a copy must come after what writes
	// its source, and the new owner of a page after what reads it.
	r.sequences.Each(r.markTables)
	r.wait(r, "rebalance: moving", (*rebalance).moved)
	r.out.move.send()
}

// planMoves passes on what a pool has evicted and moved, and tells which of its pages will be
// written to or given away.
func (r *rebalance) planMoves(p int) (_, write []messages.PageID) {
	z := &r.resize[p]
	// Victims are offloaded like those of any eviction.
	r.out.move.pool(p).Victims = z.Victims
	for i := range z.Moves {
		m := &z.Moves[i]
		r.out.move.copy(p, protocol.PageCopy{
			From: protocol.OnDevice(m.Old), Block: protocol.NoBlock, To: m.New,
			Tokens: r.config.TokensPerBlock,
		})
		write = append(write, m.New)
	}
	for page := z.Pages; page < r.counts.device[p].Total; page++ {
		write = append(write, messages.PageID(page))
	}
	// The counts are those after the resize, though nothing has been copied yet: no page is
	// taken before the round ends, so no one can act on them too early.
	r.counts.device[p] = z.Counts
	return nil, write
}

// markTables tells the offloader of the kernels that use the pages of a sequence: the host may
// have launched them on pages that are about to move. Those of a lost sequence may have written
// any page, committed or not.
func (r *rebalance) markTables(s *sequence.Sequence) {
	after := s.After
	if after.IsZero() {
		return
	}
	for p := range r.config.Pools {
		for _, table := range s.Tables(p) {
			if s.IsLost() {
				r.out.move.mark(p, table, true, after)
			} else {
				r.out.move.markUsed(s, p, table, after)
			}
		}
	}
}

// moved renumbers the pages in the tables and tells the tree where the blocks are now. If a page
// could not be copied, all keep their old numbers: their bytes are there still.
func (r *rebalance) moved() {
	r.out.moved()
	// The record of the Move is reused by the next message, and the device is resized after
	// that.
	r.waits = slices.Clone(r.out.move.tickets(0))
	for p := range r.resize {
		if slices.ContainsFunc(r.out.move.pool(p).Copies,
			func(c protocol.PageCopy) bool { return c.Failed }) {
			r.fail(errors.New("a page could not be copied"))
			return
		}
	}
	r.renumbered = true
	for p := range r.resize {
		renumber := map[messages.PageID]messages.PageID{}
		for _, m := range r.resize[p].Moves {
			renumber[m.Old] = m.New
			if m.Block != protocol.NoBlock {
				r.out.moveBlock(p, m.Block, protocol.OnDevice(m.New))
			}
		}
		r.sequences.Renumber(p, renumber)
	}
	r.wait(r, "rebalance: applying", (*rebalance).applied)
	r.out.apply()
}

func (r *rebalance) applied() {
	r.wait(r, "rebalance: following", (*rebalance).resizeDevice)
	r.out.applied()
	r.out.followUp()
}

// resizeDevice moves the memory itself. The tables are right whatever it answers.
func (r *rebalance) resizeDevice() {
	r.out.followed()
	// A new record: after a failure the offloader may still have the last one.
	r.device = &protocol.ResizeDevice{Header: protocol.Header{Epoch: r.kernel.epoch}, Pages: r.pages,
		Waits: r.waits}
	r.wait(r, "rebalance: device", (*rebalance).resizedDevice)
	r.kernel.toOffloader(r.device)
}

// resizedDevice answers, unless the device has refused the memory.
func (r *rebalance) resizedDevice() {
	if r.device.Err != nil {
		r.fail(r.device.Err)
		return
	}
	r.tellMoves()
	r.kernel.reply()
}

// fail takes back what can be, by a recovery, which answers the request.
func (r *rebalance) fail(cause error) {
	r.request.Err = refusals.New(messages.ErrInternal, "rebalance of device memory: %v", cause)
	r.recovery.begin(Failure{Actor: "device"})
}

// tellMoves tells the host of the pages that have moved and of the counts. It does so with an
// error, too: the host must follow.
func (r *rebalance) tellMoves() {
	m := r.request
	m.Rebalanced = messages.Rebalanced{}
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
	clear(r.pressure.useful) // what the rebalance itself has evicted is no demand
	r.thrash.resize(r.config)
	if m == &r.auto {
		// Before the next answer goes out, so that no host uses an old number behind it.
		r.config.OnRebalance(m.Rebalanced)
	} else if m.Pages != nil {
		r.pressure.budget = r.pressure.total()
	}
}

// undo goes back to the old counts: copies have been written only to pages that were free. When
// the tables have the new numbers, they keep those, and the host is told of them. When the
// device was asked, it may have taken the memory of pools that shrink, which stay small.
func (r *rebalance) undo() {
	for p := range r.pages {
		n := r.config.Counts[p].Primary
		if r.device != nil {
			n = min(n, r.pages[p])
		}
		r.pages[p], r.counts.device[p].Total = n, n
	}
	if r.renumbered {
		r.tellMoves()
	}
}

// due tells whether a rebalance by demand is to be made before a request, directly before an Append
// or an Admit: it is time, and demand asks for one.
//
// Several hosts may use the engine, and each of them may have launched kernels that the engine has
// not been told of. So only pages of sequences that the Append names get other numbers: their host
// waits for the answer, and the After of the Append names its last kernel. It is told of the new
// numbers before that answer. A split that cannot be reached now, since too much is held, is tried
// later. The request has begun: before that its record is the caller's, who may give it up and use
// it again.
func (r *rebalance) due(request any) bool {
	every := r.config.RebalanceEvery
	if every == 0 || r.stats.Rounds < r.next {
		return false
	}
	movable := map[messages.SequenceID]bool{}
	switch m := request.(type) {
	case *messages.Append:
		for i := range m.Steps {
			movable[m.Steps[i].Sequence] = true
			r.sequences.NoteKernel(m.Steps[i].Sequence, m.Steps[i].After)
		}
	case *messages.Admit:
	default:
		return false
	}
	r.next = r.stats.Rounds + int64(every)
	move := r.pressure.demand(func(p int) int { return r.fixedPages(p, movable) })
	if move != nil {
		r.auto = messages.Rebalance{Pages: r.pressure.counts(move)}
	}
	return move != nil
}

// fixedPages is the least count of a pool at which no page of another sequence gets another
// number.
func (r *rebalance) fixedPages(p int, movable map[messages.SequenceID]bool) (pages int) {
	r.sequences.EachPage(p, func(s *sequence.Sequence, _ sequence.BlockIndex, page messages.PageID) {
		if !movable[s.ID()] {
			pages = max(pages, int(page)+1)
		}
	})
	return pages
}
