package sequence

import (
	"slices"

	"github.com/kvactor/kvactor/messages"
)

// Recurrent layers. In each state pool a sequence holds one page, its working page: the
// state after its computed tokens. It is never shared and never stored, for the next
// kernel overwrites it. What others may find again are checkpoints, copies of it that
// belong to stored blocks. A copy costs a page and the time of the copy, so only some
// commits make one:
//
//	prompt    ├──────────── reused ───┤─────────────────────────────┤
//	commits                                ●            ●           │
//	                                    branch   last block boundary before the end
//
// At the branch the prompt leaves what others have computed, so the next one that
// comes the same way ends there. The last boundary before the end is how far the same
// prompt can be reused. Further ones are at every multiple of an interval, if the
// configuration has one, also behind the prompt.

// WorkingPages are the pages that hold the state after the computed tokens, by pool, for
// one message to the tree; NoPage in pools that are no state pools.
func (s *Sequence) WorkingPages() []messages.PageID {
	s.working = s.working[:0]
	for p := range s.arena.selfPools {
		page := messages.NoPage
		if p >= s.arena.tokenPools {
			page = s.pools[p].beams[0][0]
		}
		s.working = append(s.working, page)
	}
	return s.working
}

// checkpoints are the positions at which a sequence makes checkpoints.
type checkpoints struct {
	wanted []int // of the prompt, ascending, behind what was reused; block boundaries all
}

// CheckpointRule is what the positions of checkpoints follow from, in tokens.
type CheckpointRule struct {
	Reused    int // by the admission
	Attention int // what would have been reused if no state were needed
	Interval  int // 0: none
	// Cut says that Attention ends where a page was evicted, not where the prompt parts from what
	// is stored.
	Cut bool
}

// PlanCheckpoints finds the positions of the prompt at which a commit that ends there
// makes a checkpoint.
func (s *Sequence) PlanCheckpoints(r CheckpointRule) {
	s.wanted = s.wanted[:0]
	tpb, prompt := s.arena.tokensPerBlock, int(s.Prompt)
	want := func(position int) {
		if position > r.Reused && position < prompt {
			s.wanted = append(s.wanted, position)
		}
	}
	branch := r.Attention / tpb * tpb
	want(branch)
	if r.Cut && r.Reused < branch {
		// The next eviction may cut before the branch, so a checkpoint there would be lost.
		want((r.Reused + branch) / 2 / tpb * tpb)
	}
	want((prompt - 1) / tpb * tpb)
	if r.Interval > 0 {
		// The first multiple behind what was reused. An interval may be as long as an int, so
		// the sum may overflow; it is below 0 then, and the loop ends.
		for n := r.Reused/r.Interval*r.Interval + r.Interval; n > 0 && n < prompt; n += r.Interval {
			want(n)
		}
	}
	slices.Sort(s.wanted)
	s.wanted = slices.Compact(s.wanted)
}

// Checkpoints are the positions that PlanCheckpoints has found.
func (c *checkpoints) Checkpoints() []int { return c.wanted }

// WantsCheckpoint tells whether a commit that ends at position n makes a checkpoint.
// Behind the prompt the multiples of the interval do. A sequence that stores nothing
// makes none.
func (s *Sequence) WantsCheckpoint(n, interval int) bool {
	if s.noStore {
		return false
	}
	if n <= int(s.Prompt) {
		_, found := slices.BinarySearch(s.wanted, n)
		return found
	}
	return interval > 0 && n%interval == 0
}
