package sequence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// lentSequence is a sequence of n tokens, the first of which the tree refers to.
func lentSequence(n, lent int) (*Arena, *Sequence, *protocol.TokenArray) {
	a := NewArena([]windows.Pool{{TokensPerBlock: 4}}, 4, 0)
	s := a.Open(1)
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(i)
	}
	s.Begin(Origin{Prompt: TokenCount(n)}, tokens, 0)
	return a, s, s.Text.Lend(TokenCount(lent))
}

// What the tree refers to is not written to when a sequence is rewound and goes on with
// other tokens; what is behind it is.
func TestLentTokensAreNotWrittenTo(t *testing.T) {
	_, s, array := lentSequence(10, 8)
	s.Text.Shorten(1)
	s.Text.Extend([]messages.Token{99})
	require.Equal(t, messages.Token(99), array.Tokens[9])
	require.Same(t, array, s.Text.Lend(8))

	s.Text.Shorten(5)
	s.Text.Extend([]messages.Token{77, 78})
	require.Equal(t, []messages.Token{0, 1, 2, 3, 4, 77, 78}, s.Tokens(0))
	require.Equal(t, []messages.Token{0, 1, 2, 3, 4, 5, 6, 7}, array.Tokens[:8])
	require.NotSame(t, array, s.Text.Lend(4))
}

// An array is used again when neither a sequence nor the tree uses it, whoever leaves
// it last.
func TestArraysAreUsedAgain(t *testing.T) {
	next := func(a *Arena) *protocol.TokenArray {
		s := a.Open(2)
		s.Begin(Origin{Prompt: 10}, make([]messages.Token, 10), 0)
		return s.Text.array
	}
	for name, used := range map[string]func(a *Arena, s *Sequence, array *protocol.TokenArray) bool{
		"not lent": func(a *Arena, s *Sequence, array *protocol.TokenArray) bool {
			array.Lent = false
			a.End(s)
			return true
		},
		"the tree": func(a *Arena, s *Sequence, _ *protocol.TokenArray) bool { a.End(s); return false },
		"the sequence": func(a *Arena, _ *Sequence, array *protocol.TokenArray) bool {
			a.Returned([]*protocol.TokenArray{array})
			return false
		},
		"the tree last": func(a *Arena, s *Sequence, array *protocol.TokenArray) bool {
			a.End(s)
			a.Returned([]*protocol.TokenArray{array})
			return true
		},
		"the other last": func(a *Arena, s *Sequence, array *protocol.TokenArray) bool {
			a.Returned([]*protocol.TokenArray{array})
			a.End(s)
			return true
		},
		"a failure": func(a *Arena, _ *Sequence, _ *protocol.TokenArray) bool { a.EndOpenedBy(1); return false },
	} {
		a, s, array := lentSequence(10, 8)
		again := used(a, s, array)
		require.Equal(t, again, next(a) == array, name)
	}
}

// An array that a host gives away is not copied. Its memory is not used for another sequence, whether its own was
// admitted or not.
func TestGivenTokensAreKept(t *testing.T) {
	for _, admitted := range []bool{false, true} {
		a := NewArena([]windows.Pool{{TokensPerBlock: 4}}, 4, 0)
		tokens := make([]messages.Token, 100, 200)
		s := a.Open(1)
		s.BeginKeeping(Origin{Prompt: 100}, tokens, 0)
		require.Same(t, &tokens[0], &s.Tokens(0)[0])
		if admitted {
			s.Admit(0, 0, func(int) PageCount { return 0 })
			s.Text.Extend([]messages.Token{5})
			require.Zero(t, tokens[:101][100], "behind the prompt")
		}
		a.End(s)
		next := a.Open(2)
		next.Begin(Origin{Prompt: 100}, make([]messages.Token, 100), 0)
		require.NotSame(t, &tokens[0], &next.Tokens(0)[0])
	}
}

// The record of a given array is used for the next one, but not before tree and sequence have left it, and it keeps no
// memory of the host's meanwhile.
func TestRecordsOfGivenArraysAreUsedAgain(t *testing.T) {
	a := NewArena([]windows.Pool{{TokensPerBlock: 4}}, 4, 0)
	give := func() (*Sequence, *protocol.TokenArray) {
		s := a.Open(1)
		s.BeginKeeping(Origin{Prompt: 10}, make([]messages.Token, 10), 0)
		s.Admit(0, 0, func(int) PageCount { return 0 })
		return s, s.Text.Lend(8)
	}
	first, array := give()
	_, other := give()
	require.NotSame(t, array, other)
	a.End(first)
	_, other = give()
	require.NotSame(t, array, other, "the tree refers to the first array")
	a.Returned([]*protocol.TokenArray{array})
	require.Nil(t, array.Tokens)
	_, again := give()
	require.Same(t, array, again)
	require.Len(t, again.Tokens, 10)
	require.True(t, again.Lent && again.InUse)

	// A record that a failure has left lent is not used again.
	lost, array := give()
	a.End(lost)
	for range 3 {
		_, other = give()
		require.NotSame(t, array, other)
	}
}

// Spare arrays are bounded, and an array is not much longer than what is asked for.
func TestSpareArraysAreBounded(t *testing.T) {
	var a tokenArrays
	for n := 1; n < 3000; n++ {
		a.put(&protocol.TokenArray{Tokens: make([]messages.Token, n)})
		require.LessOrEqual(t, a.spare.Room(), spareTokens)
	}
	kept := a.spare.Room()
	for n := 3000; n > 0; n-- {
		for array := a.take(n); array != nil; array = a.take(n) {
			require.GreaterOrEqual(t, len(array.Tokens), n)
			require.LessOrEqual(t, len(array.Tokens), 4*n+64)
			kept -= len(array.Tokens)
		}
	}
	require.Zero(t, kept)
	require.Zero(t, a.spare.Room())
	for range spareRecords + 1 {
		a.put(&protocol.TokenArray{Tokens: make([]messages.Token, 8), Given: true})
	}
	require.Len(t, a.records, spareRecords)
	require.Zero(t, a.spare.Room())
}
