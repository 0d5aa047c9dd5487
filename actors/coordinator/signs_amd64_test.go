package coordinator

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// TestDisjunctions holds both implementations against a loop: a processor with AVX2 runs one
// of them only.
func TestDisjunctions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	memory := make([]messages.Token, 9*signTokens+8)
	for offset := range 8 {
		for n := signTokens; n <= 9*signTokens; n += signTokens {
			tokens, want := memory[offset:][:n], messages.Token(0)
			for i := range memory {
				memory[i] = -1 // what is outside of the tokens must not be read
			}
			for i := range tokens {
				tokens[i] = 0
			}
			// Each bit is that of one token.
			for bit := range 32 {
				if r.IntN(2) == 0 {
					tokens[r.IntN(n)] |= 1 << bit
					want |= 1 << bit
				}
			}
			require.Equal(t, want, disjunctionSSE2(&tokens[0], n), "%d tokens", n)
			if avx2 {
				require.Equal(t, want, disjunctionAVX2(&tokens[0], n), "%d tokens", n)
			}
		}
	}
}
