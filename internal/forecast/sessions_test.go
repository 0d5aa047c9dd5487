package forecast

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRecentAgainstList compares the map with a list of keys, the least recently used first.
func TestRecentAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 8).Draw(t, "most")
		r := newRecent[int](most)
		var keys []uint64
		values := map[uint64]int{}
		for step := range rapid.IntRange(1, 100).Draw(t, "steps") {
			key := rapid.Uint64Range(0, 12).Draw(t, "key")
			at := slices.Index(keys, key)
			if at >= 0 {
				require.Equal(t, values[key], *r.find(key))
				keys = slices.Delete(keys, at, at+1)
			} else {
				require.Nil(t, r.find(key))
			}
			if at >= 0 && rapid.Bool().Draw(t, "remove") {
				r.remove(key)
				continue
			}
			if len(keys) == most {
				keys = keys[1:]
			}
			keys = append(keys, key)
			*r.use(key) = step
			values[key] = step
			require.NoError(t, r.check())
			require.Len(t, r.index, len(keys))
		}
	})
}

// TestWatchedBlocks: a block that is watched is superseded by its signature, and is not replaced
// too early.
func TestWatchedBlocks(t *testing.T) {
	const n = 10
	w := newWatch(n)
	for k := range uint64(n) {
		require.True(t, w.add(k+1, Features{}, 0, 0))
	}
	require.False(t, w.add(n+1, Features{}, 0, 0), "it is too early to drop a block")
	w.supersede(0)
	w.supersede(n + 1)
	w.supersede(n)
	for at := range w.ring {
		require.Equal(t, at == n-1, w.ring[at].features.Values[featureSuperseded] == 1)
	}
	require.True(t, w.add(n+1, Features{}, 0, 1000*1000))
	w.supersede(1)
	require.Zero(t, w.ring[0].features.Values[featureSuperseded], "it is another block by now")
}

// TestPaceFollowsGaps: a session whose gaps are all as expected keeps a pace of 0, and one that is
// always late or early by more than clipError gets the most or the least pace.
func TestPaceFollowsGaps(t *testing.T) {
	for _, c := range []struct {
		gap   int64 // milliseconds
		scale float64
		pace  uint8
	}{{1000, 0.69, 8}, {100_000, 0.69, 16}, {1000, 4.6, 0}} {
		s := newSessions(8)
		e := session{}
		for range 40 {
			s.end(77, session{scale: c.scale, pace: e.pace})
			e, _ = s.continued([]uint64{77}, c.gap)
		}
		assert.Equal(t, c.pace, paceFeature(e.pace), "%d ms after an expected gap of e^%v s", c.gap,
			c.scale)
	}
}
