package actors

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// The multiples that are found without a division are those that a division finds.
func TestMultiples(t *testing.T) {
	for n := uint32(1); n <= 300; n++ {
		m := multiplesOf(n)
		for x := range uint32(2000) {
			require.Equal(t, x%n == 0, m.has(x), "%d of %d", x, n)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32Range(1, math.MaxUint32).Draw(t, "n")
		x := rapid.Uint32().Draw(t, "x")
		m := multiplesOf(n)
		require.Equal(t, x%n == 0, m.has(x))
		require.True(t, m.has(x/n*n))
	})
}

// A sampler follows no page that is none, and page 0 alone if the numbers of its pages are more
// than there are.
func TestASamplerOfFewPages(t *testing.T) {
	for _, every := range []int{1, 3, math.MaxInt32, 1 << 32, math.MaxInt} {
		told := 0
		s := newPageSampler(0, every, func(inspect.PageTime) { told++ })
		pages := []messages.PageID{messages.NoPage, 0, 1, 2}
		for _, kind := range []protocol.PoolOpKind{protocol.AttachPages, protocol.SetPriority, protocol.Claim} {
			s.done(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: kind, Pages: pages}}})
		}
		want := 1
		if every == 1 {
			want = 3
		}
		assert.Equal(t, want, told, "reuse gaps with every %d", every)
	}
}
