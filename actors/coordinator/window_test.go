package coordinator_test

import (
	gotesting "testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// A page leaves when the last token of its block lies before computed − w + 1.
func TestBlocksLeaveTheirWindow(t *gotesting.T) {
	for _, c := range []struct {
		window, sink int
		first        [5]int // the first block kept with 12, 13, 16, 17, 20 tokens computed
	}{
		{window: 2, first: [5]int{2, 3, 3, 4, 4}},
		{window: 3, first: [5]int{2, 2, 3, 3, 4}},
		{window: 5, first: [5]int{2, 2, 3, 3, 4}},
		{window: 8, first: [5]int{1, 1, 2, 2, 3}},
		{window: 9, first: [5]int{1, 1, 2, 2, 3}},
		{window: 3, sink: 2, first: [5]int{2, 2, 3, 3, 4}},
		{window: 3, sink: 5, first: [5]int{2, 2, 3, 3, 4}},
	} {
		w := newWorld(t, setup{windows: []int{c.window}, sink: c.sink,
			pages: []windows.PageCounts{{Primary: 12}}})
		_, l := w.admit(run(0, 12))
		w.prefill(l)
		sinks := (c.sink + tpb - 1) / tpb
		for i, computed := range []int{12, 13, 16, 17, 20} {
			if n := computed + 1 - l.length(); n > 0 {
				w.append(l, run(500+computed, n)...)
			}
			for b, none := range without(w.tables(l.id)[0][0]) {
				gone := b >= sinks && b < c.first[i]
				assert.Equal(t, gone, none, "window %d sink %d: block %d with %d computed", c.window, c.sink, b,
					computed)
			}
		}
		w.release(l)
	}
}

// What has left a window is cached, can be found, and costs the match nothing
// where no one attends to it.
func TestWhatHasLeftIsFound(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 12}, {Primary: 12}}})
	s := w.start(run(0, 24))
	w.assertCounts(0, 2, 4, 6)
	a, l := w.admit(run(0, 17))
	assert.Equal(t, 16, a.ReusedTokens)
	assert.Equal(t, []bool{true, true, false, false, false}, without(a.Tables[0][0]))
	w.prefill(l)
	w.release(s, l)
}

// A window smaller than a block keeps the block that it begins in.
func TestAWindowSmallerThanABlock(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{2, full}, pages: []windows.PageCounts{{Primary: 4}, {Primary: 12}}})
	a, l := w.admit(run(0, 16))
	assert.Equal(t, []bool{false, false, false, false}, without(a.Tables[0][0]),
		"nothing is computed yet")
	w.prefill(l)
	assert.Equal(t, []bool{true, true, true, false}, without(w.tables(l.id)[0][0]))
	for i := range 9 {
		w.append(l, messages.Token(100+i))
	}
	w.release(l)
	a, again := w.admit(append(run(0, 16), 900))
	assert.Equal(t, 16, a.ReusedTokens, "position 16 attends to one token of block 3")
	w.prefill(again)
	w.release(again)
}

// A hole in a limited pool shortens the match of all pools, and says why.
func TestAHoleInAWindow(t *gotesting.T) {
	w := newWorld(t,
		setup{windows: []int{8, full}, pages: []windows.PageCounts{{Primary: 5}, {Primary: 20}}})
	w.store(run(0, 16))
	// Four pages: the free one, those of blocks 0 and 1, which left their window
	// first, and of blocks 2 and 3 the deeper.
	w.store(run(500, 16))
	a, l := w.admit(run(0, 17))
	assert.Equal(t, messages.ReasonWindowHole, a.MissReason)
	assert.Less(t, a.ReusedTokens, 16)
	w.prefill(l)
	w.release(l)
}

// Sinks are claimed with every match.
func TestSinksAreClaimed(t *gotesting.T) {
	w := newWorld(t, setup{windows: []int{6}, sink: 4, pages: []windows.PageCounts{{Primary: 9}}})
	w.store(run(0, 20))
	a, l := w.admit(run(0, 21))
	require.Equal(t, 20, a.ReusedTokens)
	assert.Equal(t, []bool{false, true, true, false, false, false}, without(a.Tables[0][0]))
	w.prefill(l)
	w.release(l)
}
