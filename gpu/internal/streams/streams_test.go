package streams_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/gpu/internal/streams"
)

// A table agrees with a map that never uses a number twice.
func TestTableAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table streams.Table[int]
		live, gone := map[gpu.Stream]int{}, map[gpu.Stream]bool{}
		var order []gpu.Stream
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(order) == 0 || rapid.Bool().Draw(t, "add") {
				s, ok := table.Add(i)
				require.True(t, ok)
				require.False(t, gone[s], "a number is used once")
				require.NotContains(t, live, s)
				live[s], order = i, append(order, s)
				continue
			}
			at := rapid.IntRange(0, len(order)-1).Draw(t, "remove")
			s := order[at]
			table.Remove(s)
			delete(live, s)
			gone[s], order = true, append(order[:at], order[at+1:]...)
		}
		for s := range gone {
			_, err := table.Find(s)
			require.ErrorContains(t, err, "was destroyed")
			require.True(t, table.Destroyed(s))
		}
		seen := map[gpu.Stream]int{}
		for s, v := range table.All {
			seen[s] = v
			found, err := table.Find(s)
			require.NoError(t, err)
			require.Equal(t, v, found)
		}
		require.Equal(t, live, seen)
	})
}

func TestTableIsBounded(t *testing.T) {
	var table streams.Table[string]
	for range gpu.MaxStreams {
		_, ok := table.Add("s")
		require.True(t, ok)
	}
	_, ok := table.Add("one more")
	assert.False(t, ok)
	table.Remove(7)
	s, ok := table.Add("again")
	require.True(t, ok)
	assert.Equal(t, gpu.Stream(7+gpu.MaxStreams), s)
	assert.Equal(t, 6, streams.IndexOf(s))
	for _, unknown := range []gpu.Stream{0, 5 * gpu.MaxStreams} {
		_, err := table.Find(unknown)
		assert.ErrorContains(t, err, "no stream")
	}
	assert.PanicsWithValue(t, "streams: removal of stream 7, which is not live",
		func() { table.Remove(7) })
}
