package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// toldBlock is what a receiver of NameBlocks was told of a block.
type toldBlock struct {
	parent    protocol.BlockID
	namespace messages.Namespace // of the first block of a prefix
	atoms     []atom
}

// receiver follows the answers to NameBlocks, and nothing else.
type receiver struct {
	t      require.TestingT
	tree   *Tree
	blocks map[protocol.BlockID]toldBlock
	turns  int
	asked  int
}

// ask asks, in every fourth turn, for every third of the whole blocks, for some of them twice,
// and requires that what was told, now or before, says what each of them is.
func (r *receiver) ask() {
	if r.turns++; r.turns%4 > 0 {
		return
	}
	m := &protocol.NameBlocks{All: r.asked%7 == 0}
	if m.All {
		clear(r.blocks)
	}
	for b := range r.tree.arena.blocks {
		id := protocol.BlockID(b)
		if r.tree.arena.alive(id) && (b+r.asked)%3 == 0 && len(r.tree.arena.tokensOf(id)) == r.tree.arena.tpb {
			m.Blocks = append(m.Blocks, id)
		}
	}
	if r.asked%2 > 0 {
		m.Blocks = append(m.Blocks, m.Blocks...)
	}
	r.asked++
	r.tree.NameBlocks(m)
	r.hear(m)
	for _, b := range m.Blocks {
		want, full := fullOf(r.tree, b)
		namespace, got := r.fullOf(b)
		require.Equal(r.t, want.Namespace, namespace)
		require.Equal(r.t, full, got)
	}
}

// hear notes an answer. It tells no block twice, and none before its parent is told.
func (r *receiver) hear(m *protocol.NameBlocks) {
	c := m.Named
	blocks, tokens, covers, namespaces := c.Blocks, c.Tokens, c.Covers, c.Namespaces
	now := map[protocol.BlockID]bool{}
	for _, e := range c.List {
		require.Equal(r.t, protocol.BlocksEntered, e.Kind)
		parent, namespace := e.Parent, messages.Namespace{}
		if parent == protocol.NoBlock {
			namespace, namespaces = namespaces[0], namespaces[1:]
		} else {
			require.Contains(r.t, r.blocks, parent)
		}
		for i, b := range blocks[:e.Count] {
			require.False(r.t, now[b], "told twice")
			now[b] = true
			n := r.tree.arena.tpb
			told := toldBlock{parent: parent, namespace: namespace}
			for k, token := range tokens[i*n : (i+1)*n] {
				a := atom{token: token}
				if e.Covered && covers[i*n+k].Covered {
					cover := covers[i*n+k]
					a.covered, a.hash, a.position = true, cover.Hash[0], cover.Position
				}
				told.atoms = append(told.atoms, a)
			}
			r.blocks[b] = told
			parent, namespace = b, messages.Namespace{}
		}
		blocks, tokens = blocks[e.Count:], tokens[e.Tokens:]
		if e.Covered {
			covers = covers[e.Tokens:]
		}
	}
	require.Empty(r.t, blocks)
	require.Empty(r.t, tokens)
	require.Empty(r.t, covers)
	require.Empty(r.t, namespaces)
}

// fullOf is what was told of a block and all before it.
func (r *receiver) fullOf(b protocol.BlockID) (messages.Namespace, []atom) {
	var full []atom
	var n messages.Namespace
	for ; b != protocol.NoBlock; b = r.blocks[b].parent {
		require.Contains(r.t, r.blocks, b)
		full, n = append(slices.Clone(r.blocks[b].atoms), full...), r.blocks[b].namespace
	}
	return n, full
}

// A tree tells what blocks are when it is asked, and of the blocks before them once. A block
// that gets the id of another one is told of like a new one.
func TestBlocksAreNamedOnce(t *testing.T) {
	tr := New(Config{TokensPerBlock: 2, Pools: []PoolShape{{}}})
	store := func(tokens ...messages.Token) []protocol.BlockID {
		pages := make([]messages.PageID, len(tokens)/2)
		for i := range pages {
			pages[i] = messages.PageID(tokens[0]) + messages.PageID(i)
		}
		tr.Apply(&protocol.Apply{Stores: []protocol.StoreItem{{Tokens: tokens, To: len(tokens), Tables: [][]messages.PageID{pages}}}})
		m := &protocol.Match{Items: []protocol.MatchItem{{Tokens: slices.Clone(tokens), Limit: len(tokens)}}}
		tr.Match(m)
		return slices.Clone(m.Items[0].IDs)
	}
	name := func(all bool, blocks ...protocol.BlockID) []protocol.BlockID {
		m := &protocol.NameBlocks{Blocks: blocks, All: all}
		tr.NameBlocks(m)
		return m.Named.Blocks
	}
	a := store(10, 11, 12, 13, 14, 15)
	require.Len(t, a, 3)
	assert.Equal(t, a[:2], name(false, a[1]), "with the block before it")
	assert.Equal(t, a[2:], name(false, a[2]), "those before it are known")
	assert.Equal(t, []protocol.BlockID{a[2], a[1]}, name(false, a[2], a[1], a[2]), "asked for again")
	assert.Equal(t, a, name(true, a[2]), "all were forgotten")
	tr.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Block: a[2], To: protocol.Nowhere}}})
	b := store(10, 11, 12, 13, 20, 21)
	require.Equal(t, a, b, "the id is given again")
	c := store(10, 11, 12, 13, 20, 21, 22, 23)
	assert.Equal(t, c[2:], name(false, c[3]))
}
