package tree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// A tree that reuses arrays is the same as one that does not, since its pool is
// emptied all the time: after each of the same messages.
func TestReusedArraysChangeNothing(t *testing.T) {
	shapes := []PoolShape{{Window: 6}, {}}
	for seed := range uint64(large(1000)+200) / 100 {
		r := rand.New(rand.NewPCG(seed, 1))
		reusing := newFixture(Config{TokensPerBlock: 2, Pools: shapes})
		plain := newFixture(Config{TokensPerBlock: 2, Pools: shapes})
		reused := false
		for range 100 {
			a := randomApply(r, reusing)
			stores := append([]protocol.StoreItem(nil), a.Stores...)
			before := reusing.base.arena.pool.Room()
			reusing.Apply(&a)
			plain.Apply(&protocol.Apply{Moves: a.Moves})
			for i := range stores {
				plain.base.arena.pool = arrayPool{}
				plain.Apply(&protocol.Apply{Stores: stores[i : i+1]})
			}
			plain.base.arena.pool = arrayPool{}
			reused = reused || reusing.base.arena.pool.Room() < before
			require.Equal(t, plain.String(), reusing.String(), "seed %d", seed)
			require.NoError(t, reusing.Check(), "seed %d", seed)
		}
		require.True(t, reused, "seed %d", seed)
	}
}

// randomApply evicts some runs, from the tail to the head as pools do, then
// stores prompts that share beginnings.
func randomApply(r *rand.Rand, f *fixture) protocol.Apply {
	var a protocol.Apply
	for _, x := range r.Perm(len(f.base.arena.nodes))[:r.IntN(min(4, len(f.base.arena.nodes)+1))] {
		for p := range f.base.arena.pools {
			for i := f.base.arena.nodes[x].n - 1; i >= 0 && r.IntN(12) > 0; i-- {
				if f.base.arena.locations(int32(x), p)[i] != protocol.Nowhere {
					a.Moves = append(a.Moves, protocol.BlockMove{Pool: messages.PoolID(p), Block: f.base.arena.ids(int32(x))[i], To: protocol.Nowhere})
				}
			}
		}
	}
	for range r.IntN(3) {
		tokens := make([]messages.Token, 1+r.IntN(80))
		for i := range tokens {
			tokens[i] = messages.Token(i * r.IntN(20) / 19)
		}
		a.Stores = append(a.Stores, protocol.StoreItem{Tokens: tokens, To: len(tokens), Prompt: len(tokens), Tables: f.table(tokens)})
	}
	return a
}

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
		a.Stores = append(a.Stores, protocol.StoreItem{Tokens: tokens, To: len(tokens), Prompt: len(tokens), Tables: tables})
		f.Apply(&a)
		copy(ids[at][:], f.base.arena.ids(f.base.arena.index.node[a.Stores[0].Cursor.Block]))
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

// The pool keeps no more than its limit, and gives at most half as much again as asked.
func TestArrayPoolIsBounded(t *testing.T) {
	var s arrayPool
	for room := range 200 {
		for range 10 {
			s.put(arrays{room: int32(room + 1)}, 1000)
			require.LessOrEqual(t, s.Room(), 1000)
		}
	}
	kept := s.Room()
	for room := 200; room > 0; room-- {
		for a, ok := s.take(room); ok; a, ok = s.take(room) {
			require.GreaterOrEqual(t, int(a.room), room)
			require.LessOrEqual(t, int(a.room), room+max(1, room/2))
			kept -= int(a.room)
		}
	}
	require.Equal(t, kept, s.Room())
	require.Zero(t, kept)
}
