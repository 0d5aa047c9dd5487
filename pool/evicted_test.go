package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestEvictedPieces: a pool with the policy forecast says of which pieces its victims are, each of them once and in order, and
// ranks them; one with priority_lru says nothing.
func TestEvictedPieces(t *testing.T) {
	for name, p := range map[string]*Pool{"forecast": NewForecast("forecast", 40, Forecast{Seed: 1, Span: 1}), "lru": New("lru", 40)} {
		var blocks protocol.BlockID
		for use := protocol.Use(2); use <= 8; use += 2 {
			take := protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.Take, N: 10}}}
			p.Do(&take)
			pages, op := take.Ops[0].Pages, protocol.PoolOp{Kind: protocol.AttachPages, Priority: messages.DefaultPriority}
			for range pages {
				op.Blocks = append(op.Blocks, blocks)
				blocks++
			}
			op.Pages = pages
			p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{op, {Kind: protocol.Drop, Pages: pages, Use: use}}})
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
			w.Ranking.Rank(e.Features, e.Last)
		}
		assert.Equal(t, 25, end)
		p.Do(&protocol.PoolWork{})
		w = protocol.PoolWork{}
		p.Do(&w)
		assert.Empty(t, w.Pieces)
	}
}
