package forecast

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTableAgainstMap adds and removes entries, also those of blocks with equal tags and of one chain.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := newTable(8), map[uint64]int32{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			// Few tags and few chains, so that chains are long and have blocks of equal tags in other chains beside them.
			hash := rapid.Uint64Range(1, 3).Draw(t, "tag")<<32 | rapid.Uint64Range(0, 3).Draw(t, "chain")<<30
			at, known := model[hash]
			switch {
			case known:
				table.remove(at)
				delete(model, hash)
			case len(model) < 8:
				for at = 0; table.tags[at] != 0; at++ {
				}
				table.put(hash, at)
				model[hash] = at
			}
			require.NoError(t, table.check())
			require.Equal(t, len(model), table.n)
			for tag := range uint64(3) {
				for chain := range uint64(4) {
					hash := (tag+1)<<32 | chain<<30
					at, known := model[hash]
					if !known {
						at = -1
					}
					require.Equal(t, at, table.find(hash))
				}
			}
		}
	})
}
