package inspect

import (
	"math/bits"

	"github.com/kvactor/kvactor/messages"
)

// PromptStats counts the prompts of served admissions.
type PromptStats struct {
	// HostTokens are those of Stats.ReusedTokens whose block was copied from host memory in
	// at least one pool.
	HostTokens int64
	// Missed are the tokens that were not reused, by the places of their reasons in
	// MissReasons.
	Missed [MissReasonCount]int64
	// Lengths counts prompts by their tokens, Reused by those that were reused and Computed
	// by the others.
	Lengths, Reused, Computed TokenCounts
}

// MissReasonCount is the number of values of messages.MissReason.
const MissReasonCount = 6

// MissReasons are the values of messages.MissReason.
func MissReasons() [MissReasonCount]messages.MissReason {
	return [MissReasonCount]messages.MissReason{
		messages.ReasonHit, messages.ReasonCold, messages.ReasonEvicted, messages.ReasonWindowHole,
		messages.ReasonNoState, messages.ReasonDisabled,
	}
}

// Note counts one prompt.
func (s *PromptStats) Note(length, reused, onHost int, reason messages.MissReason) {
	s.HostTokens += int64(onHost)
	s.Lengths.note(length)
	s.Reused.note(reused)
	s.Computed.note(length - reused)
	for i, r := range MissReasons() {
		if r == reason {
			s.Missed[i] += int64(length - reused)
		}
	}
}

// TokenCounts counts prompts by a number of tokens: the first those with none, place i those
// with at most 2^(i-1) and more than the place before, the last those with more than 2^20.
// Powers of two need no search.
type TokenCounts [23]int64

func (c *TokenCounts) note(tokens int) {
	i := 0
	if tokens > 0 {
		i = min(1+bits.Len(uint(tokens-1)), len(c)-1)
	}
	c[i]++
}

// Bound is the largest number of tokens that place i counts. The last place has none.
func (c *TokenCounts) Bound(i int) int { return 1 << i >> 1 }
