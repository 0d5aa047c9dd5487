package tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Lacks against counting, on a prompt of 12 blocks of which pools have lost some.
func TestLacksAreWhatThePoolsLostOfReach(t *testing.T) {
	const tpb, blocks = 4, 12
	shapes := []PoolShape{{}, {Window: 10}, {Window: 9, Sink: 5}, {Chunk: 10}}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		tree := New(Config{TokensPerBlock: tpb, Pools: shapes})
		tokens := make([]messages.Token, blocks*tpb)
		for i := range tokens {
			tokens[i] = messages.Token(i)
		}
		tables := make([][]messages.PageID, len(shapes))
		held := make([][blocks]bool, len(shapes))
		for p := range tables {
			for b := range blocks {
				tables[p] = append(tables[p], messages.PageID(b))
				held[p][b] = r.IntN(4) > 0
			}
		}
		tree.Apply(
			&protocol.Apply{Stores: []protocol.StoreItem{{Tokens: tokens, To: len(tokens), Tables: tables,
				Prompt: len(tokens)}}})
		all := protocol.Match{Items: []protocol.MatchItem{{Tokens: tokens, Limit: len(tokens)}}}
		tree.Match(&all)
		ids := all.Items[0].IDs
		require.Len(t, ids, blocks)
		require.Equal(t, []int{0, 0, 0, 0}, all.Items[0].Lacks)
		var lost protocol.Apply
		for p := range held {
			for b, ok := range held[p] {
				if !ok {
					lost.Moves = append(lost.Moves, protocol.BlockMove{Pool: messages.PoolID(p), Block: ids[b],
						To: protocol.Nowhere})
				}
			}
		}
		tree.Apply(&lost)
		m := protocol.Match{Items: []protocol.MatchItem{{Tokens: tokens, Limit: 1 + r.IntN(len(tokens))}}}
		tree.Match(&m)
		it := &m.Items[0]
		for p, s := range shapes {
			want := 0
			for b := range it.Reach / tpb {
				attended := s.Window == 0 || (b+1)*tpb > it.Reach-s.Window+1 || b*tpb < s.Sink
				if s.Chunk > 0 {
					attended = (b+1)*tpb > it.Reach/s.Chunk*s.Chunk && it.Reach%s.Chunk > 0
				}
				if it.Matched < it.Reach && attended && !held[p][b] {
					want++
				}
			}
			require.Equal(t, want, it.Lacks[p], "pool %d of reach %d, matched %d: %v", p, it.Reach,
				it.Matched, held[p])
		}
	}
}
