package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// going stores more and more of the same tokens, from the cursor of the last store.
type going struct {
	f      *fixture
	tokens []messages.Token
	cursor protocol.Cursor
}

// store stores up to token n and tells whether the cursor was followed.
func (g *going) store(t *testing.T, n int) bool {
	t.Helper()
	followed := g.f.arena.follows(g.cursor)
	g.f.apply.Stores = []protocol.StoreItem{{Tokens: g.tokens[:n], To: n,
		Tables: g.f.table(g.tokens[:n]), Cursor: g.cursor}}
	g.f.Apply(&g.f.apply)
	require.NoError(t, g.f.Check())
	require.Equal(t, n, g.f.match(append(g.tokens[:n:n], -9)).Matched)
	g.cursor = g.f.apply.Stores[0].Cursor
	return followed
}

// TestCursorsOfRunsThatGrow: sequences of the same tokens, each behind the
// other, all go on from their cursors, and so do those that part.
func TestCursorsOfRunsThatGrow(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	var abreast [3]going
	for i := range abreast {
		abreast[i] = going{f: f, tokens: counting(40)}
	}
	for n := 2; n <= 40; n += 2 {
		for i := range abreast {
			require.Equal(t, n > 2, abreast[i].store(t, n), "sequence %d at %d", i, n)
		}
	}
	apart := going{f: f, tokens: append(counting(20), 9, 9, 9, 9)}
	require.False(t, apart.store(t, 20))
	require.True(t, apart.store(t, 22), "split")
	require.True(t, apart.store(t, 24))
	for b := protocol.BlockID(19); b >= 10; b-- {
		f.evict(b)
	}
	require.True(t, f.arena.follows(apart.cursor), "joined")
	require.False(t, f.arena.follows(abreast[0].cursor), "gone")
}

// TestCursorOfAnIDThatCameBack: the id of a block that is gone names another one,
// at the same depth, in a run of its own, behind an older one or before a younger.
func TestCursorOfAnIDThatCameBack(t *testing.T) {
	cases := map[string]func(f *fixture){
		"a run":  func(f *fixture) { f.put([]messages.Token{5, 5, 6, 6, 7, 7, 8, 8}) },
		"behind": func(f *fixture) { f.put(append(counting(6), 9, 9)) },
		"and growing": func(f *fixture) {
			f.put(append(counting(6), 9, 9))
			f.put(append(counting(6), 9, 9, 9, 9))
		},
		"the same": func(f *fixture) { f.put(counting(8)) },
		"branching": func(f *fixture) {
			f.put(append(counting(6), 9, 9))
			f.put(append(counting(4), 9, 9))
		},
		"in part": func(f *fixture) { f.put(append(counting(6), 9)) },
	}
	for name, store := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Config{TokensPerBlock: 2})
			f.put(counting(8))
			c := f.apply.Stores[0].Cursor
			require.True(t, f.arena.follows(c))
			f.evict(c.Block)
			require.False(t, f.arena.follows(c), "gone")
			store(f)
			require.True(t, f.arena.alive(c.Block), "another one")
			require.False(t, f.arena.follows(c))
			require.NoError(t, f.Check())
		})
	}
}
