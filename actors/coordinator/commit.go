package coordinator

import (
	"github.com/kvactor/kvactor/actors/coordinator/sequence"
	"github.com/kvactor/kvactor/messages"
)

// commit serves Commit: computed tokens become reusable.
//
//	start ─▶ storing ─▶ following ─▶ moving ─▶ applying ─▶ followingMoves ─▶ answer
//	         the tree   pools follow, │ pages of next chunks have victims
//	         stores     windows move, │
//	                    next chunks   └─▶ answer, when no chunk took pages
//	                    take pages
//
// An Append commits what it computes in the same way, from storing on.
//
// batch and committing are the records that an Append uses as well. Each of the two
// transactions empties them when it starts, so neither finds what the other has left. The stages
// are those of committing.
type commit struct {
	*shared
	batch      *stepBatch
	committing *commitStages
}

// start enters the steps that are right.
func (c *commit) start(request any) {
	b, r := c.batch, request.(*messages.Commit)
	b.reset()
	r.Results = emptyResults(r.Results, len(r.Steps), len(c.config.Pools))
	for i := range r.Steps {
		request, result := &r.Steps[i], &r.Results[i]
		it := b.enter(request.Sequence, request.After, result, func(s *sequence.Sequence) error {
			return b.config.validateCommit(s, request.Computed, int(s.Length()))
		})
		if it == nil {
			continue
		}
		it.computed = request.Computed
		s := it.sequence
		// By default a commit is a part of the request before it on its sequence: pages that it
		// drops get that use. So it makes no difference to what is evicted first whether a host
		// commits in one piece or in several.
		if request.Computed > int(s.Computed()) && request.SeparateRequest || s.Use == 0 {
			s.Use = c.uses.next()
		}
	}
	c.out.resetChange()
	c.committing.begin()
}
