package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/messages/inspect"
)

// branches are n prompts that share their first blocks and have blocks of their own. They
// are stored by one message, since a build with invariants checks the whole tree after each.
func branches(f *fixture, n, shared, own int) {
	f.apply.Stores = f.apply.Stores[:0]
	for i := range n {
		tokens := counting(2 * (shared + own))
		for j := 2 * shared; j < len(tokens); j++ {
			tokens[j] = messages.Token(1000 + i)
		}
		f.apply.Stores = append(f.apply.Stores, protocol.StoreItem{Tokens: tokens, To: len(tokens),
			Tables: f.table(tokens)})
	}
	f.Apply(&f.apply)
}

// The largest nodes come first in the selection, each with its parent.
func TestTopNodes(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	branches(f, 3, 4, 5)
	f.put([]messages.Token{7, 7, 8, 8})
	m := protocol.TopNodes{Limit: 10}
	f.TopNodes(&m)
	require.Len(t, m.Nodes, 6)
	assert.True(t, m.Complete)
	assert.Equal(t, 6, m.Counted)
	root, trunk := m.Nodes[0], m.Nodes[1]
	assert.Equal(t, inspect.PrefixNode{Parent: -1, Below: 21}, root)
	if trunk.Blocks != 4 {
		trunk = m.Nodes[2]
	}
	assert.Equal(t, []int{0, 0, 4, 19}, []int{trunk.Parent, trunk.Depth, trunk.Blocks, trunk.Below})
	for _, n := range m.Nodes[3:] {
		assert.Equal(t, []int{4, 5, 5}, []int{n.Depth, n.Blocks, n.Below})
		assert.Equal(t, 4, m.Nodes[n.Parent].Blocks)
	}

	m.Limit = 2
	f.TopNodes(&m)
	require.Len(t, m.Nodes, 2)
	assert.Equal(t, 4, m.Nodes[1].Blocks, "the trunk is larger than the other child of the root")
	assert.Equal(t, 6, m.Counted)
}

// A reused node has the latest stamp.
func TestTopNodesKnowTheLatestUse(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	branches(f, 2, 2, 2)
	hit := append(counting(4), 1000, 1000, 1000, 1000)
	match := f.match(append(hit, 1))
	f.Apply(&protocol.Apply{Claims: []protocol.ClaimItem{{Blocks: match.IDs,
		Source: protocol.NoBlock}}})
	m := protocol.TopNodes{Limit: 10}
	f.TopNodes(&m)
	require.Len(t, m.Nodes, 4)
	assert.Equal(t, m.Nodes[1].Stamp, max(m.Nodes[2].Stamp, m.Nodes[3].Stamp))
	assert.NotEqual(t, m.Nodes[2].Stamp, m.Nodes[3].Stamp)
}

// A tree of more nodes than are counted lacks its deepest levels.
func TestTopNodesCountSoMany(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	branches(f, maxCounted+10, 1, 1)
	m := protocol.TopNodes{Limit: 3}
	f.TopNodes(&m)
	assert.Len(t, m.Nodes, 3)
	assert.Equal(t, maxCounted+12, m.Counted, "the children of one node are counted together")
	assert.False(t, m.Complete)
}

// 20,000 conversations of 50 blocks: a million.
func BenchmarkTopNodes(b *testing.B) {
	f := newFixture(Config{TokensPerBlock: 2})
	branches(f, 20_000, 10, 50)
	m := protocol.TopNodes{Limit: 300}
	b.ReportAllocs()
	for b.Loop() {
		f.TopNodes(&m)
	}
}
