package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
)

// property runs the model, then empties the tree.
func property(t *rapid.T) {
	m := newModel(t)
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget, "look": m.Look,
	})
	for _, r := range m.running {
		m.work.ReleasedSymbols = append(m.work.ReleasedSymbols, r.tokens)
	}
	f := protocol.Forget{All: true, Now: m.now}
	m.tree.Apply(&m.work)
	m.tree.Forget(&f)
	m.takeBack(nil, m.work.Returned)
	m.takeBack(nil, f.Returned)
	require.Empty(m, m.lent)
	require.NoError(m, m.tree.Check())
	require.Equal(m, "empty\n", m.tree.String())
	require.Len(m, m.tree.base.symbols.free, len(m.tree.base.symbols.entries), "symbols left over")
	require.Len(m, m.tree.base.arena.index.free, len(m.tree.base.arena.index.node))
}

func TestModel(t *testing.T) { rapid.Check(t, property) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(property)) }
