package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/messages"
)

// extension serves Append, an engine step: sequences grow by sampled tokens. First
// all of them get their pages, in order; then what they compute is committed; then
// what has left its window is dropped.
//
//	start ─▶ inspecting ─▶ taking ─▶ moving ──────────────┬──▶ committing ─▶ answer
//	         who else       pages,    victims, copies      │    see commit.go
//	         holds the      copies    on write             ▼
//	         pages to be    on write            a copy failed: takingBack
//	         written                            the steps it belongs to get
//	                                            their old pages again
//
// A page that others hold, too, is copied before it is written to: see rewrites.go. Most
// steps write to pages of their own and need no new one: they go straight to committing.
//
// A step is all or nothing in all pools. One that is refused leaves its sequence without its
// tokens and pages, and commits nothing.
type extension struct {
	*shared
	stages[extension]
	batch      *stepBatch
	committing *commitStages
}

// start enters the steps that are right.
func (e *extension) start(request any) {
	b, r := e.batch, request.(*messages.Append)
	b.reset()
	r.Results = emptyResults(r.Results, len(r.Steps), len(e.config.Pools))
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		it := b.enter(request.Sequence, request.After, result,
			func(s *sequence.Sequence) error { return e.validate(s, request) })
		if it == nil {
			continue
		}
		it.request, it.computed = request, request.Computed
		// A use for each sequence, in the order of the request: what a step drops is older
		// than what the steps behind it drop.
		it.sequence.Use = e.uses.next()
	}
	e.inspect()
	e.wait(e, "append: inspecting", (*extension).inspected)
	e.out.pools.send()
}

// take decides about the steps in order and takes the pages of those that fit.
func (e *extension) take() {
	e.out.pools.reset()
	changes := false
	for i := range e.batch.items {
		changes = e.takeStep(&e.batch.items[i]) || changes
	}
	// The common step: every token goes to a page that the sequence has. No pool is asked
	// and nothing is copied, so the step is one message to the tree, or none.
	if !changes {
		e.addTokens()
		e.out.resetChange()
		e.committing.begin()
		return
	}
	e.wait(e, "append: taking", (*extension).taken)
	e.out.pools.send()
}

// takeStep decides about one step: all its pages in all pools or none. It tells whether the tables
// of the sequence change. Those of beams do, since beams follow their parents.
func (e *extension) takeStep(it *step) bool {
	s := it.sequence
	takes := s.Width() > 1
	for p := range e.decoder.end {
		// The pages that only ended beams held are free for the step. Those that its copies drop are
		// not: they are dropped when the copies have their pages.
		freed := e.followParents(it, p)
		need := e.findRewrites(it, p) + e.begun(it, p)
		if need == 0 {
			continue
		}
		takes = true
		if refusal := e.pressure.lack(p, need, e.counts.available(p)-e.batch.taken[p]+freed,
			need+pagesIn(s.Tables(p)[it.parent(0)])); refusal != nil {
			e.refuse(it, refusal)
			return false
		}
	}
	if !takes { // pages that others might have held are the sequence's own now
		return len(e.batch.shares[0]) > 0 && it.first < int(s.SharedBlocks())
	}
	// All pools have the pages; only now is anything taken.
	for p := range e.decoder.end {
		e.takePages(it, p)
	}
	return true
}

// begun is the number of pages of the blocks that a step begins in a pool: one for each beam. In a
// state pool they are the working page and those of drafts; what a step asks for less goes with its
// commit.
func (e *extension) begun(it *step, p int) int {
	before := it.pools[p].before
	if e.states.has(p) {
		return max(0, 1+it.request.DraftStates-before)
	}
	return it.sequence.Width() * (e.config.blocks(int(it.sequence.Length())+it.added()) - before)
}

// refuse leaves a sequence as it was. The copies that it has noted are forgotten, since
// copiedOver reads those of all steps.
func (e *extension) refuse(it *step, err error) {
	e.giveUp(it, err)
	it.sequence.Use = it.use
	e.pressure.noteRefusal(err)
	for p := range it.pools {
		it.pools[p].copies = it.pools[p].copies[:0]
	}
}

// taken writes the pages into the tables and orders the copies.
func (e *extension) taken() {
	e.out.pools.received()
	e.out.move.victims(&e.out.pools)
	// Before the sequences get their tokens: the marks are of what they had until now.
	e.markEarlier()
	e.addTokens()
	for i := range e.batch.items {
		if it := &e.batch.items[i]; !it.refused {
			e.fillTables(it)
		}
	}
	e.wait(e, "append: moving", (*extension).moved)
	e.out.move.send()
}

// markEarlier tells the offloader of kernels that write, before the step, what the
// step commits, and drafts: copies on write must come after them.
//
// Without the mark a copy on write could read a page that the kernel is still writing:
// both run on streams of their own, and only the ticket orders them.
func (e *extension) markEarlier() {
	marks := &e.out.move.record.Marks
	for i := range e.batch.items {
		it := &e.batch.items[i]
		s := it.sequence
		// Without a ticket the host has waited for its kernels itself.
		if it.refused || it.after.IsZero() {
			continue
		}
		from := len(*marks)
		e.out.move.markWritten(s, e.self, int(s.Computed())/e.config.TokensPerBlock, it.after)
		for k := range (*marks)[from:] {
			m := &(*marks)[from+k]
			m.Pages = slices.Clone(m.Pages) // the step changes the tables
		}
	}
}

// written is how many tokens may have their KV in the pages before the step: what
// is computed, drafts, which are all but the last sampled token, and what the step
// itself commits.
func (it *step) written() int {
	s := it.sequence
	// The tokens of the step have been added by now, and are in no page.
	before := int(s.Length()) - it.added()
	return max(int(s.Computed()), before-1, min(it.computed, before))
}

// added is the number of tokens that a step brings to each beam. A step of beams has exactly
// one for each, see validateBeams.
func (it *step) added() int {
	if it.sequence.Width() > 1 {
		return 1
	}
	return len(it.request.Tokens)
}

// addTokens extends the sequences of all steps that were not refused. It goes before
// fillTables, which copies what was written before the step and so must know which tokens are
// new.
func (e *extension) addTokens() {
	for i := range e.batch.items {
		it := &e.batch.items[i]
		switch s := it.sequence; {
		case it.refused:
			continue
		case s.Width() > 1:
			s.ExtendBeams(it.request.Beams)
		default:
			s.Extend(it.request.Tokens)
		}
		it.extended = true
	}
}

// fillTables places the pages of one step.
func (e *extension) fillTables(it *step) {
	s := it.sequence
	took := false
	for p := range e.decoder.end {
		if s.Width() > 1 {
			e.exchangeTables(it, p)
		}
		took = e.placePages(it, p) || took
	}
	// What others held has been copied, and what they did not hold is the sequence's own:
	// the next step need not ask again.
	if it.first < int(s.SharedBlocks()) {
		took = true
		s.OwnFrom(sequence.BlockIndex(it.first))
	}
	if took {
		e.askWrites(it)
	}
}

// askWrites asks what the pages that a step may write to wait for. Pages before the first that
// may be written to are not in it: the step only reads them.
func (e *extension) askWrites(it *step) {
	s := it.sequence
	it.query = e.out.move.ask(e.decoder.end, func(p int) (_, write []messages.PageID) {
		switch {
		case e.states.has(p):
			return nil, s.Table(p)[it.pools[p].before:]
		case s.Width() == 1:
			return nil, s.Table(p)[it.first:]
		}
		for _, table := range s.Tables(p) {
			write = append(write, table[it.first:]...)
		}
		return nil, write
	})
}

// moved follows victims and copies, then commits.
func (e *extension) moved() {
	// The victims' moves go to the tree with what the steps store: one message for both.
	e.out.moved()
	e.batch.copyTickets()
	// Before anything is stored, so that no block reaches the tree whose step is taken back.
	if !e.takeBackFailed() {
		e.committing.begin()
		return
	}
	e.wait(e, "append: taking back", (*extension).tookBack)
	e.out.followUp()
}

func (e *extension) tookBack() {
	e.out.followed()
	e.committing.begin()
}
