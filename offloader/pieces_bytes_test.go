package offloader

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// fullPool is a pool of host pages whose contents came in pieces of 4 to 19 blocks, three times as many as there is room for: pieces came
// and went.
func fullPool(t *testing.T, pages int, forecast bool) *hostPool {
	h, r := &hostPool{}, rand.New(rand.NewPCG(1, 2))
	h.init(PoolConfig{Name: "full", HostPages: pages, Forecast: forecast}, nil)
	block := protocol.BlockID(0)
	for n := 0; n < 3*pages; {
		k := 4 + r.IntN(16)
		if forecast {
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
	require.Equal(t, pages, h.counts[sole])
	return h
}

// TestPiecesTakeFewBytes: where pieces have 4 to 19 pages a page takes at most 5 bytes more than in an order without pieces. What the pool
// holds is measured, so that no list is left out.
func TestPiecesTakeFewBytes(t *testing.T) {
	const pages = 20_000
	bytes := func(forecast bool) int {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		h := fullPool(t, pages, forecast)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(h)
		return int(after.HeapAlloc) - int(before.HeapAlloc)
	}
	bytes(true) // what a first run makes once
	lru, forecast := bytes(false), bytes(true)
	t.Logf("%.1f bytes a page, %.1f with pieces", float64(lru)/pages, float64(forecast)/pages)
	assert.Greater(t, lru, pages*pageBytes)
	assert.LessOrEqual(t, forecast, lru+5*pages)
}

// pageBytes is the size of the record of a page.
const pageBytes = 32
