package sequence

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// open gives an admitted sequence of n prompt tokens, all computed.
func open(t *testing.T, a *Arena, n int) *Sequence {
	t.Helper()
	s := a.Open(1)
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(i)
	}
	s.Begin(Origin{Prompt: TokenCount(n)}, tokens, 0)
	s.Plan(0, 0)
	for p := range a.pools {
		table := make([]messages.PageID, a.blocks(TokenCount(n)))
		for i := range table {
			table[i] = messages.PageID(10*int(uint32(s.id)) + i)
		}
		s.SetTable(p, table)
	}
	s.Admit(func(int) PageCount { return 0 })
	s.Commit(TokenCount(n), &Stored{Blocks: a.wholeBlocks(TokenCount(n))})
	require.NoError(t, a.Check())
	return s
}

// Every relation that Check knows is found when it is broken.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, breakIt := range map[string]func(*Arena, *Sequence){
		"6 of 4 tokens are computed": func(_ *Arena, s *Sequence) { s.Shorten(2) },
		"blocks are shared":          func(_ *Arena, s *Sequence) { s.sharedBlocks = 9 },
		"blocks are retained":        func(_ *Arena, s *Sequence) { s.retainedBlocks = 2 },
		"blocks were reused":         func(_ *Arena, s *Sequence) { s.reusedBlocks = 3 },
		"a chunk ends":               func(_ *Arena, s *Sequence) { s.chunk = 4 },
		"3 beams are pending":        func(_ *Arena, s *Sequence) { s.pendingBeams = 3 },
		"ends inside a block": func(_ *Arena,
			s *Sequence) {
			s.retained = retainedPrefixes{{1, 2, 3}}
		},
		"retained prefix 0 begins prefix 1": func(_ *Arena,
			s *Sequence) {
			s.retained = retainedPrefixes{{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}}
		},
		"beam 1 has 1 tokens": func(_ *Arena,
			s *Sequence) {
			s.tokens = append(s.tokens, []messages.Token{1})
		},
		"2 tables in pool w6h1 for 1 beams": func(_ *Arena,
			s *Sequence) {
			s.pools[0].beams = append(s.pools[0].beams, nil)
		},
		"table of beam 0 in pool w12h1 has": func(_ *Arena, s *Sequence) {
			s.SetTable(1, s.Table(1)[:1])
		},
		"block 0 of beam 0 in pool wfullh1": func(_ *Arena,
			s *Sequence) {
			s.Table(2)[0] = messages.NoPage
		},
		"is twice in the table": func(_ *Arena,
			s *Sequence) {
			s.Table(2)[1] = s.Table(2)[0]
		},
		"the window of pool wfullh1 begins":  func(_ *Arena, s *Sequence) { s.pools[2].windowStart = 1 },
		"reserves add up to 0, counted 3":    func(a *Arena, _ *Sequence) { a.reserved[1] = 3 },
		"a reserve of 2 pages in pool w12h1": func(_ *Arena, s *Sequence) { s.setReserve(1, 2) },
		"is free twice, or taken":            func(a *Arena, _ *Sequence) { a.free = append(a.free, 0) },
		"share the symbols of a prompt": func(_ *Arena,
			s *Sequence) {
			s.HoldSymbols()
			*s.symbols = 0
		},
		"tokens, the prompt has 40":      func(_ *Arena, s *Sequence) { s.Prompt = 40 },
		"slot 0 holds 7.0, running true": func(_ *Arena, s *Sequence) { s.id = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			a := NewArena(modelPools(), tpb, 0)
			breakIt(a, open(t, a, 6))
			assert.ErrorContains(t, a.Check(), name)
		})
	}
}

// What a lost sequence holds is in no relation to what it has computed.
func TestALostSequenceIsNotChecked(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	s := open(t, a, 6)
	s.Shorten(2)
	s.MarkLost(LostCopy)
	require.NoError(t, a.Check())
	assert.Contains(t, a.String(), "lost: a copy on write failed")
	_, refusal := a.Find(s.ID())
	assert.EqualError(t, refusal, "sequence 0.1 was lost: a copy on write failed")
	s.Clear()
	assert.Zero(t, a.PagesHeld())
	assert.Same(t, s, a.Holder(s.ID()))
}

// A handle of a sequence that has ended finds nothing, also when its slot is taken.
func TestHandles(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	first := open(t, a, 6).ID()
	a.End(a.Holder(first))
	second := open(t, a, 6).ID()
	assert.Equal(t, uint32(first), uint32(second), "the slot is used again")
	for _, id := range []messages.SequenceID{0, first, 1 << 20} {
		_, refusal := a.Find(id)
		require.NotNil(t, refusal)
		assert.Equal(t, messages.ErrUnknownSequence, refusal.Code)
		assert.Nil(t, a.Holder(id))
	}
	_, err := a.FindOnce(second, 5)
	require.NoError(t, err)
	a.Holder(second).Touched = 5
	_, err = a.FindOnce(second, 5)
	assert.ErrorContains(t, err, "twice in one request")
	a.LoseTouchedBy(4)
	assert.False(t, a.Holder(second).IsLost())
	a.LoseTouchedBy(5)
	assert.True(t, a.Holder(second).IsLost())
}

// Symbols are released when the last sequence that shares them does.
func TestSymbols(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	s := open(t, a, 6)
	assert.Nil(t, s.ReleaseSymbols())
	s.HoldSymbols()
	f, g := a.Open(2), a.Open(2)
	s.Fork(f)
	s.Fork(g)
	assert.Nil(t, s.ReleaseSymbols())
	g.ForgetTree() // a tree that was emptied has no symbols to be released
	assert.Nil(t, f.ReleaseSymbols(), "g has never released them")
	s.HoldSymbols()
	s.Extend([]messages.Token{9})
	assert.Len(t, s.ReleaseSymbols(), 6, "the prompt")
	s.HoldSymbols()
	s.ForgetTree()
	assert.Nil(t, s.symbols)
	assert.True(t, s.NoStore, "it cannot be stored without them")
	assert.Equal(t, s.Blocks(), s.SharedBlocks())
}

// A request sets the retention of a block once, also if it comes to the same tokens
// again after a rewind.
func TestRetentionIsAppliedOnce(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	s := open(t, a, 4)
	s.Retention = &messages.Retention{Decode: &messages.DecodeRetention{Priority: 50}}
	grow := func(tokens ...messages.Token) {
		s.Extend(tokens)
		for p := range a.pools {
			for int(a.blocks(s.Length())) > len(s.Table(p)) {
				s.SetTable(p, append(s.Table(p), messages.PageID(100+len(s.Table(p)))))
			}
		}
		s.Commit(s.Length(), &Stored{Blocks: a.wholeBlocks(s.Length())})
		require.NoError(t, a.Check())
	}
	grow(1, 2, 3, 4)
	assert.EqualValues(t, 2, s.RetentionFrom())
	s.Rewind(4)
	assert.EqualValues(t, 1, s.RetentionFrom())
	s.Extend([]messages.Token{1, 2, 3, 4})
	assert.EqualValues(t, 2, s.RetentionFrom(), "the same tokens again")
	s.Shorten(4)
	grow(1, 2, 9, 9)
	s.Rewind(2)
	s.Extend([]messages.Token{8, 8})
	assert.EqualValues(t, 1, s.RetentionFrom(), "another block")
	assert.Len(t, s.retained, 2)
}

// The reserve covers the pages from the first block that was not reused on.
func TestWhatTheReserveCovers(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	s := a.Open(1)
	s.Begin(Origin{Prompt: 40}, make([]messages.Token, 40), 8)
	s.Plan(2, 9)
	assert.EqualValues(t, 16, s.ChunkEnd())
	assert.Equal(t, []bool{true, true, false}, []bool{s.Covered(0), s.Covered(1), s.Covered(2)})
	assert.EqualValues(t, 2+2+1, s.ChunkReserve(0, 2),
		"the window before the chunk, the chunk, the sink")
	assert.EqualValues(t, 3+2, s.ChunkReserve(1, 2))
	assert.EqualValues(t, 1, s.ChunkReserve(1, 9), "no more than is left of the prompt")
	for _, c := range []struct{ from, blocks, want int }{{0, 5, 2}, {1, 5, 1}, {2, 5, 0}, {4, 5, 0},
		{0, 1, 1}} {
		assert.Equal(t, c.want, s.CoveredFrom(BlockIndex(c.from), c.blocks), fmt.Sprint(c))
	}
	for p := range a.pools {
		s.SetTable(p, []messages.PageID{0, 1, 2, 3})
	}
	sink, window := s.EndOfReserve(0, 16)
	assert.Empty(t, sink, "reused")
	assert.Equal(t, []messages.PageID{2, 3}, window)
	s.Plan(0, 0)
	sink, window = s.EndOfReserve(0, 16)
	assert.Equal(t, []messages.PageID{0}, sink)
	assert.Equal(t, []messages.PageID{2, 3}, window)
}

// What moves is followed in every table.
func TestRenumber(t *testing.T) {
	a := NewArena(modelPools(), tpb, 0)
	s, other := open(t, a, 6), open(t, a, 6)
	a.Renumber(2, map[messages.PageID]messages.PageID{1: 10, 10: 30})
	a.Renumber(1, nil)
	assert.Equal(t, []messages.PageID{0, 10}, s.Table(2))
	assert.Equal(t, []messages.PageID{30, 11}, other.Table(2))
	assert.Equal(t, []messages.PageID{0, 1}, s.Table(1))
	references := a.References(2, 40)
	assert.EqualValues(t, 1, references[30])
	assert.EqualValues(t, 0, references[1])
	assert.Equal(t, "no sequences\n", NewArena(modelPools(), tpb, 0).String())
}
