package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// TestFirstNegative has one wrong token at each index of prompts of each length up to five
// steps of the loop, at even and odd addresses.
func TestFirstNegative(t *testing.T) {
	for offset := range 2 {
		memory := make([]messages.Token, 5*8+2+offset)
		for i := range memory {
			memory[i] = messages.MaxToken - messages.Token(i)
		}
		for n := range len(memory) - offset {
			tokens := memory[offset:][:n]
			require.Equal(t, -1, firstNegative(tokens))
			for i := range tokens {
				right := tokens[i]
				tokens[i] = -1 - right
				require.Equal(t, i, firstNegative(tokens), "of %d tokens", n)
				tokens[i] = right
			}
		}
	}
}
