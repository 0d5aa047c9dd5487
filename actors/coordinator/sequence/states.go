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

// An Append may ask for pages for drafts, which a host computes before it knows how many of
// them are right. They stand behind the working page in the tables of all state pools:
//
//	entry     0              1                2                …
//	state     computed when  after one token  after two tokens
//	          they came      more             more
//
// Which entry is the state after the computed tokens follows from their number, so commits and
// rewinds only count. The next Append makes it entry 0 again.

// stateEntry is the entry of state tables that is the state after n tokens.
func stateEntry(s *Sequence, n TokenCount) int {
	if i := int(n - s.statesFrom); i > 0 && i < s.stateEntries {
		return i
	}
	return 0
}

// StateAfter is the page of a state pool with the state after n tokens.
func (s *Sequence) StateAfter(pool int, n TokenCount) messages.PageID {
	return s.pools[pool].beams[0][stateEntry(s, n)]
}

// KeepsState tells whether the state after n tokens, fewer than are computed, is still there: a
// page of drafts, or the working page if the kernel has not written to it.
func KeepsState(s *Sequence, n TokenCount) bool {
	return stateEntry(s, n) > 0 || n == s.statesFrom && int(s.statesTo-n) < s.stateEntries
}

// DraftsLeft are the pages of a state pool that a sequence gives back which is to have so many
// entries, when n tokens are computed.
func DraftsLeft(s *Sequence, pool, entries int, n TokenCount) []messages.PageID {
	table := s.pools[pool].beams[0]
	if len(table) <= entries {
		return nil
	}
	left := slices.Clone(table[entries:])
	if i := stateEntry(s, n); i >= entries {
		left[i-entries] = table[0]
	}
	return left
}

// RenewStates makes the state after the computed tokens entry 0 of the state tables, and cuts
// these to so many entries. It returns the entry that has changed places with the first; 0: none.
func RenewStates(s *Sequence, entries int) (swapped int) {
	swapped = stateEntry(s, s.computed)
	for p := s.arena.tokenPools; p < s.arena.selfPools; p++ {
		table := s.pools[p].beams[0]
		table[0], table[swapped] = table[swapped], table[0]
		s.pools[p].beams[0] = table[:min(entries, len(table))]
		s.stateEntries = len(s.pools[p].beams[0])
	}
	s.statesFrom, s.statesTo = s.computed, s.Length()
	return swapped
}

// WorkingPages are the pages that hold the state after n tokens, by pool, for one message to the
// tree; NoPage in pools that are no state pools.
func (s *Sequence) WorkingPages(n TokenCount) []messages.PageID {
	s.working = s.working[:0]
	for p := range s.arena.selfPools {
		page := messages.NoPage
		if p >= s.arena.tokenPools {
			page = s.StateAfter(p, n)
		}
		s.working = append(s.working, page)
	}
	return s.working
}

// checkpoints are the positions at which a sequence makes checkpoints.
type checkpoints struct {
	wanted []int // of the prompt, ascending, behind what was reused; block boundaries all
	// Of the Append that made the entries of state tables: its kernel goes from the state after
	// statesFrom tokens to that after statesTo.
	statesFrom, statesTo TokenCount
	// stateEntries is how many there were then, 0 before the first Append. While an Append is
	// served the tables may have more.
	stateEntries int
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
	if s.NoStore {
		return false
	}
	if n <= int(s.Prompt) {
		_, found := slices.BinarySearch(s.wanted, n)
		return found
	}
	return interval > 0 && n%interval == 0
}
