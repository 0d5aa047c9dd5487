package tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestOfferedFront: every block of the front is offered, and the last pool does not offer the one
// behind it, whatever the tables of the pools are.
func TestOfferedFront(t *testing.T) {
	dice := rand.New(rand.NewPCG(11, 0))
	for range 3000 {
		o := offer{StoreItem: &protocol.StoreItem{}, first: dice.IntN(2)}
		o.end = o.first + dice.IntN(3)
		for range dice.IntN(4) {
			table := make([]messages.PageID, dice.IntN(14))
			for i := range table {
				if dice.IntN(6) == 0 {
					table[i] = messages.NoPage
				}
			}
			o.Tables = append(o.Tables, table)
		}
		lo := int32(dice.IntN(10))
		hi := lo + int32(dice.IntN(10))
		front := int32(o.offeredFront(lo, hi))
		require.LessOrEqual(t, front, hi-lo)
		for d := range front {
			require.True(t, o.offers(lo+d))
		}
		if p := min(o.end, len(o.Tables)) - 1; p >= o.first && lo+front < hi {
			behind := int(lo + front)
			require.True(t, behind >= len(o.Tables[p]) || o.Tables[p][behind] == messages.NoPage)
		}
	}
}
