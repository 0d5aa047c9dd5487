package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// memory is the array of the sequence's tokens.
func (r *runner) memory() *protocol.TokenArray {
	if r.array == nil || !starts(r.array.Tokens, r.tokens) {
		r.array = arrayOf(r.tokens)
	}
	return r.array
}

func arrayOf(tokens []messages.Token) *protocol.TokenArray {
	return &protocol.TokenArray{Tokens: tokens[:cap(tokens)]}
}

// takeBack notes which arrays the tree has taken, then overwrites those that it has
// returned: whatever still referred to them would differ from the oracle.
func (m *model) takeBack(stores []protocol.StoreItem, returned []*protocol.TokenArray) {
	for i := range stores {
		if s := &stores[i]; s.Taken {
			m.lent[s.Array] = true
		}
	}
	for _, a := range returned {
		require.True(m, m.lent[a], "an array that was not taken is returned")
		delete(m.lent, a)
		if !slices.ContainsFunc(m.running, func(r *runner) bool { return starts(r.tokens, a.Tokens) }) {
			for i := range a.Tokens {
				a.Tokens[i] = 1 << 20
			}
		}
	}
}

// lend stores all tokens of an array, but the last spare ones, by reference if it may.
func (f *fixture) lend(a *protocol.TokenArray, spare int) *protocol.StoreItem {
	tokens := a.Tokens[:len(a.Tokens)-spare]
	f.apply.Stores = append(f.apply.Stores[:0], protocol.StoreItem{Tokens: tokens, To: len(tokens), Tables: f.table(tokens), Array: a})
	f.Apply(&f.apply)
	return &f.apply.Stores[0]
}

// starts tells whether two arrays are one.
func starts(a, b []messages.Token) bool { return &a[0] == &b[0] }

// A prompt that is mostly new is stored in the array of its sequence; splits, growth and
// merges leave it there.
func TestTokensAreReferredTo(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	array := arrayOf(append(make([]messages.Token, 0, 80), counting(60)...))
	long := array.Tokens
	require.True(t, f.lend(array, 20).Taken)
	x := f.base.arena.index.node[0]
	require.True(t, starts(f.base.arena.tokens(x), long))

	// Another prompt branches off: both parts stay in the array.
	f.put(append(counting(20), 9, 9, 9, 9))
	require.True(t, starts(f.base.arena.tokensAt(f.base.arena.at(0)), long))
	require.True(t, starts(f.base.arena.tokensAt(f.base.arena.at(29)), long[58:]))
	require.NoError(t, f.Check())

	// The branch leaves, the parts are merged.
	branch := f.apply.Stores[0].Cursor.Block
	f.evict(branch)
	f.evict(branch - 1)
	require.Len(t, f.base.arena.freeNodes, len(f.base.arena.nodes)-2)
	require.True(t, starts(f.base.arena.tokens(f.base.arena.index.node[0]), long))

	// Tokens are appended to the array, and the run grows in it.
	copy(long[60:], []messages.Token{7, 7, 7, 7})
	require.True(t, f.lend(array, 16).Taken)
	require.True(t, starts(f.base.arena.tokensAt(f.base.arena.at(31)), long[62:]))

	// The next turn of the conversation has an array of its own, in which the run is then.
	next := arrayOf(append(slices.Clone(long[:64]), 8, 8))
	require.True(t, f.lend(next, 0).Taken)
	require.True(t, starts(f.base.arena.tokens(f.base.arena.index.node[0]), next.Tokens))
	require.Equal(t, []*protocol.TokenArray{array}, f.apply.Returned)
	require.NoError(t, f.Check())
}

// A prompt of which little is new leaves its array to its sequence.
func TestFewTokensAreCopied(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	f.lend(arrayOf(counting(60)), 0)
	mostly := append(counting(50), slices.Repeat([]messages.Token{9}, 50)...)
	require.False(t, f.lend(arrayOf(mostly), 0).Taken)
	require.False(t, f.lend(arrayOf(append(make([]messages.Token, 0, 100), 5, 5, 5, 5)), 96).Taken, "a large array")
	clear(mostly)
	require.Equal(t, 100-1, f.match(append(counting(50), slices.Repeat([]messages.Token{9}, 50)...)).Matched)
}

// A prompt of which half is new is referred to as long as all arrays together keep little that is not used.
func TestHalfOfAnArrayIsReferredTo(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	for i := range 10 {
		tokens := counting(60)
		tokens[0] = messages.Token(1000 + i)
		require.True(t, f.lend(arrayOf(tokens), 0).Taken)
	}
	half := func(first, old, fresh int) bool {
		tokens := counting(old)
		tokens[0] = messages.Token(first)
		return f.lend(arrayOf(slices.Clip(append(tokens, slices.Repeat([]messages.Token{9}, fresh)...))), 0).Taken
	}
	require.False(t, half(1000, 52, 48), "less than half")
	require.True(t, half(1001, 50, 50))
	require.False(t, half(1002, 50, 50), "50 of 698 tokens have no use")
	require.True(t, half(1003, 20, 60), "three quarters")
	require.NoError(t, f.Check())
}

// Arrays of which few tokens are left are not kept in memory: all arrays are at most a
// few times what the tree stores, whatever is evicted.
func TestArraysAreBounded(t *testing.T) {
	const blocks, tpb = 64, 4
	prompts := 100
	if testing.Short() {
		prompts = 25 // with the tag invariants each eviction checks the whole tree
	}
	f := newFixture(Config{TokensPerBlock: tpb})
	f.base.arena.shared.allowed = 100
	kept := func() (room int) {
		for i := range f.base.arena.shared.list {
			if a := f.base.arena.shared.list[i].array; a != nil {
				room += len(a.Tokens)
			}
		}
		return room
	}
	ids := make([][]protocol.BlockID, prompts)
	for i := range ids {
		tokens := counting(blocks * tpb)
		tokens[0] = messages.Token(1000 + i)
		ids[i] = slices.Clone(f.base.arena.ids(f.base.arena.index.node[f.lend(arrayOf(tokens), 0).Cursor.Block]))
	}
	require.Equal(t, prompts*blocks*tpb, kept())
	// Each prompt loses its blocks but the first two, from the tail.
	for left := blocks - 1; left >= 2; left-- {
		for i := range ids {
			f.evict(ids[i][left])
			require.LessOrEqual(t, kept(), 2*f.base.arena.shared.used+f.base.arena.shared.used/sparseShare+100)
		}
	}
	require.Zero(t, kept())
	require.NoError(t, f.Check())
	for i := range ids {
		tokens := counting(blocks * tpb)
		tokens[0] = messages.Token(1000 + i)
		require.Equal(t, 2*tpb, f.match(tokens).Matched)
	}
}

// One prompt after the other, in arrays that come back, costs no memory.
func TestArraysComeBack(t *testing.T) {
	const blocks = 50
	f := newFixture(Config{TokensPerBlock: 2})
	spare := []*protocol.TokenArray{{Tokens: make([]messages.Token, 2*blocks)}, {Tokens: make([]messages.Token, 2*blocks)}}
	for k := range 20 {
		array := spare[0]
		spare = spare[1:]
		copy(array.Tokens, counting(2*blocks))
		array.Tokens[0] = messages.Token(k)
		require.True(t, f.lend(array, 0).Taken)
		if k > 0 {
			ids := slices.Clone(f.base.arena.ids(f.base.child(f.base.rootOf(messages.Namespace{}, false), []messages.Token{messages.Token(k - 1), 1})))
			for i := len(ids) - 1; i >= 0; i-- {
				a := protocol.Apply{Moves: []protocol.BlockMove{{Block: ids[i], To: protocol.Nowhere}}}
				f.Apply(&a)
				spare = append(spare, a.Returned...)
			}
		}
		require.Len(t, spare, 1)
	}
}

// The sequences use the memory of a returned array for other tokens. So an array that left
// the table and was entered again in one message is not returned, and none is twice.
func TestReturnedArraysAreNotInUse(t *testing.T) {
	s := newSharedArrays()
	array := &protocol.TokenArray{Tokens: make([]messages.Token, 8)}
	s.count(s.add(array), 8)
	s.count(s.find(array), -8)
	s.count(s.add(array), 8)
	require.Empty(t, s.takeReturned(nil), "the array is in use again")
	s.count(s.find(array), -8)
	s.count(s.add(array), 8)
	s.count(s.find(array), -8)
	require.Equal(t, []*protocol.TokenArray{array}, s.takeReturned(nil))
}

// branched is a tree whose root has one child, a run of 20 tokens in a shared array. That
// run has one child, of 4 tokens of its own: the run that followed in the array has been
// evicted. It returns all tokens on that path, and the array.
func branched() (f *fixture, tokens []messages.Token, array *protocol.TokenArray) {
	f = newFixture(Config{TokensPerBlock: 2})
	array = arrayOf(counting(60))
	long := slices.Clone(f.base.arena.ids(f.base.arena.index.node[f.lend(array, 0).Cursor.Block]))
	tokens = append(counting(20), 9, 9, 9, 9)
	f.put(tokens)
	for i := len(long) - 1; i >= 10; i-- {
		f.evict(long[i])
	}
	return f, tokens, array
}

// whole is the node that has all blocks of a prompt, whose first block is stored.
func (f *fixture) whole(t *testing.T, tokens []messages.Token) int32 {
	require.NoError(t, f.Check())
	x := f.base.child(f.base.rootOf(messages.Namespace{}, false), tokens[:2])
	require.Equal(t, tokens, f.base.arena.tokens(x))
	return x
}

// A run with tokens of its own is not joined to one in a shared array: that would copy all
// tokens of the longer run for the sake of the shorter.
func TestTokensInAnArrayAreNotCopiedForAMerge(t *testing.T) {
	f, tokens, array := branched()
	require.NoError(t, f.Check())
	x := f.base.child(f.base.rootOf(messages.Namespace{}, false), tokens[:2])
	require.True(t, starts(f.base.arena.tokens(x), array.Tokens))
	require.EqualValues(t, 10, f.base.arena.nodes[x].n)
	require.Equal(t, len(tokens), f.match(append(tokens, 1)).Matched)

	// The branch grows in an array that has all of the path: then nothing is to be copied.
	next := arrayOf(append(slices.Clone(tokens), slices.Repeat([]messages.Token{8}, 80)...))
	require.True(t, f.lend(next, 0).Taken)
	require.Equal(t, []*protocol.TokenArray{array}, f.apply.Returned)
	require.True(t, starts(f.base.arena.tokens(f.whole(t, next.Tokens)), next.Tokens))
}

// Runs that were apart are joined when the tokens of the first are copied out of its array.
func TestRunsAreJoinedWhenAnArrayIsLeft(t *testing.T) {
	f, tokens, _ := branched()
	f.base.arena.shared.allowed = 0
	f.put(slices.Repeat([]messages.Token{7}, 2))
	require.Equal(t, noArray, f.base.arena.nodes[f.whole(t, tokens)].shared)
}

// A merge that brings a run into a shared array joins it to the run before it as well.
func TestRunsAreJoinedUpwards(t *testing.T) {
	f, tokens, _ := branched()
	branch := f.apply.Stores[0].Cursor.Block
	next := arrayOf(append(slices.Clone(tokens[:22]), slices.Repeat([]messages.Token{8}, 100)...))
	require.True(t, f.lend(next, 0).Taken)
	require.NoError(t, f.Check())
	f.evict(branch)
	require.True(t, starts(f.base.arena.tokens(f.whole(t, next.Tokens)), next.Tokens))
}
