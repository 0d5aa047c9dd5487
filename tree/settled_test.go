package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// An offer is settled when each of its pages has become the page of its block.
func TestSettledOffers(t *testing.T) {
	tr := New(Config{TokensPerBlock: 2, Pools: []PoolShape{{Window: 4}, {}}})
	offer := func(n int, window, full []messages.PageID) bool {
		apply := &protocol.Apply{Stores: []protocol.StoreItem{{
			Tokens: counting(n), To: n, Prompt: n, Tables: [][]messages.PageID{window, full},
		}}}
		tr.Apply(apply)
		require.NoError(t, tr.Check())
		return apply.Stores[0].Settled
	}
	no := messages.NoPage
	require.False(t, offer(4, []messages.PageID{no, no}, []messages.PageID{no, no}),
		"nothing is offered")
	require.True(t, offer(4, []messages.PageID{no, 1}, []messages.PageID{0, 1}),
		"new blocks, one behind the window")
	require.False(t, offer(4, []messages.PageID{no, 2}, []messages.PageID{2, 3}), "duplicates")
	require.True(t, offer(4, []messages.PageID{4, no}, nil), "the pool lacked the block")
	require.False(t, offer(6, []messages.PageID{no, 5, 6}, []messages.PageID{no, 4, 5}),
		"a duplicate and a new block")

	move := &protocol.Apply{Moves: []protocol.BlockMove{{Pool: 1, Block: 0, To: protocol.OnHost(0)}}}
	tr.Apply(move)
	require.True(t, offer(2, nil, []messages.PageID{7}), "the device page replaces the host page")
}
