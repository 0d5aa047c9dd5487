package forecast

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFilterFindsAll: a filter finds every key of its tables and every block of the sample, also
// after removals, and after renewing few others.
func TestFilterFindsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newTable(64), newTable(32)
		f := newFilter(&a, &b)
		limit := uint64(math.MaxUint64 / 32)
		known := [2]map[uint64]bool{{}, {}}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			which := rapid.IntRange(0, 1).Draw(t, "table")
			key := mixed(rapid.Uint64Range(0, 60).Draw(t, "key"))
			if known[which][key] {
				f.tables[which].remove(key)
				delete(known[which], key)
			} else if len(known[which]) < 32 {
				f.tables[which].put(key, 1)
				known[which][key] = true
			}
		}
		if rapid.Bool().Draw(t, "renewed") {
			f.renew()
		}
		keys := make([]uint64, 61)
		for i := range keys {
			keys[i] = mixed(uint64(i))
		}
		listed := map[int32]bool{}
		for _, i := range f.scan(keys, limit) {
			listed[i] = true
		}
		for i, key := range keys {
			if known[0][key] || known[1][key] || hashOf(key) <= limit {
				require.True(t, listed[int32(i)], "block %d", i)
			}
		}
		require.LessOrEqual(t, f.stale, len(f.words)*64/8/8)
	})
}

// TestFilterLeavesOutMostOthers: of blocks that no table knows a filter lists few.
func TestFilterLeavesOutMostOthers(t *testing.T) {
	p := New(1000, 1, 1)
	for i := range uint64(5000) {
		r := Request{Signatures: []uint64{mixed(3 * i), mixed(3*i + 1), mixed(3*i + 2)}, Blocks: 3, Prompt: 3}
		p.Begin(&r)
		p.End(&r, []Run{{Uses: 1}}, 0)
	}
	require.NoError(t, p.Check())
	var others []uint64
	for i := range uint64(4096) {
		others = append(others, mixed(1<<40+i))
	}
	require.Less(t, len(p.filter.scan(others, 0)), 4096/4)
}
