package actors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/internal/blockkeys"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// toldOf makes the change that tells of blocks of two tokens, the first of which begins a prefix.
func toldOf(blocks ...protocol.BlockID) *blocksChanged {
	c := &protocol.Changes{Blocks: blocks, Namespaces: make([]messages.Namespace, 1)}
	for i := range 2 * len(blocks) {
		c.Tokens = append(c.Tokens, messages.Token(10*int(blocks[0])+i))
	}
	c.List = []protocol.Change{{
		Kind: protocol.BlocksEntered, Last: blocks[len(blocks)-1], Count: int32(len(blocks)), Tokens: int32(len(c.Tokens)), Parent: protocol.NoBlock,
	}}
	return &blocksChanged{changes: c}
}

// A block number names what it was when the pages were accepted: neither the block that had it
// before nor one that has it afterwards. Pages of blocks that were not told, or were forgotten,
// have no name.
func TestPagesAreNamedInOrder(t *testing.T) {
	empty := func() *blockkeys.Index { return blockkeys.New(stores.Fingerprint{1}, 2, blockkeys.UntilTrim) }
	job := func(blocks ...protocol.BlockID) *saveJob {
		j := &saveJob{}
		for _, b := range blocks {
			j.items = append(j.items, savedPage{pool: 3, block: b, page: messages.PageID(b)})
		}
		return j
	}
	first, second, third := job(1, 2, 9), job(1), job(1, 2)
	n := &namer{index: empty(), empty: empty, work: []any{
		toldOf(1, 2), first, toldOf(1), second, &blocksChanged{}, third,
	}}
	n.run()
	require.Nil(t, n.failed)
	require.Len(t, first.named, 2)
	assert.Equal(t, []messages.Token{10, 11}, first.named[0].Block.Tokens)
	assert.Equal(t, []messages.Token{12, 13}, first.named[1].Block.Tokens)
	assert.Equal(t, first.named[0].Key, first.named[1].Block.Parent)
	assert.Equal(t, messages.PoolID(3), first.named[0].Block.Pool)
	assert.Equal(t, []savedPage{{3, 9, 9}}, first.unknown)
	assert.Len(t, second.named, 1)
	assert.Empty(t, third.items)
	assert.Len(t, third.unknown, 2)
}

// A task that panics keeps the reason, and each job still has each of its pages once.
func TestANamerThatPanics(t *testing.T) {
	broken := toldOf(1, 2)
	broken.changes.Tokens = nil
	j := &saveJob{items: []savedPage{{0, 1, 1}, {0, 2, 2}}}
	n := &namer{index: blockkeys.New(stores.Fingerprint{1}, 2, blockkeys.UntilTrim), work: []any{broken, j}}
	n.run()
	require.NotNil(t, n.failed)
	assert.Equal(t, []savedPage{{0, 1, 1}, {0, 2, 2}}, append(j.items, j.unknown...))
}
