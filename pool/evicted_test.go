package pool

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
)

// TestEvictedPieces: a pool with the policy forecast says of which pieces its victims are, each of
// them once and in order, and ranks them; one with priority_lru says nothing.
func TestEvictedPieces(t *testing.T) {
	for name, p := range map[string]*Pool{"forecast": NewWith("forecast", 40,
		evict.Options{Name: evict.Forecast, Seed: 1, Span: 1}), "lru": New("lru", 40)} {
		var blocks protocol.BlockID
		for use := protocol.Use(2); use <= 8; use += 2 {
			take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 10}}}
			p.Do(&take)
			pages, op := take.Ops[0].Pages, protocol.PoolOp{Kind: protocol.AttachPages,
				Priority: messages.DefaultPriority}
			for range pages {
				op.Blocks = append(op.Blocks, blocks)
				blocks++
			}
			op.Pages = pages
			p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{op, {Kind: protocol.Drop, Pages: pages,
				Use: use}}})
		}
		w := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 25}}}
		p.Do(&w)
		require.Len(t, w.Victims, 25, name)
		if name == "lru" {
			assert.Empty(t, w.Pieces)
			assert.Nil(t, w.Ranking)
			continue
		}
		end := 0
		for _, e := range w.Pieces {
			assert.Greater(t, e.End, end)
			end = e.End
			assert.LessOrEqual(t, e.Last, w.Ranking.Now())
			w.Ranking.Rank(e.Features, e.Last, 3)
		}
		assert.Equal(t, 25, end)
		p.Do(&protocol.PoolWork{})
		w = protocol.PoolWork{}
		p.Do(&w)
		assert.Empty(t, w.Pieces)
	}
}

// TestRankingsCountWork: host memory is lent a ranking by depth if the pool has one.
func TestRankingsCountWork(t *testing.T) {
	for _, doublesAt := range []float64{0, 4} {
		p := NewWith("work", 20, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1,
			DoublesAt: doublesAt})
		c := &atomicCache{pool: p, clock: realTime}
		for d := range uint64(4) {
			c.request(&traceRequest{IDs: document(d, 5)})
		}
		w := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 2}}}
		p.Do(&w)
		e := w.Pieces[0]
		assert.Equal(t, doublesAt > 0, w.Ranking.Rank(e.Features, e.Last, 12) > w.Ranking.Rank(e.Features,
			e.Last, 0))
	}
}

// TestEvictedPiecesKeepTheirWaits: in host memory as on the device what is awaited is worth more
// than all else, and of that what was awaited last the most, until too many requests have ended.
func TestEvictedPiecesKeepTheirWaits(t *testing.T) {
	p := NewWith("awaited", 20, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
	cached := &atomicCache{pool: p, clock: realTime}
	for d := range uint64(4) {
		cached.request(&traceRequest{IDs: document(d, 5)})
	}
	for _, d := range []uint64{2, 0} {
		var pages []messages.PageID
		for _, id := range document(d, 5) {
			pages = append(pages, cached.pageOf[id])
		}
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{
			{Kind: protocol.Claim, Pages: pages}, {Kind: protocol.Unclaim, Pages: pages, Awaited: true},
		}})
	}
	take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 20}}}
	p.Do(&take)
	ranks := func() (of [4][]int32) {
		from := 0
		for _, e := range take.Pieces {
			for _, v := range take.Victims[from:e.End] {
				of[v.Block/32] = append(of[v.Block/32], take.Ranking.Rank(e.Features, e.Last, 0))
			}
			from = e.End
		}
		for d := range of {
			require.Len(t, of[d], 5)
		}
		return of
	}
	of := ranks()
	assert.Greater(t, slices.Min(of[0]), slices.Max(of[2]))
	assert.Greater(t, slices.Min(of[2]), max(slices.Max(of[1]), slices.Max(of[3])))
	p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Drop, Pages: take.Ops[0].Pages}}})
	for range 100 {
		cached.request(&traceRequest{IDs: document(99, 1)})
	}
	of = ranks()
	for d := range of {
		// The last block of a prompt, which documents 1 and 3 have apart, is worth more after 100 prompts
		// of one block.
		assert.InDelta(t, slices.Min(of[1]), slices.Min(of[d]), 1000,
			"document %d: worth as much as the others again", d)
	}
}
