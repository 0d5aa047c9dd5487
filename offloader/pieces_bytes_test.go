package offloader

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// orderBytes is the memory of the order of the sole pages beside their records, without that of a fixed size.
func (h *hostPool) orderBytes() int {
	r := &h.orders[sole]
	n := cap(r.heap) * int(unsafe.Sizeof(messages.PageID(0)))
	if k := r.queues.links; k != nil {
		n += cap(k.next) * int(unsafe.Sizeof(messages.PageID(0)))
	}
	if s := h.pieces; s != nil {
		n += cap(s.next)*int(unsafe.Sizeof(messages.PageID(0))) + cap(s.all)*int(unsafe.Sizeof(piece{}))
		for _, l := range r.levels.list {
			n += cap(l.members) * int(unsafe.Sizeof(noPiece))
		}
	}
	return n
}

// TestPiecesTakeFewBytes: where a piece has eight pages or more, as in the traces of docs/policies.md, a page takes at most 5 bytes more
// than in an order without pieces.
func TestPiecesTakeFewBytes(t *testing.T) {
	const pages = 20_000
	fill := func(forecast bool) *hostPool {
		h, r := &hostPool{}, rand.New(rand.NewPCG(1, 2))
		h.init(PoolConfig{Name: "bytes", HostPages: pages, Forecast: forecast}, nil)
		block := protocol.BlockID(0)
		// Three times as many contents as there is room for: pieces come and go.
		for n := 0; n < 3*pages; {
			k := 4 + r.IntN(16)
			if h.pieces != nil {
				h.pieces.rankBy(byFeatures{})
			}
			e := []protocol.EvictedPiece{{End: k, Features: uint64(r.IntN(1000)), Last: int64(n)}}
			for i := range k {
				v := protocol.Victim{Block: block, Depth: int32(k - i), Priority: messages.DefaultPriority, Use: protocol.Use(2 * n)}
				h.decideOutcome(&v, e, 0)
				block++
			}
			n += k
		}
		e := &problems{}
		h.checkPieces(e)
		h.checkOrders(e)
		require.Empty(t, e.errs)
		require.Equal(t, pages, h.counts[sole])
		return h
	}
	lru, forecast := fill(false).orderBytes(), fill(true).orderBytes()
	t.Logf("%.1f bytes a page, %.1f with pieces", float64(lru)/pages, float64(forecast)/pages)
	assert.GreaterOrEqual(t, lru, 4*pages)
	assert.LessOrEqual(t, forecast, lru+5*pages)
}

// TestPagesKeepWhatIsKnown: what is known of pages that are pinned stays while the other pages of their piece change, are displaced or get
// another priority.
func TestPagesKeepWhatIsKnown(t *testing.T) {
	h := &hostPool{}
	h.init(PoolConfig{Name: "known", HostPages: 6, Forecast: true}, nil)
	h.pieces.rankBy(byFeatures{})
	e := []protocol.EvictedPiece{{End: 6, Features: 5, Last: 7}}
	for i := range 6 {
		v := protocol.Victim{Block: protocol.BlockID(i), Depth: int32(6 - i), Priority: messages.DefaultPriority}
		h.decideOutcome(&v, e, 0)
	}
	known := func(p messages.PageID) knowledge { return h.pieces.all[h.pages[p].pieceOf()].knowledge }
	check := func() {
		e := &problems{}
		h.checkPieces(e)
		h.checkOrders(e)
		require.Empty(t, e.errs)
	}
	pin := func(p messages.PageID, pins int32, priority messages.Priority) {
		h.dequeue(p)
		h.setPins(p, pins)
		h.pages[p].priority = priority
		h.enqueue(p)
		check()
	}
	for p := range messages.PageID(3) {
		pin(p, 1, messages.DefaultPriority)
	}
	pieces := func() (n int) {
		for _, q := range h.pieces.all {
			if q.pages > 0 {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 1, pieces())
	h.pieces.use(0)
	assert.Equal(t, knowledge{5, 7}, known(0), "the clock is behind the last use")
	h.pieces.now = 10
	h.pieces.use(1) // leaves the others
	h.pieces.now = 15
	h.pieces.use(2) // leaves them too
	h.pieces.now = 20
	h.pieces.use(1) // is alone
	h.pieces.use(2) // joins it
	check()
	assert.Equal(t, 2, pieces())
	// The piece that was made last is another one.
	pin(0, 0, messages.DefaultPriority)
	pin(0, 1, messages.DefaultPriority)
	assert.Equal(t, 2, pieces())
	for p := messages.PageID(3); p < 6; p++ {
		h.freePage(p)
		check()
	}
	assert.Equal(t, []knowledge{{5, 7}, {5, 20}, {5, 20}}, []knowledge{known(0), known(1), known(2)})
	// Of one piece, but in two levels.
	pin(1, 0, 10)
	pin(2, 0, 20)
	pin(0, 0, 10)
	assert.Equal(t, []knowledge{{5, 7}, {5, 20}, {5, 20}}, []knowledge{known(0), known(1), known(2)})
	assert.NotEqual(t, h.pages[1].pieceOf(), h.pages[2].pieceOf())
	var got []messages.PageID
	for range 3 {
		p := h.orders[sole].first()
		got = append(got, p)
		h.freePage(p)
		check()
	}
	assert.Equal(t, []messages.PageID{0, 1, 2}, got)
	assert.Zero(t, pieces())
	assert.Len(t, h.pieces.all, 4, "numbers are used again")
}
