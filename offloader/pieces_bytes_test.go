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

// TestPiecesTakeFewBytes: where pieces have 4 to 19 pages a page takes at most 5 bytes more
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
