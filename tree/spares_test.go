package tree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// What comes back is used again, has room for what is asked, and is bounded.
func TestSpares(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 4, Events: true})
	limit := shelved * 4
	for i := range 3000 {
		f.Restock([][]messages.Token{make([]messages.Token, i)})
		require.LessOrEqual(t, f.spares.tokens, limit)
	}
	require.Greater(t, f.spares.tokens, limit/2)
	for n := 1; n < 3000; n += 7 {
		before := f.spares.tokens
		if a := f.spares.take(n); a != nil {
			require.GreaterOrEqual(t, cap(a), n)
			require.LessOrEqual(t, cap(a), 2*n)
			require.Equal(t, before-cap(a), f.spares.tokens)
		}
	}
	room := 0
	for _, stack := range f.spares.stacks {
		for _, a := range stack {
			room += cap(a)
		}
	}
	require.Equal(t, room, f.spares.tokens)
}

// A tree whose events are read hands out the same tokens again and again, and
// what a reader has got stays the reader's.
func TestNamingsReuseTokens(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 4, Events: true})
	var read []protocol.Event
	for i := range messages.Token(20) {
		prompt := counting(400)
		prompt[0] = 1000 + i
		f.put(prompt)
		list := f.TakeEvents()
		spent := nameEvents(list)
		require.Len(t, spent, 1)
		f.Restock(spent)
		read = append(read, list...)
		require.LessOrEqual(t, f.spares.tokens, 800, "one array is enough")
	}
	for i, e := range read {
		require.Equal(t, []messages.Token{1000 + messages.Token(i), 1, 2, 3}, e.Blocks[0].Tokens)
		require.Equal(t, []messages.Token{396, 397, 398, 399}, e.Blocks[99].Tokens)
	}
}
