package blockkeys_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

var fingerprint = stores.Fingerprint{1}

// entered makes the change that blocks of two tokens have entered the tree.
func entered(
	parent protocol.BlockID, n messages.Namespace, blocks []protocol.BlockID, tokens ...messages.Token,
) *protocol.Changes {
	c := &protocol.Changes{Blocks: blocks, Tokens: tokens}
	if parent == protocol.NoBlock {
		c.Namespaces = []messages.Namespace{n}
	}
	c.List = []protocol.Change{
		{Kind: protocol.BlocksStored, Last: blocks[len(blocks)-1]},
		{Kind: protocol.BlocksEntered, Last: blocks[len(blocks)-1], Count: int32(len(blocks)),
			Tokens: int32(len(tokens)), Parent: parent},
	}
	return c
}

// A key is that of the prefix, whichever blocks were asked for before and in whichever
// order.
func TestKeysFollowThePrefix(t *testing.T) {
	salted := messages.Namespace{Salt: "s"}
	space := stores.NewSpace(fingerprint, salted, nil)
	first := space.Next(space.Root(), []messages.Token{1, 2}, nil)
	second := space.Next(first, []messages.Token{3, 4}, nil)
	third := space.Next(second, []messages.Token{5, 6}, nil)
	for _, order := range [][]protocol.BlockID{{7, 3, 9}, {9, 3, 7}, {3, 9, 7}} {
		x := blockkeys.New(fingerprint, 2)
		x.Apply(entered(protocol.NoBlock, salted, []protocol.BlockID{7, 3}, 1, 2, 3, 4))
		x.Apply(entered(3, messages.Namespace{}, []protocol.BlockID{9}, 5, 6))
		for _, b := range order {
			d, ok := x.Describe(b)
			require.True(t, ok)
			want := map[protocol.BlockID]blockkeys.Described{
				7: {Namespace: salted, Key: first, Block: stores.Block{Parent: space.Root(),
					Tokens: []messages.Token{1, 2}}},
				3: {Namespace: salted, Key: second, Block: stores.Block{Parent: first,
					Tokens: []messages.Token{3, 4}}},
				9: {Namespace: salted, Key: third, Block: stores.Block{Parent: second,
					Tokens: []messages.Token{5, 6}}},
			}[b]
			assert.Equal(t, want, d)
		}
	}
}

// Blocks that have left, that are stored in part or that were never there have no key,
// and an id that is used again names the new block.
func TestBlocksLeave(t *testing.T) {
	x := blockkeys.New(fingerprint, 2)
	x.Apply(entered(protocol.NoBlock, messages.Namespace{}, []protocol.BlockID{0, 1}, 1, 2, 3, 4))
	x.Apply(entered(1, messages.Namespace{}, []protocol.BlockID{2}, 5))
	for _, b := range []protocol.BlockID{2, 3} {
		_, ok := x.Describe(b)
		assert.False(t, ok, "block %d", b)
	}
	before, ok := x.Describe(1)
	require.True(t, ok)
	x.Apply(&protocol.Changes{List: []protocol.Change{{Kind: protocol.BlocksLeft, Last: 2, Count: 2}}})
	_, ok = x.Describe(1)
	assert.False(t, ok)
	x.Apply(entered(0, messages.Namespace{}, []protocol.BlockID{1}, 3, 5))
	after, ok := x.Describe(1)
	require.True(t, ok)
	assert.NotEqual(t, before.Key, after.Key)
	assert.Equal(t, before.Block.Parent, after.Block.Parent)
}

// An index that begins when the tree is not empty, as after a failure, has no key for what
// stands behind blocks that it does not know, and follows what leaves.
func TestBlocksBehindUnknownOnes(t *testing.T) {
	x := blockkeys.New(fingerprint, 2)
	x.Apply(entered(protocol.NoBlock, messages.Namespace{}, []protocol.BlockID{0, 1}, 1, 2, 3, 4))
	x.Apply(entered(9, messages.Namespace{}, []protocol.BlockID{3}, 5, 6))
	_, ok := x.Describe(3)
	assert.False(t, ok, "behind a block beyond all that are known")
	x.Apply(entered(2, messages.Namespace{}, []protocol.BlockID{4}, 5, 6))
	_, ok = x.Describe(4)
	assert.False(t, ok, "behind a block that is not known")

	x.Apply(&protocol.Changes{List: []protocol.Change{{Kind: protocol.BlocksLeft, Last: 2, Count: 2}}})
	d, ok := x.Describe(1)
	require.True(t, ok, "what leaves is not known, and no other block leaves for it")
	first, _ := x.Describe(0)
	assert.Equal(t, first.Key, d.Block.Parent)
}

// An item covers tokens of some blocks of a change only.
func TestItems(t *testing.T) {
	x := blockkeys.New(fingerprint, 2)
	c := entered(protocol.NoBlock, messages.Namespace{}, []protocol.BlockID{0, 1}, 1, 2, 3, 4)
	cover := messages.Cover{Covered: true, Hash: [32]byte{1}}
	c.List[1].Covered, c.Covers = true, []messages.Cover{{}, {}, {}, cover}
	x.Apply(c)
	plain, _ := x.Describe(0)
	assert.Nil(t, plain.Block.Covers)
	covered, _ := x.Describe(1)
	assert.Equal(t, []messages.Cover{{}, cover}, covered.Block.Covers)
}
