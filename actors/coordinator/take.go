package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The stages of a prompt batch behind its claims. Pages are taken in three parts, of
// all prompts each: those for partial copies while their sources are held, so that
// no source is a victim; then the sources are given up; then all other pages.
//
//	claims of 1, 2, 3 │ copy pages of 1, 2, 3 │ sources dropped │ pages of 1, 2, 3
//
// What two prompts want from host memory the first of them brings in.

// promptTaking has the stages of a prompt batch behind its claims. It has no state of its own:
// admissions and prefetches take pages in the same way, lookups only match and claim.
type promptTaking struct{ batch *promptBatch }

// take asks the pools for the pages of all admitted prompts.
func (b promptTaking) take() {
	for _, it := range b.batch.open() {
		// Uses are given in the order of the batch: a later prompt's pages are used later.
		it.sequence.Use = b.batch.uses.next()
		b.holdSources(it)
	}
	for i := range b.batch.open() {
		b.takeCopyPages(i)
	}
	for _, it := range b.batch.open() {
		b.dropSources(it)
	}
	for _, it := range b.batch.open() {
		b.takePages(it)
	}
	b.batch.out.pools.send()
}

// copiesFrom tells whether a prompt copies from a page of a pool: a source of partial reuse or a
// checkpoint. One in host memory is no page that could be evicted: the offloader holds it back
// while it copies from it.
func (b promptTaking) copiesFrom(it *prompt, p int) bool {
	return it.plans[p].inspect >= 0 && (b.batch.states.has(p) || it.reuse == messages.PartialCopy)
}

// holdSources claims what a prompt copies from until the copies have their pages: a page that is
// taken for another prompt of the batch could be it. What is taken over is claimed for good.
func (b promptTaking) holdSources(it *prompt) {
	for p := range b.batch.decoder.end {
		pages := it.plans[p].source[:]
		switch {
		case b.copiesFrom(it, p):
			b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
		// The page is the prompt's own from here on. So it counts under the reserve of a prompt
		// in chunks, and the table has it directly behind the whole blocks; takePages takes
		// what follows.
		case it.reuse == messages.PartialTakeover && it.plans[p].inspect >= 0:
			b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages,
				CoveredByReservation: it.sequence.Covered(p)})
			it.sequence.SetTable(p, append(it.sequence.Table(p), pages[0]))
		}
	}
}

// takeCopyPages takes a page in each pool that prompt i copies into.
func (b promptTaking) takeCopyPages(i int) {
	it := &b.batch.items[i]
	s := it.sequence
	for p := range b.batch.decoder.end {
		if !b.batch.copiesInto(i, p) {
			continue
		}
		pl := &it.plans[p]
		// One page of its own array: the operation appends to it, and the plan keeps it until
		// the copy is made.
		pl.copyPage = b.batch.out.pools.add(p, protocol.PoolOp{
			Kind: protocol.Take, N: 1, Pages: pl.copied[:0], Tenant: s.Tenant,
			CoveredByReservation: s.Covered(p),
		})
		// The number of the page is known when the pool has answered. Until then the table has
		// an empty place for it, behind which takePages appends.
		s.SetTable(p, append(s.Table(p), messages.NoPage))
	}
}

// dropSources gives up what a prompt copies from: from now on it may be a victim. The use that it
// leaves is the early half of the prompt's: of two pages at one depth the one that the prompt
// has only read is evicted before the one that it holds.
func (b promptTaking) dropSources(it *prompt) {
	for p := range b.batch.decoder.end {
		if b.copiesFrom(it, p) {
			b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: it.plans[p].source[:],
				Use: it.sequence.Use.Early()})
		}
	}
}

// takePages takes pages for what comes from host memory, then for all tokens that
// must be computed. A block that is taken over from host memory is the first of
// those.
func (b promptTaking) takePages(it *prompt) {
	s := it.sequence
	for p := it.pools.first; p < it.pools.end; p++ {
		pl, table := &it.plans[p], s.Table(p)
		// Pages for host contents come first, so that those of one prompt are taken in the order
		// of its table.
		if pl.onboarded > 0 {
			pl.onboard = b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Take, N: pl.onboarded,
				Tenant: s.Tenant})
		}
		// The operation appends to the table itself: no page number is copied twice.
		if n := pl.blocks - len(table); n > 0 {
			pl.fresh = b.batch.out.pools.add(p, protocol.PoolOp{
				Kind: protocol.Take, N: n, Tenant: s.Tenant, Pages: table, CoveredByReservation: s.Covered(p),
			})
		}
	}
}

// taken writes the pages into the tables and passes victims and transfers on to the
// offloader. Only here are page numbers known, so all transfers of the batch are planned at
// once and go in one message.
func (b promptTaking) taken() {
	b.batch.out.pools.received()
	b.batch.out.move.victims(&b.batch.out.pools)
	for i := range b.batch.open() {
		b.fillTables(i)
	}
	b.fillStates()
	if b.batch.imported == nil {
		for _, it := range b.batch.open() {
			b.askReady(it)
		}
	}
	b.batch.out.move.send()
}

// fillTables completes the tables of prompt i and plans its transfers.
func (b promptTaking) fillTables(i int) {
	it := &b.batch.items[i]
	s := it.sequence
	for p := it.pools.first; p < it.pools.end; p++ {
		pl, m := &it.plans[p], b.batch.matchFor(i, p)
		// The pool has appended to the table that it was lent: what it answers is the table
		// now, with empty places for onboards and for a copy.
		if pl.fresh >= 0 {
			op := b.batch.out.pools.op(p, pl.fresh)
			s.SetTable(p, op.Pages)
			b.batch.stats.allocated(p, op.N)
		}
		if pl.onboard >= 0 {
			op := b.batch.out.pools.op(p, pl.onboard)
			b.batch.stats.allocated(p, op.N)
			if b.batch.imported != nil {
				b.batch.fillImport(p, op.Pages)
			}
		}
		b.fillOnboards(i, p)
		// Partial reuse is of blocks of the decoder's tokens; state pools are filled by
		// fillStates.
		if p >= b.batch.self.end {
			continue
		}
		switch it.reuse {
		case messages.PartialCopy:
			b.copyInto(it, p, m.Blocks, protocol.PageCopy{From: m.Source.Pages[p], Block: m.Source.Block,
				Tokens: m.Source.Tokens})
		case messages.PartialTakeover:
			// On the device the page is in the table since holdSources. From host memory the
			// contents go to the first fresh page, and the host page is free afterwards: the
			// tree forgets the block, so no copy of it is of any use.
			if pl.inspect < 0 { // from host memory
				b.batch.out.move.onboard(p, protocol.Onboard{Block: m.Source.Block, To: s.Table(p)[m.Blocks],
					Free: true})
			}
		}
	}
}

// fillOnboards gives the blocks that come from host memory their pages. What an
// earlier prompt brings is shared with it.
func (b promptTaking) fillOnboards(i, p int) {
	it := &b.batch.items[i]
	pl := &it.plans[p]
	blocks, locations := b.batch.found(i, p)
	// A prompt may onboard nothing itself and share all that it has in host memory.
	var pages []messages.PageID
	if pl.onboard >= 0 {
		pages = b.batch.out.pools.op(p, pl.onboard).Pages
	}
	table := it.sequence.Table(p)
	next := 0
	for k, at := range locations {
		if !at.InHost() {
			continue
		}
		// The page has one reference yet, that of the prompt which brings it; this one gets its
		// own when the copy has succeeded.
		if from := b.batch.onboarder(i, p, k); from != nil {
			table[k] = from.sequence.Table(p)[k]
			pl.shared = append(pl.shared, table[k])
			continue
		}
		table[k] = pages[next]
		b.batch.out.move.onboard(p, protocol.Onboard{Block: blocks[k], To: pages[next]})
		next++
	}
}

// copyInto plans a copy into the page that takeCopyPages has taken in a pool, and fills the place
// in the table that it has left empty.
func (b promptTaking) copyInto(it *prompt, p, entry int, c protocol.PageCopy) {
	c.To = b.batch.out.pools.op(p, it.plans[p].copyPage).Pages[0]
	it.sequence.Table(p)[entry] = c.To
	b.batch.stats.allocated(p, 1)
	b.batch.out.move.copy(p, c)
	// The copy is a use of its source, like that of one on the device.
	if c.From.InHost() {
		q := b.batch.out.move.pool(p)
		q.Touches = append(q.Touches, protocol.Touch{Block: c.Block,
			Use: it.sequence.Use.Early()})
	}
}

// touchSource leaves the use of a partial copy on its source where that came to the
// device for another prompt of the batch: in host memory, where the copy found it, a
// clean copy is left, which has no use.
func (b promptTaking) touchSource(i int) {
	it := &b.batch.items[i]
	if it.reuse != messages.PartialCopy {
		return
	}
	m := &b.batch.match.Items[it.self]
	for p := range b.batch.self.end {
		j, onboarded := b.batch.claims.onboarders[poolBlock{messages.PoolID(p), m.Source.Block}]
		if !onboarded || b.batch.items[j].refused != nil {
			continue
		}
		pages := b.batch.items[j].sequence.Table(p)[m.Blocks : m.Blocks+1]
		b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Claim, Pages: pages})
		b.batch.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages,
			Use: it.sequence.Use.Early()})
	}
}

// askReady asks what the pages of a prompt wait for: blocks reused whole are read,
// all others written. The kernels of the encoder come before those of the decoder, so
// cross pools are asked about apart.
func (b promptTaking) askReady(it *prompt) {
	if it.self >= 0 {
		it.query = b.ask(it, b.batch.decoder)
	}
	if it.cross >= 0 {
		it.input = b.ask(it, b.batch.cross)
	}
}

// ask asks about the pages of some pools, and returns the index of the question. A kernel of
// the prompt writes to every page behind the whole blocks that are reused, also to one that a
// copy fills or that was taken over. In a state pool nothing counts as reused: the working page
// is written to.
func (b promptTaking) ask(it *prompt, pools poolRange) int {
	return b.batch.out.move.ask(pools.end, func(p int) (read, write []messages.PageID) {
		if !pools.has(p) { // lists are by PoolID
			return nil, nil
		}
		table, reused := it.sequence.Table(p), it.plans[p].reused
		return table[:reused], table[reused:]
	})
}

// transferred takes over what became of the transfers in a pool and tells the tree
// which blocks are on the device now. A block that could not be brought in is
// forgotten, so that its prompt finds what is left when it is matched again. It
// returns what the offloader must forget, added to lost.
func (b promptTaking) transferred(p int, lost []protocol.Effect) []protocol.Effect {
	q := b.batch.out.move.pool(p)
	// Pages whose bytes did not arrive, by onboards and by partial copies alike.
	var failed []messages.PageID
	for k := range q.Onboards {
		o := &q.Onboards[k]
		// A refused copy leaves the page with bytes of its former owner. The block is given up,
		// so that no later match runs into the same failure.
		at := protocol.OnDevice(o.To)
		if o.Failed {
			at = protocol.Nowhere
			b.batch.stats.pool(p).Dropped++
			blocks := []protocol.BlockID{o.Block}
			lost = append(lost, protocol.Effect{Kind: protocol.HostForget, Pool: messages.PoolID(p),
				Blocks: blocks})
			b.batch.pins.forget(p, blocks)
			failed = append(failed, o.To)
		} else {
			b.batch.stats.onboarded(p)
		}
		// The tree is told of each onboard apart: some of one prompt may have failed. With Free the block
		// was taken over: it is forgotten by the takeover.
		if !o.Free {
			b.batch.out.moveBlock(p, o.Block, at)
		}
	}
	for k := range q.Copies {
		if q.Copies[k].Failed {
			failed = append(failed, q.Copies[k].To)
		}
	}
	if failed != nil {
		b.markFailed(p, failed)
	}
	return lost
}

// markFailed marks every prompt whose tables hold a page that was not written. It is matched again,
// or refused if that could not help. A page may be in the tables of several prompts, because
// prompts of a batch share what one of them brings in.
func (b promptTaking) markFailed(p int, failed []messages.PageID) {
	for i := range b.batch.items {
		it := &b.batch.items[i]
		if !it.served() || !slices.ContainsFunc(it.sequence.Table(p),
			func(page messages.PageID) bool { return slices.Contains(failed, page) }) {
			continue
		}
		switch {
		case !b.batch.states.has(p) || b.batch.storedOnly:
			if it.refused == nil {
				it.refused = errTransfer
			}
		// The next attempt begins with zeros, for the same copy might fail each time.
		case b.batch.copiesCheckpoint(i):
			it.states.noCheckpoint = true
			if it.refused == nil {
				it.refused = errTransfer
			}
		// There is nothing with less that could fail: the prompt is refused for good.
		default:
			it.refused = errState
		}
	}
}

// served tells whether a prompt has its pages, also if they could not be filled. Such a prompt
// holds its pages until the transaction drops them.
func (it *prompt) served() bool { return it.refused == nil || it.failed() }

// failed tells whether pages of a prompt could not be filled.
func (it *prompt) failed() bool { return it.refused == errTransfer || it.refused == errState }

// takeover tells the tree of the source of a prompt that was taken over. It returns
// the source that is left to be claimed. It is called for a prompt whose transfers failed as
// well: the source has lost its page to the table of the prompt, and the tree must forget the
// block in any case.
func (b promptTaking) takeover(i int) protocol.BlockID {
	source := b.batch.source(i)
	if source == nil {
		return protocol.NoBlock
	}
	if b.batch.items[i].reuse != messages.PartialTakeover {
		return source.Block
	}
	b.batch.out.change.Takeovers = append(b.batch.out.change.Takeovers, source.Block)
	return protocol.NoBlock
}
