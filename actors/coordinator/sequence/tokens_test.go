package sequence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A sequence has a copy of its prompt, and goes on behind it after a rewind.
func TestTokensAreTheSequencesOwn(t *testing.T) {
	a := NewArena([]windows.Pool{{TokensPerBlock: 4}}, 4, 0)
	prompt := make([]messages.Token, 10, 20)
	s := a.Open(1)
	s.Begin(Origin{Prompt: 10}, prompt, 0)
	s.Shorten(5)
	s.Extend([]messages.Token{77, 78})
	require.Equal(t, []messages.Token{0, 0, 0, 0, 0, 77, 78}, s.Tokens(0))
	require.Equal(t, make([]messages.Token, 20), prompt[:20], "written to the host's tokens")
}

// The slot's next sequence allocates nothing for a prompt of the same length.
func TestMemoryOfTokensIsUsedAgain(t *testing.T) {
	a := NewArena([]windows.Pool{{TokensPerBlock: 4}}, 4, 0)
	prompt := make([]messages.Token, 100)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		s := a.Open(1)
		s.Begin(Origin{Prompt: 100}, prompt, 0)
		a.End(s)
	}))
}
