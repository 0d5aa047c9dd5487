package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPositionsInLongRuns: a block keeps the low half of its depth, so in a run of
// more blocks than that can count several have the same.
func TestPositionsInLongRuns(t *testing.T) {
	const n = 2*lows + lows/2
	f := newFixture(Config{TokensPerBlock: 1})
	whole := counting(n)
	f.put(whole)
	places := func() {
		t.Helper()
		blocks := 0
		for x := range int32(len(f.base.arena.nodes)) {
			for i, b := range f.base.arena.ids(x) {
				y, at := f.base.arena.at(b)
				if y != x || at != int32(i) || f.base.arena.depth(b) != f.base.arena.nodes[x].depth+at {
					require.Failf(t, "misplaced", "block %d of node %d is at %d of node %d", i, x, at, y)
				}
				blocks++
			}
		}
		require.Equal(t, f.Blocks(), blocks)
		require.NoError(t, f.Check())
	}
	places()
	for _, at := range []int{lows, 3, lows + 7, 2*lows + 5} { // splits, the rest a run as long as before or shorter
		f.put(append(whole[:at:at], -7+1<<30))
		places()
	}
	require.Equal(t, n, f.match(append(whole, 0)).Matched)
}

// TestLengthenLeavesLittleRoom: arrays by block have at most an eighth too much.
func TestLengthenLeavesLittleRoom(t *testing.T) {
	var s []int32
	moved := 0
	for len(s) < 1_000_000 {
		before := cap(s)
		s = lengthen(s, 10)
		require.Zero(t, s[len(s)-1])
		s[len(s)-1] = 1
		if cap(s) != before {
			moved++
		}
		require.LessOrEqual(t, cap(s)-len(s), max(len(s)/8, 64))
	}
	require.Less(t, moved, 100)
	require.Equal(t, int32(1), s[9], "kept")
}

// TestRoomFromTheStart: a tree that is told how many blocks there will be has
// memory for them, and one that gets more finds it.
func TestRoomFromTheStart(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2, Blocks: 10, Events: true})
	room := &f.base.arena.index.node[:1][0]
	f.put(counting(20))
	require.Same(t, room, &f.base.arena.index.node[0])
	require.Equal(t, 10, cap(f.base.arena.index.low))
	f.put(append(counting(20), 9, 9))
	require.NotSame(t, room, &f.base.arena.index.node[0])
	require.NoError(t, f.Check())
}
