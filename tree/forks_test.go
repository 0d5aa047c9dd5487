package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// Forks hold the same page. What one of them has stored of it stays, whatever another one has
// computed by then; when the page caches nothing any more, it is stored.
func TestPageThatCachesAnotherBlockIsNotOffered(t *testing.T) {
	tr := New(Config{TokensPerBlock: 2, Pools: []PoolShape{{}}})
	offer := func(n int, pages ...messages.PageID) (stored []messages.PageID) {
		apply := &protocol.Apply{Stores: []protocol.StoreItem{{
			Tokens: counting(n), To: n, Prompt: n, Tables: [][]messages.PageID{pages},
		}}}
		tr.Apply(apply)
		require.NoError(t, tr.Check())
		for _, e := range apply.Effects {
			stored = append(stored, e.Pages...)
		}
		return stored
	}
	require.Equal(t, []messages.PageID{0, 1}, offer(3, 0, 1), "a block and a part of the next one")
	require.Empty(t, offer(4, 0, 1), "page 1 caches the part")
	require.Empty(t, offer(3, 0, 1), "the same once more")
	require.Equal(t, []messages.PageID{2}, offer(6, 0, 1, 2),
		"page 2 is of the block behind the one that is not stored")

	tr.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Pool: 0, Block: 1, To: protocol.Nowhere}}})
	require.Equal(t, []messages.PageID{1}, offer(4, 0, 1))
}
