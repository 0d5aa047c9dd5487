package tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
)

// TestDroppedBefore: the moves that follow a run backwards are counted up to the first that does
// not: one of another block, of another pool, or to a page.
func TestDroppedBefore(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 0))
	faults := map[string]func(m *protocol.BlockMove){
		"another block":         func(m *protocol.BlockMove) { m.Block++ },
		"another pool":          func(m *protocol.BlockMove) { m.Pool++ },
		"to the device":         func(m *protocol.BlockMove) { m.To = 3 },
		"to the host":           func(m *protocol.BlockMove) { m.To = protocol.OnHost(0) },
		"block and pool differ": func(m *protocol.BlockMove) { m.Block, m.Pool = m.Block^1, m.Pool^1 },
	}
	for name, fault := range faults {
		for range 200 {
			ids, moves := make([]protocol.BlockID, dice.IntN(12)), make([]protocol.BlockMove, dice.IntN(12))
			for i := range ids {
				ids[i] = protocol.BlockID(dice.IntN(1000))
			}
			for i := range moves {
				moves[i] = protocol.BlockMove{Pool: 2, Block: protocol.BlockID(dice.IntN(1000)), To: protocol.Nowhere}
				if i < len(ids) {
					moves[i].Block = ids[len(ids)-1-i]
				}
			}
			want := min(len(ids), len(moves))
			require.Equal(t, want, droppedBefore(ids, moves, 2), name)
			if want == 0 {
				continue
			}
			k := dice.IntN(want)
			fault(&moves[k])
			require.Equal(t, k, droppedBefore(ids, moves, 2), name)
		}
	}
}
