package offloader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// These tests hold what is known of pages through pins, waits and changes of priority, and that Check sees where it is not.

// knownPool is a pool with a page for each of some features, the deepest first, all used at 7, and two free pages.
func knownPool(features ...uint64) *hostPool {
	h := &hostPool{}
	h.init(PoolConfig{Name: "known", HostPages: len(features) + 2, Forecast: true}, nil)
	h.pieces.rankBy(byFeatures{})
	for i, f := range features {
		v := protocol.Victim{Block: protocol.BlockID(i), Depth: int32(len(features) - i), Priority: messages.DefaultPriority}
		h.decideOutcome(&v, []protocol.EvictedPiece{{End: 1, Features: f, Last: 7}}, 0)
	}
	return h
}

// mustCheck fails the test if the pool is wrong.
func (h *hostPool) mustCheck(t *testing.T) {
	t.Helper()
	e := &problems{}
	for p := range h.pages {
		h.checkPage(e, messages.PageID(p))
	}
	h.checkPieces(e)
	h.checkOrders(e)
	require.Empty(t, e.errs)
}

// repin changes the pins of a page.
func (h *hostPool) repin(p messages.PageID, pins int32) {
	h.dequeue(p)
	h.setPins(p, pins)
	h.enqueue(p)
}

// known is what is known of a page.
func (h *hostPool) known(p messages.PageID) knowledge {
	return h.pieces.all[h.pages[p].pieceOf()].knowledge
}

// piecesInUse is how many pieces there are.
func (h *hostPool) piecesInUse() (n int) {
	for _, q := range h.pieces.all {
		if q.pages > 0 {
			n++
		}
	}
	return n
}

// addsHundred ranks as byFeatures, and a wait adds 100.
type addsHundred struct{ byFeatures }

func (addsHundred) Await(f uint64) uint64 { return f + 100 }

func waitsFor(blocks ...protocol.BlockID) *protocol.PoolMove {
	return &protocol.PoolMove{Ranking: addsHundred{}, Awaited: blocks}
}

// TestPagesKeepWhatIsKnown: what is known of pages that are pinned stays while the other pages of their piece change, are displaced or get
// another priority.
func TestPagesKeepWhatIsKnown(t *testing.T) {
	h := knownPool(5, 5, 5, 5, 5, 5)
	pin := func(p messages.PageID, pins int32, priority messages.Priority) {
		h.dequeue(p)
		h.setPins(p, pins)
		h.pages[p].priority = priority
		h.enqueue(p)
		h.mustCheck(t)
	}
	for p := range messages.PageID(3) {
		pin(p, 1, messages.DefaultPriority)
	}
	assert.Equal(t, 1, h.piecesInUse())
	h.pieces.use(0)
	assert.Equal(t, knowledge{5, 7}, h.known(0), "the clock is behind the last use")
	h.pieces.now = 10
	h.pieces.use(1) // leaves the others
	h.pieces.now = 15
	h.pieces.use(2) // leaves them too
	h.pieces.now = 20
	h.pieces.use(1) // is alone
	h.pieces.use(2) // joins it
	h.mustCheck(t)
	assert.Equal(t, 2, h.piecesInUse())
	// The piece that was made last is another one.
	pin(0, 0, messages.DefaultPriority)
	pin(0, 1, messages.DefaultPriority)
	assert.Equal(t, 2, h.piecesInUse())
	for p := messages.PageID(3); p < 6; p++ {
		h.freePage(p)
		h.mustCheck(t)
	}
	assert.Equal(t, []knowledge{{5, 7}, {5, 20}, {5, 20}}, []knowledge{h.known(0), h.known(1), h.known(2)})
	// Of one piece, but in two levels.
	pin(1, 0, 10)
	pin(2, 0, 20)
	pin(0, 0, 10)
	assert.Equal(t, []knowledge{{5, 7}, {5, 20}, {5, 20}}, []knowledge{h.known(0), h.known(1), h.known(2)})
	assert.NotEqual(t, h.pages[1].pieceOf(), h.pages[2].pieceOf())
	var got []messages.PageID
	for range 3 {
		p := h.orders[sole].first()
		got = append(got, p)
		h.freePage(p)
		h.mustCheck(t)
	}
	assert.Equal(t, []messages.PageID{0, 1, 2}, got)
	assert.Zero(t, h.piecesInUse())
	assert.Len(t, h.pieces.all, 4, "numbers are used again")
}

// TestWaitLeavesPinnedPages: a wait changes what is known of the pages that it is for, and of no other page of their piece.
func TestWaitLeavesPinnedPages(t *testing.T) {
	t.Run("for a pinned page", func(t *testing.T) {
		h := knownPool(5, 5, 5)
		h.repin(0, 1)
		h.await(waitsFor(0))
		h.mustCheck(t)
		assert.EqualValues(t, 105, h.known(0).features)
		assert.EqualValues(t, 5, h.known(1).features)
		assert.EqualValues(t, 5, h.known(2).features)
	})
	t.Run("across a pinned page", func(t *testing.T) {
		h := knownPool(5, 5, 5, 5)
		h.repin(1, 1)
		h.await(waitsFor(3, 1, 2)) // page 1 is deeper than 3 and 2
		h.mustCheck(t)
		assert.EqualValues(t, 5, h.known(0).features)
		for p := messages.PageID(1); p < 4; p++ {
			assert.EqualValues(t, 105, h.known(p).features, "page %d", p)
		}
	})
	t.Run("behind a pinned page", func(t *testing.T) {
		h := knownPool(5, 5, 50)
		h.repin(0, 1)
		h.await(waitsFor(1))
		h.mustCheck(t)
		h.repin(0, 0)
		h.mustCheck(t)
		h.pieces.rankBy(addsHundred{})
		assert.EqualValues(t, 0, h.orders[sole].first(), "the page that nothing waits for")
	})
}

// TestAwaitedPieceLeavesTheFront: a piece that is waited for as a whole is no candidate with its value of before.
func TestAwaitedPieceLeavesTheFront(t *testing.T) {
	features := make([]uint64, 20)
	for i := range features {
		features[i] = uint64(i + 1)
	}
	h := manyPieces(features)
	l := h.orders[sole].levels.of(messages.DefaultPriority)
	h.orders[sole].first()
	n := h.pages[0].heapIndex
	require.Equal(t, n, l.front.list[l.front.n-1].piece)
	h.await(waitsFor(0))
	for _, c := range l.front.list[:l.front.n] {
		assert.NotEqual(t, n, c.piece)
	}
}

// TestLatestPieceMayBeGone: a page does not join an unused number because nothing is known of either.
func TestLatestPieceMayBeGone(t *testing.T) {
	h := &hostPool{}
	h.init(PoolConfig{Name: "gone", HostPages: 4, Forecast: true}, nil)
	for i := range 2 {
		h.decideOutcome(&protocol.Victim{Block: protocol.BlockID(i), Depth: int32(2 - i), Priority: messages.DefaultPriority}, nil, 0)
	}
	out := h.decideOutcome(&protocol.Victim{Block: 2, Priority: messages.DefaultPriority}, []protocol.EvictedPiece{{End: 1, Features: 3}}, 0)
	h.freePage(out.Host)
	h.reprioritize(0, 80)
	h.mustCheck(t)
	assert.NotEqual(t, h.pages[0].pieceOf(), h.pages[1].pieceOf())
}

// TestPriorityKeepsWhatIsKnown: pages of a piece whose priority changes are of another piece, of which the same is known.
func TestPriorityKeepsWhatIsKnown(t *testing.T) {
	h := knownPool(5, 5, 5, 5)
	h.decideOutcome(&protocol.Victim{Block: 9, Priority: 80}, []protocol.EvictedPiece{{End: 1, Features: 3, Last: 8}}, 0)
	for b := range protocol.BlockID(3) {
		h.reprioritize(b, 80)
		h.mustCheck(t)
	}
	for p := range messages.PageID(4) {
		assert.Equal(t, knowledge{5, 7}, h.known(p), "page %d", p)
	}
	assert.Equal(t, 3, h.piecesInUse())
}

// TestUseOfTheSameMoment: a page that is used once more at the moment of its last use stays in its piece.
func TestUseOfTheSameMoment(t *testing.T) {
	h := knownPool(5, 5, 6)
	h.repin(0, 1)
	n := h.pages[0].pieceOf()
	h.pieces.use(0)
	assert.Equal(t, n, h.pages[0].pieceOf())
}

// TestAdoptedPagesHavePieces: after a failure the order of contents is that of their use.
func TestAdoptedPagesHavePieces(t *testing.T) {
	o := New(Config{Pools: []PoolConfig{{
		Name: "adopted", HostPages: 4, DevicePages: 4, PageBytes: 64, Layers: 1, KVHeads: 1, HeadDim: 4, ElemBytes: 2, TokensPerBlock: 4, Forecast: true,
	}}})
	o.Adopt(0, []protocol.KeptPage{
		{Page: 3, Block: 5, Use: 20, Priority: messages.DefaultPriority, Depth: 1},
		{Page: 1, Block: 6, Use: 10, Priority: messages.DefaultPriority, Depth: 2, Pins: 1},
		{Page: 0, Block: 7, Use: 10, Priority: messages.DefaultPriority, Depth: 3},
	})
	require.NoError(t, o.Check())
	h := &o.hosts[0]
	assert.Equal(t, h.pages[1].pieceOf(), h.pages[0].pieceOf())
	assert.Equal(t, knowledge{last: int64(protocol.Use(20).Moment())}, h.known(3))
	assert.EqualValues(t, 0, h.orders[sole].first())
}

// TestCheckSeesDamageOfPieces: Check sees each kind of damage, and ends.
func TestCheckSeesDamageOfPieces(t *testing.T) {
	for name, harm := range map[string]func(h *hostPool){
		"count":         func(h *hostPool) { h.pieces.all[1].pages++ },
		"free page":     func(h *hostPool) { h.pages[5].heapIndex = ^1 },
		"no piece":      func(h *hostPool) { h.pages[3].heapIndex = ^noPiece },
		"other piece":   func(h *hostPool) { h.pages[3].heapIndex = ^int32(1) },
		"front":         func(h *hostPool) { h.pieces.setPrev(1, 2) },
		"cycle":         func(h *hostPool) { h.pieces.next[2] = 1 },
		"level":         func(h *hostPool) { h.pieces.all[h.pages[3].pieceOf()].level = h.pieces.all[1].level },
		"used":          func(h *hostPool) { h.pieces.unused = 1 },
		"unused":        func(h *hostPool) { h.pieces.all = append(h.pieces.all, piece{}) },
		"unused twice":  func(h *hostPool) { h.pieces.all = append(h.pieces.all, piece{spot: 3}); h.pieces.unused = 3 },
		"piece 0":       func(h *hostPool) { h.pieces.all[0].level = h.pieces.all[1].level },
		"latest beyond": func(h *hostPool) { h.pieces.latest = 99 },
	} {
		t.Run(name, func(t *testing.T) {
			h := knownPool(5, 5, 5, 6)
			h.repin(3, 1)
			h.pieces.rankBy(nil)
			require.Empty(t, h.check(false))
			harm(h)
			assert.NotEmpty(t, h.check(false))
		})
	}
}
