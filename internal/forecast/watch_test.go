package forecast

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// supersededSlots is the slots whose blocks are marked as superseded.
func (w *watch) supersededSlots() (slots []int32) {
	for slot := range w.ring {
		if w.ring[slot].features().at(featureSuperseded) != 0 {
			slots = append(slots, int32(slot))
		}
	}
	return slots
}

// TestEntries: an entry marks its own block, as long as that is watched, in lists of any length.
func TestEntries(t *testing.T) {
	for n, tagBits := range map[int]int{leastWatched: 21, mostWatched: 20, mostWatched + 1: 19, 70_000: 15} {
		w, ends := newWatch(n), newSessions(ways)
		require.Equal(t, tagBits, w.tagBits())
		newFilter(&w, &ends)
		entries := make([]Entry, n)
		for slot := range entries {
			entries[slot] = w.add(mixed(uint64(slot)), 0, 0, 0)
			require.NotZero(t, entries[slot])
			require.Equal(t, slot, int(entries[slot]>>w.tagBits()))
		}
		require.Zero(t, w.add(mixed(uint64(n)), 0, 0, 0), "it is too early to drop a block")
		last := int32(n - 1)
		w.supersede(0)
		require.Empty(t, w.supersededSlots(), "0 is the entry of no block")
		w.supersede(entries[last])
		require.Equal(t, []int32{last}, w.supersededSlots())
		w.supersede(entries[0])
		require.Equal(t, []int32{0, last}, w.supersededSlots())
		require.Equal(t, 2, w.superseded())

		// Other blocks replace all of them.
		for slot := range entries {
			require.NotZero(t, w.add(mixed(uint64(n+slot)), 0, 0, stamp(1000*1000)))
		}
		require.Empty(t, w.supersededSlots())
		for _, e := range entries {
			w.supersede(e)
		}
		// Some of the tags are equal as far as entries have them.
		marked := len(w.supersededSlots())
		require.LessOrEqual(t, marked, 8*n>>w.tagBits(), "%d entries of blocks that are not watched", n)
		w.remove(last)
		w.supersede(w.entryOf(last, 0))
		require.Len(t, w.supersededSlots(), marked, "the slot is free")
		require.NoError(t, w.check())
	}
}

// TestEntryOfLowTag: also the entry of a block whose tag has no upper bits is one.
func TestEntryOfLowTag(t *testing.T) {
	w, ends := newWatch(mostWatched), newSessions(ways)
	newFilter(&w, &ends)
	w.put(1, 0)
	e := w.entryOf(0, w.tags[0])
	require.NotZero(t, e)
	w.supersede(e)
	require.Equal(t, []int32{0}, w.supersededSlots())
}
