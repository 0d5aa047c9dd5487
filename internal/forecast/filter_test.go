package forecast

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFilterFindsAll: a filter finds every watched block and every session end, also after removals, and after renewing
// few others. It draws the blocks of the sample and no others.
func TestFilterFindsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, ends := newWatch(64), newSessions(256)
		f := newFilter(&w, &ends)
		limit := uint64(math.MaxUint64 / 32)
		entries := map[uint64]int32{} // of the blocks under watch
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := mixed(rapid.Uint64Range(0, 60).Draw(t, "key"))
			if at, ok := entries[key]; ok {
				w.remove(at)
				delete(entries, key)
			} else {
				for at = 0; w.tags[at] != 0; at++ {
				}
				w.put(hashOf(key), at)
				entries[key] = at
			}
			r := Request{Signatures: []uint64{mixed(rapid.Uint64Range(0, 60).Draw(t, "prompt"))}}
			if _, blocks := ends.continued(r.Signatures, []int32{0}, 0); blocks == 0 {
				ends.end(r.Signatures[0], session{})
			}
			require.NoError(t, w.check())
			require.NoError(t, ends.check())
		}
		if rapid.Bool().Draw(t, "renewed") {
			f.renew()
		}
		keys := make([]uint64, 61)
		for i := range keys {
			keys[i] = mixed(uint64(i))
		}
		found, drawn := f.scan(keys, limit)
		for i, key := range keys {
			if _, watched := entries[key]; watched || ends.find(hashOf(key)) >= 0 {
				require.Contains(t, found, int32(i))
			}
			require.Equal(t, hashOf(key) <= limit, slices.Contains(drawn, int32(i)), "block %d", i)
		}
		require.LessOrEqual(t, f.stale, len(f.words))
	})
}

// TestFilterLeavesOutMostOthers: of blocks that are not in the history a filter lists few.
func TestFilterLeavesOutMostOthers(t *testing.T) {
	p := New(1000, 1, 1)
	for i := range uint64(5000) {
		r := Request{Signatures: []uint64{mixed(3 * i), mixed(3*i + 1), mixed(3*i + 2)}, Blocks: 3, Prompt: 3}
		p.Begin(&r)
		end(p, &r, 0, Run{Uses: 1})
	}
	require.NoError(t, p.Check())
	var others []uint64
	for i := range uint64(4096) {
		others = append(others, mixed(1<<40+i))
	}
	found, drawn := p.filter.scan(others, 0)
	require.Less(t, len(found), 4096/4)
	require.Empty(t, drawn)
}
