package tree

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/messages"
)

// TestCompareTokens holds compareTokens against slices.Compare, also for tokens that have
// most of their prefix in common and for symbols, which are negative.
func TestCompareTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.Int32Range(-3, 3), 0, 12)
		prefix := slices.Repeat([]int32{7}, rapid.IntRange(0, 600).Draw(t, "common"))
		draw := func(name string) (out []messages.Token) {
			for _, n := range slices.Concat(prefix, some.Draw(t, name)) {
				out = append(out, messages.Token(n))
			}
			return out
		}
		a, b := draw("a"), draw("b")
		require.Equal(t, cmp.Compare(slices.Compare(a, b), 0), compareTokens(a, b))
	})
}
