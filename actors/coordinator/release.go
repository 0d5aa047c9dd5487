package coordinator

import (
	"slices"

	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// release serves Release: sequences end. What they have computed is offered to the
// tree once more, a trailing partial block included, and all their pages are
// dropped. A step that names computed tokens commits them on the way: they are offered
// with the rest, so a commit and a release cost the messages of a release.
//
//	start ─▶ storing ─▶ following ─▶ answer
//	                    pages are
//	                    dropped
//
// All of the sequences run until the answer, so after a failure the host can repeat the
// request.
type release struct {
	*shared
	stages[release]
	items []releaseItem
	// facts are lent to the pools until they have answered, and used again.
	facts []*protocol.RequestFacts
}

// releaseItem is one sequence that is released.
type releaseItem struct {
	sequence *sequence.Sequence
	request  *messages.ReleaseStep
	computed int // tokens that are computed when it ends
	to       int // tokens to offer
	end      int // its offer with the state at the end; −1: none
	// committed is the use of pages that leave their windows when computed tokens are: a commit
	// before the release would have dropped them with it.
	committed protocol.Use
}

// start enters the sequences that run, and those that are lost: these say so now.
func (r *release) start(request any) {
	m := request.(*messages.Release)
	m.Results = emptyResults(m.Results, len(m.Steps), len(r.config.Pools))
	r.items = r.items[:0]
	for i := range m.Steps {
		request, result := &m.Steps[i], &m.Results[i]
		result.Sequence = request.Sequence
		s, err := r.sequences.FindOnce(request.Sequence, r.kernel.stamp)
		// A lost sequence is refused like one that is unknown, but it is released all the same:
		// the answer tells its host of the loss, and a host does not use pages after that.
		if err != nil {
			result.Err = err
			r.enterLost(request)
			continue
		}
		if result.Err = r.validate(s, request); result.Err != nil {
			r.stats.RefusedSteps.Note(result.Err)
			r.sequences.NoteKernel(request.Sequence, request.After)
			continue
		}
		r.enter(s, request)
	}
	r.store()
}

// validate checks what a step commits.
func (r *release) validate(s *sequence.Sequence, request *messages.ReleaseStep) error {
	switch {
	case request.Computed == 0:
		return nil
	case request.Discard:
		return refusals.New(messages.ErrBadRequest, "a release that commits %d tokens and discards them",
			request.Computed)
	}
	return r.config.validateCommit(s, request.Computed, int(s.Length()))
}

// enter adds a sequence that runs.
func (r *release) enter(s *sequence.Sequence, request *messages.ReleaseStep) {
	it := releaseItem{sequence: s, request: request, computed: max(int(s.Computed()),
		request.Computed), committed: s.Use}
	if it.committed == 0 {
		it.committed = r.uses.next()
	}
	it.to = it.computed
	// Without partial reuse no one could match a block that is not full.
	if !r.config.Partial {
		it.to = r.config.wholeTokens(it.to)
	}
	r.add(it)
}

// add adds an item and touches its sequence.
func (r *release) add(it releaseItem) {
	r.items = append(r.items, it)
	it.sequence.Touched = r.kernel.stamp
	it.sequence.SetAfter(it.request.After)
	it.sequence.Use = r.uses.next()
}

// enterLost adds a lost sequence. It has held its pages until here: its host did not
// know, and kernels may have been launched on them. It offers nothing to the tree, since its
// bytes may not be what its tokens say; its pages are only dropped.
func (r *release) enterLost(request *messages.ReleaseStep) {
	// Named twice in one request, it is entered once.
	s := r.sequences.Holder(request.Sequence)
	if s != nil && s.IsLost() && s.Touched != r.kernel.stamp {
		r.add(releaseItem{sequence: s, request: request})
	}
}

// store offers what is computed.
func (r *release) store() {
	r.out.resetChange()
	for i := range r.items {
		it := &r.items[i]
		it.end = -1
		s := it.sequence
		// What was not committed is not offered: its bytes may never have been written, and
		// drafts that were rejected must not be found.
		if !it.request.Discard && !s.IsLost() {
			if k := r.out.store(s, 0, it.to); k >= 0 {
				offer := &r.out.change.Stores[k]
				// The working page is the state after exactly the computed tokens. No other block can
				// have it.
				if !r.states.empty() && it.to == it.computed {
					offer.FindEnd, offer.HandOver = true, s.WorkingPages(sequence.TokenCount(it.to))
					it.end = k
				}
			}
			r.out.storeInput(s, 0, r.input(it))
		}
	}
	r.wait(r, "release: storing", (*release).stored)
	r.out.apply()
}

func (r *release) stored() {
	r.noteStored()
	r.out.applied()
	r.dropPages()
}

// input is how much of the encoder's input is computed when an item ends: the first commit
// of a sequence computes all of it.
func (r *release) input(it *releaseItem) int {
	s := it.sequence
	if s.Input.Pending() && it.computed > int(s.Computed()) {
		return len(s.Input.Tokens)
	}
	return int(s.Input.Computed)
}

// noteStored notes the prefixes that the cache has now, and counts the working pages that are
// checkpoints from now on. They need no copy: the sequences that end have no more use for them.
func (r *release) noteStored() {
	for i := range r.items {
		it := &r.items[i]
		s := it.sequence
		cached := r.states.empty() && !s.NoStore && s.Width() == 1
		if it.end >= 0 {
			end := &r.out.change.Stores[it.end].End
			for _, p := range end.Lacks {
				r.stats.pool(int(p)).Checkpoints++
			}
			cached = end.Block != protocol.NoBlock
		}
		if cached && !s.IsLost() && !sequence.HoldsSymbols(s) {
			r.thrash.note(&s.Namespace, s.Tokens(0)[:it.computed])
		}
	}
}

// dropPages drops all pages; pools drop a table from its tail to its
// head. The drops follow, in one message, what the store has brought: a page caches its block
// before its last reference ends, or it would be free for a moment.
func (r *release) dropPages() {
	// The pools have answered the release before, so its facts are no longer lent.
	r.facts = r.facts[:0]
	for i := range r.items {
		it := &r.items[i]
		s := it.sequence
		var facts *protocol.RequestFacts
		if r.config.PolicyLearns {
			facts = r.noteFacts(s, it.computed, it.request.AnswerTokens)
		}
		for p := range r.config.Pools {
			// Each beam drops its own references.
			for _, table := range s.Tables(p) {
				// The host names its last kernel, which may still write what is not committed. Without
				// one, what the sequence has named before may still read.
				if after := it.request.After; !after.IsZero() {
					r.out.move.markUsed(s, p, table, after)
				} else {
					r.out.move.markRead(s, p, table)
				}
				r.out.pools.drop(s, p, r.dropLeaving(it, p, table), 0)
				if facts != nil && !s.Covered(p) && p < r.self.end { // the path is of the decoder's tokens
					ops := r.out.pools.ops(p)
					ops[len(ops)-1].Request = facts
				}
			}
		}
	}
	r.wait(r, "release: following", (*release).end)
	r.out.followUp()
}

// dropLeaving drops the pages of a table that leave the window with what the item commits,
// and returns the table without them. They have an earlier use than the rest, as if a commit had
// come before.
func (r *release) dropLeaving(it *releaseItem, p int, table []messages.PageID) []messages.PageID {
	s := it.sequence
	if it.computed == int(s.Computed()) || p >= r.self.end {
		return table
	}
	from, to := s.LeavingWindow(p, sequence.TokenCount(it.computed))
	if from >= to {
		return table
	}
	last := s.Use
	s.Use = it.committed
	r.out.pools.drop(s, p, table[from:to], from)
	s.Use = last
	rest := slices.Clone(table)
	for b := from; b < to; b++ {
		rest[b] = messages.NoPage
	}
	return rest
}

// end ends the sequences and answers.
func (r *release) end() {
	r.out.followed()
	// Until the answer a failure undoes the whole release, and the sequences must still be there
	// then.
	for i := range r.items {
		r.out.end(r.items[i].sequence)
	}
	r.kernel.reply()
}
