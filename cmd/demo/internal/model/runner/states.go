package runner

import (
	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The state of a recurrent model serves exactly as many tokens as it was computed
// for. The engine copies a working page when it is told of a commit or a fork, and
// stores it at a release: the page must have the state after exactly the tokens that
// the engine knows to be computed. So
//
//   - an append of several tokens asks for a page for the state after each of them
//     (kvactor.Step.DraftStates), and the kernel writes them all: a commit or a rewind to
//     any of them finds its state;
//   - a sequence whose commit has failed is released without being stored.

// unknownState is the position of a working page whose contents are in doubt.
const unknownState = -1

// isState tells whether a pool holds states.
func (r *Runner) isState(pool int) bool { return r.pools[pool].Kind == windows.KindState }

// stateEntries is how many pages of states a sequence has in each pool of them.
func (s *Sequence) stateEntries() int {
	if !s.recurrent {
		return 0
	}
	return len(s.cached.Tables()[s.statePool][0])
}

// stateEntry is the entry of state tables with the state after so many tokens.
func (s *Sequence) stateEntry(tokens int) int {
	if i := tokens - s.statesFrom; i > 0 && i < s.stateEntries() {
		return i
	}
	return 0
}

// hasState tells whether a page has the state after so many tokens, once queued kernels have run.
func (s *Sequence) hasState(tokens int) bool {
	switch {
	case !s.recurrent || tokens == s.state:
		return true
	case tokens == s.statesFrom: // unless a kernel has found no other page for a state
		return s.state > tokens && s.state-tokens < s.stateEntries()
	default:
		return tokens < s.state && s.stateEntry(tokens) > 0
	}
}

// checkState refuses what needs the state after so many tokens if no page has it.
func (s *Sequence) checkState(what string, tokens int) error {
	if !s.hasState(tokens) {
		return refusals.New(messages.ErrNotSupported,
			"%s at %d tokens: the working page has the state after %d", what, tokens, s.state)
	}
	return nil
}

// checkRewind refuses a rewind below the states.
func (s *Sequence) checkRewind(tokens int) error {
	if left := len(s.Tokens) - tokens; left < s.state {
		return s.checkState("a rewind", left)
	}
	return nil
}

// draftStates is how many pages of states an append of tokens needs. A kernel that has moved the
// working page on, behind what is committed, leaves nothing to go back to.
func (s *Sequence) draftStates(tokens int) int {
	n := len(s.Tokens) + tokens - s.cached.Computed()
	if !s.recurrent || !s.generating() || n < 2 || !s.hasState(s.cached.Computed()) {
		return 0
	}
	return n
}

// slot names a device page.
func (r *Runner) slot(pool int, page messages.PageID) gpu.Slot {
	return gpu.Slot{Pool: r.handles[pool], Tier: messages.Primary, Page: page}
}
