package forecast

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTablesAgainstMaps adds and removes entries, also those of blocks with equal tags and of one chain.
func TestTablesAgainstMaps(t *testing.T) {
	t.Run("16 bits", againstMap[int16])
	t.Run("32 bits", againstMap[int32])
}

func againstMap[T reference](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := newTable[T](8), map[uint64]int32{}
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

// TestNarrowReferences: those of the longest table that has 16 bits for each fit.
func TestNarrowReferences(t *testing.T) {
	for n, bytes := range map[int]int{narrowMost: 8*narrowMost + 2, narrowMost + 1: 12*(narrowMost+1) + 4} {
		table, tags := newIndex(n)
		require.Equal(t, bytes, table.bytes())
		require.Len(t, tags, n)
		require.Equal(t, int32(-1), table.find(math.MaxUint64))
		for at := range int32(n) {
			table.put(uint64(at+1)<<32|math.MaxUint32, at) // all in the last chain
		}
		table.remove(0)
		require.Equal(t, int32(n-1), table.find(uint64(n)<<32|math.MaxUint32))
		require.NoError(t, table.check())
		require.Equal(t, n-1, table.entries())
	}
}

// TestTooManyEntries: a table whose references are too short for its entries is not made.
func TestTooManyEntries(t *testing.T) {
	require.NotPanics(t, func() { newTable[int16](narrowMost) })
	require.Panics(t, func() { newTable[int16](narrowMost + 1) })
}
