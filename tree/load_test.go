package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestLoadedBlocksWereStoredLast: a fetched page makes its block the one that was stored
// last, also if another pool held the block before, as a page that a sequence offers does.
func TestLoadedBlocksWereStoredLast(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2, Pools: []PoolShape{{}, {Window: 4}}})
	older, newer := []messages.Token{1, 2}, []messages.Token{1, 3}
	f.put(older)
	a := f.match([]messages.Token{1, 9, 9}).Source.Block
	f.put(newer)
	require.NotEqual(t, a, f.match([]messages.Token{1, 9, 9}).Source.Block)

	f.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Pool: 1, Block: a, To: protocol.Nowhere}}})
	f.Apply(&protocol.Apply{Stores: []protocol.StoreItem{{
		Tokens: older, To: 2, OnHost: true, Tables: [][]messages.PageID{{messages.NoPage}, {7}},
	}}})
	require.NoError(t, f.Check())
	require.Equal(t, a, f.match([]messages.Token{1, 9, 9}).Source.Block)
}
