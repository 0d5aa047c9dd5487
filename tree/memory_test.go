package tree

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// What a tree loses is enough for what it stores in its place.
func TestStoresAllocateNothing(t *testing.T) {
	const prompts, blocks = 8, 100
	f := newFixture(Config{TokensPerBlock: 2})
	tokens := counting(2 * blocks)
	tables := f.table(tokens)
	var a protocol.Apply
	var ids [prompts][blocks]protocol.BlockID
	k := 0
	next := func() {
		at := k % prompts
		a.Moves, a.Stores = a.Moves[:0], a.Stores[:0]
		if k >= prompts {
			for i := blocks - 1; i >= 0; i-- {
				a.Moves = append(a.Moves, protocol.BlockMove{Block: ids[at][i], To: protocol.Nowhere})
			}
		}
		for i := range tables[0] {
			tables[0][i] = messages.PageID(at*blocks + i)
		}
		tokens[0] = messages.Token(k)
		a.Stores = append(a.Stores, protocol.StoreItem{Tokens: tokens, To: len(tokens),
			Prompt: len(tokens), Tables: tables})
		f.Apply(&a)
		for i, b := blocks-1, a.Stores[0].Cursor.Block; i >= 0; i-- {
			ids[at][i], b = b, f.arena.blocks[b].parent
		}
		k++
	}
	for range 3 * prompts {
		next()
	}
	if !invariants.Enabled {
		require.Zero(t, testing.AllocsPerRun(100, next))
	}
	require.Equal(t, prompts*blocks, f.Blocks())
	require.NoError(t, f.Check())
}

// A block of 16 tokens costs at most 170 bytes with its tokens, however the tree has grown to
// its size; each further pool costs 4 more.
func TestMemoryOfABlock(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walk after each message takes too long")
	}
	const length = 250
	prompts := large(100_000) / length
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	tokens, tables := counting(16*length), [][]messages.PageID{make([]messages.PageID, length)}
	before := heap()
	tr := New(Config{TokensPerBlock: 16, Pools: []PoolShape{{}}})
	var a protocol.Apply
	for k := range prompts {
		tokens[0] = messages.Token(k)
		for i := range tables[0] {
			tables[0][i] = messages.PageID(k*length + i)
		}
		a.Stores = append(a.Stores[:0], protocol.StoreItem{Tokens: tokens, To: len(tokens),
			Prompt: len(tokens), Tables: tables})
		tr.Apply(&a)
	}
	perBlock := float64(heap()-before) / float64(tr.Blocks())
	t.Logf("%.1f bytes a block", perBlock)
	if prompts > 100 {
		require.LessOrEqual(t, perBlock, 170.0)
	}
	runtime.KeepAlive(tr)
	runtime.KeepAlive(&a)
}
