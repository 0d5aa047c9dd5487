package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// property runs the model, then empties the tree.
func property(t *rapid.T) {
	m := newModel(t)
	t.Repeat(map[string]func(*rapid.T){
		"lookup": m.Lookup, "admit": m.Admit, "store": m.Store, "store again": m.Store,
		"move": m.Move, "end": m.End, "wait": m.Wait, "forget": m.Forget, "look": m.Look, "list": m.List,
	})
	for _, r := range m.running {
		m.work.ReleasedSymbols = append(m.work.ReleasedSymbols, r.tokens)
	}
	f := protocol.Forget{All: true, Now: m.now}
	m.tree.Apply(&m.work)
	m.tree.Forget(&f)
	require.NoError(m, m.tree.Check())
	require.Equal(m, "empty\n", m.tree.String())
	require.Len(m, m.tree.arena.symbols.free, len(m.tree.arena.symbols.values), "symbols left over")
	require.Len(m, m.tree.arena.free, len(m.tree.arena.blocks))
}

// List lists the blocks for a recovery, which counts the symbols: all of them are held already.
func (m *model) List(*rapid.T) {
	before := slices.Clone(m.tree.arena.symbols.refs)
	var list protocol.ListLocations
	for _, r := range m.running {
		list.Held = append(list.Held, protocol.HeldSymbols{Tokens: r.tokens})
	}
	m.tree.ListLocations(&list)
	for _, h := range list.Held {
		require.False(m, h.Lost)
	}
	require.Equal(m, before, m.tree.arena.symbols.refs)
	listed := make([]fronts, len(m.oracle.pools))
	for p := range listed {
		listed[p] = fronts{}
	}
	for _, b := range list.Blocks {
		if page, tier, _ := b.At.Page(); tier == messages.Primary && m.oracle.pools[b.Pool].State {
			listed[b.Pool][page] = b.Front
		} else {
			require.Equal(m, messages.NoPage, b.Front)
		}
	}
	require.Equal(m, m.oracle.fronts(), listed)
	for p, list := range m.tree.Attached() {
		for _, at := range list {
			if front, ok := listed[p][at.Page]; ok {
				require.Equal(m, front, at.Front)
			} else {
				require.Equal(m, messages.NoPage, at.Front)
			}
		}
	}
}

// A recovery forgets the symbols that no block and no sequence holds, and says of a prompt
// whether it has forgotten them before.
func TestListLocationsCountsSymbols(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	prompt := func(hash byte) []messages.Token {
		m := protocol.Match{Items: []protocol.MatchItem{{
			Tokens: counting(4), Limit: 4, KeepSymbols: true,
			Multimodal: []messages.MultimodalItem{{Hash: [32]byte{hash}, Start: 1, Length: 2}},
		}}}
		f.Match(&m)
		return m.Items[0].Tokens
	}
	kept, _ := prompt(1), prompt(2) // of a request that failed
	require.Equal(t, 4, f.Symbols())
	list := protocol.ListLocations{Held: []protocol.HeldSymbols{{Tokens: kept}, {Tokens: kept}}}
	f.ListLocations(&list)
	require.Equal(t, 2, f.Symbols())
	require.False(t, list.Held[0].Lost || list.Held[1].Lost)

	release := protocol.Apply{ReleasedSymbols: [][]messages.Token{kept}}
	f.Apply(&release)
	require.Equal(t, 2, f.Symbols(), "the second holds them")
	f.Apply(&release)
	require.Zero(t, f.Symbols())
	f.ListLocations(&list)
	require.True(t, list.Held[0].Lost && list.Held[1].Lost)
	require.NoError(t, f.Check())
}

func TestModel(t *testing.T) { rapid.Check(t, property) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(property)) }
