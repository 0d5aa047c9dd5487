package pool

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
)

// TestFrontKeepsTheLeast: a front has each piece at most once, the least last, and no candidate
// that was offered and refused is worth less than one that is kept.
func TestFrontKeepsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, kept := &front{}, map[int32]candidate{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if f.n > 0 && rapid.IntRange(0, 4).Draw(t, "step") == 0 {
				k := rapid.IntRange(0, f.n-1).Draw(t, "removed")
				c := f.list[k]
				require.Equal(t, c, f.remove(k))
				delete(kept, c.piece)
			} else {
				c := candidate{
					piece: rapid.Int32Range(1, 30).Draw(t, "piece"), rank: rapid.Int32Range(-5, 5).Draw(t, "rank"),
					use: protocol.Use(rapid.IntRange(0, 3).Draw(t, "use")),
				}
				full, most := f.n == frontSize, f.list[0]
				at := f.add(c)
				require.Equal(t, full && !c.before(most), at < 0)
				if at >= 0 {
					require.Equal(t, c, f.list[at])
					if _, ok := kept[c.piece]; !ok && full {
						delete(kept, most.piece)
					}
					kept[c.piece] = c
				}
			}
			require.Len(t, kept, f.n)
			for k, c := range f.list[:f.n] {
				require.Equal(t, kept[c.piece], c)
				require.False(t, k > 0 && f.list[k-1].before(c), "%v", f.list[:f.n])
			}
		}
		require.True(t, slices.IsSortedFunc(f.list[:f.n], func(a, b candidate) int {
			switch {
			case b.before(a):
				return -1
			case a.before(b):
				return 1
			}
			return 0
		}))
	})
}
