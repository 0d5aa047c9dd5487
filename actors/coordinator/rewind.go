package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// rewind serves Rewind: the last tokens of sequences are dropped.
//
//	start ─▶ dropping ─▶ answer
//	         pools drop the pages of blocks that are left
//
// The sequences change with the answer, so a failure leaves them as they were.
type rewind struct {
	*shared
	stages[rewind]
	items []rewindItem
}

// rewindItem is a sequence that loses its last n tokens.
type rewindItem struct {
	sequence *sequence.Sequence
	n        sequence.TokenCount
}

// start drops the pages of the sequences whose steps are right.
func (r *rewind) start(request any) {
	m := request.(*messages.Rewind)
	// Each pool gets one message for all steps.
	m.Err, m.Results = nil, emptyResults(m.Results, len(m.Steps), len(r.config.Pools))
	r.out.reset()
	r.items = r.items[:0]
	for i := range m.Steps {
		step, result := &m.Steps[i], &m.Results[i]
		result.Sequence = step.Sequence
		n := sequence.TokenCount(step.Tokens)
		s, err := r.sequences.FindOnce(step.Sequence, r.kernel.stamp)
		if err == nil {
			err = r.validate(s, n)
		}
		if result.Err = err; err == nil {
			r.dropTail(s, n)
			r.items = append(r.items, rewindItem{s, n})
		}
	}
	// Every step was refused: no pool has anything to do.
	if len(r.items) == 0 {
		r.kernel.reply()
		return
	}
	r.wait(r, "rewind: dropping", (*rewind).end)
	r.out.followUp()
}

// dropTail drops the pages of the blocks that a rewind of n tokens leaves.
func (r *rewind) dropTail(s *sequence.Sequence, n sequence.TokenCount) {
	s.Touched = r.kernel.stamp
	s.Use = r.uses.next()
	// The pools get slices of the tables, which are cut when they have answered.
	blocks := s.RewindBlocks(n)
	for p := range r.self.end {
		pages := s.Table(p)[blocks:]
		r.out.move.markRead(s, p, pages)
		r.out.pools.add(p, protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: s.Use})
	}
}

// validate refuses what no rewind can do: to enter the prompt, or to come back to
// a token that attends to a page that has been dropped.
func (r *rewind) validate(s *sequence.Sequence, n sequence.TokenCount) error {
	// The prompt is what the admission has matched and reserved for; only what was sampled
	// can be taken back.
	generated := s.Length() - s.Prompt
	switch {
	case n < 1:
		return refusals.New(messages.ErrBadRequest, "rewind of %d tokens", n)
	case s.Beams() > 1:
		return refusals.New(messages.ErrNotSupported, "rewind and beam_width above 1 exclude each other")
	case n > generated:
		return refusals.New(messages.ErrBadRequest, "rewind of %d tokens: %d are generated", n, generated)
	// Only the pages of drafts hold earlier states than the working page.
	case !r.states.empty() && s.Length()-n < s.Computed() && !sequence.KeepsState(s, s.Length()-n):
		return refusals.New(messages.ErrNotSupported,
			"rewind to %d tokens, of which %d are computed, and recurrent layers exclude each other",
			s.Length()-n, s.Computed())
	}
	// The next token would attend to a block whose page has been dropped, and may have been
	// given to another sequence.
	if p, block, dropped := s.DroppedBefore(n); dropped {
		return refusals.New(messages.ErrNotSupported,
			"rewind to %d tokens and the window of pool %s exclude each other: block %d has been dropped",
			s.Length()-n, r.config.Pools[p].Name, block)
	}
	return nil
}

// end rewinds the sequences and answers when the pages are dropped.
func (r *rewind) end() {
	r.out.followed()
	for _, it := range r.items {
		it.sequence.Rewind(it.n)
	}
	r.kernel.reply()
}
