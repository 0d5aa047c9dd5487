package forecast

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGuardIsLRU: the guard's list is that of the blocks in the order of their use, of one request the deepest first, also
// of requests that are longer than the list.
func TestGuardIsLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(1)
		size := len(g.list)
		var oracle []uint64 // the last used is the last
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			signatures := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, size+3, rapid.ID).Draw(t, "blocks")
			useAll(&g, signatures)
			oracle = slices.DeleteFunc(oracle, func(s uint64) bool { return slices.Contains(signatures, s) })
			for _, s := range slices.Backward(signatures) {
				oracle = append(oracle, s)
			}
			oracle = oracle[max(0, len(oracle)-size):]
			require.NoError(t, errors.Join(append(g.check(), g.index.check())...))
			var list []uint32
			for at := g.head; at >= 0; at = g.list[at].next {
				list = append(list, g.index.tags[at])
			}
			var tags []uint32
			for _, s := range oracle {
				tags = append(tags, tagOf(hashOf(s)))
			}
			require.Equal(t, tags, list)
		}
	})
}

// useAll uses all blocks of a request in a guard.
func useAll(g *guard, signatures []uint64) {
	drawn := make([]int32, len(signatures))
	for i := range drawn {
		drawn[i] = int32(i)
	}
	g.request(signatures, drawn, len(signatures), 0)
}

// TestGuardTakesBlocksTwice: two blocks of a request may have one tag.
func TestGuardTakesBlocksTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(1)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			useAll(&g, rapid.SliceOfN(rapid.Uint64Range(1, 20), 0, 12).Draw(t, "blocks"))
			require.NoError(t, errors.Join(append(g.check(), g.index.check())...))
		}
	})
}
