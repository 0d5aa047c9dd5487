package sequence

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// The model of the arena is what one would write on a whiteboard: for each sequence
// its tokens, and for each block of each pool whether it has a page. A counter gives
// the pages; nothing is ever given back.

// modelled is one sequence on the whiteboard.
type modelled struct {
	tokens   []messages.Token
	prompt   int
	computed int
	chunk    int
	beams    int
	left     []int // by pool: blocks that have left the window, sinks not counted out
	lost     bool
}

// model is an arena with its whiteboard.
type model struct {
	*rapid.T
	pools []windows.Pool
	arena *Arena
	board map[messages.SequenceID]*modelled
	ended []messages.SequenceID
	page  messages.PageID
	stamp uint64
}

const tpb = 4

func modelPools() []windows.Pool {
	return []windows.Pool{
		{ID: 0, Name: "w6h1", Window: 6, Sink: 3, KVHeads: 1, HeadDim: 1, DType: windows.Int8,
			Layers: []int{0}, TokensPerBlock: tpb},
		{ID: 1, Name: "w12h1", Window: 12, KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{1},
			TokensPerBlock: tpb},
		{ID: 2, Name: "wfullh1", KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{2},
			TokensPerBlock: tpb},
	}
}

func TestModel(t *testing.T) { rapid.Check(t, runModel) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(runModel)) }

func runModel(t *rapid.T) {
	pools := modelPools()
	m := &model{T: t, pools: pools, arena: NewArena(pools, tpb, 0),
		board: map[messages.SequenceID]*modelled{}}
	t.Repeat(map[string]func(*rapid.T){
		"":        func(*rapid.T) { m.check() },
		"admit":   func(*rapid.T) { m.admit() },
		"commit":  func(*rapid.T) { m.commit() },
		"extend":  func(*rapid.T) { m.extend() },
		"beams":   func(*rapid.T) { m.extendBeams() },
		"rewind":  func(*rapid.T) { m.rewind() },
		"fork":    func(*rapid.T) { m.fork() },
		"lose":    func(*rapid.T) { m.lose() },
		"end":     func(*rapid.T) { m.end() },
		"abandon": func(*rapid.T) { m.abandon() },
	})
}

func (m *model) draw(from, to int, label string) int {
	return rapid.IntRange(from, to).Draw(m.T, label)
}

// pick picks a sequence that the predicate allows. Where there is none it admits one,
// for a later action, and returns nil: a run of the fuzzer that draws one action again
// and again must not end for want of a sequence.
func (m *model) pick(allowed func(*modelled) bool) (*Sequence, *modelled) {
	var ids []messages.SequenceID
	for id, b := range m.board {
		if !b.lost && allowed(b) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		m.admit()
		return nil, nil
	}
	slices.Sort(ids)
	id := ids[m.draw(0, len(ids)-1, "sequence")]
	s, refusal := m.arena.Find(id)
	require.Nil(m, refusal)
	return s, m.board[id]
}

func (m *model) take(n int) (pages []messages.PageID) {
	for range n {
		pages = append(pages, m.page)
		m.page++
	}
	return pages
}

func blocksOf(n int) int { return (n + tpb - 1) / tpb }

// admit admits a prompt of which some whole blocks, or half a block more, are
// reused.
func (m *model) admit() {
	m.stamp++
	n := m.draw(1, 30, "prompt")
	matched := m.draw(0, n-1, "matched")
	b := &modelled{prompt: n, computed: matched, left: make([]int, len(m.pools)), beams: 1}
	for i := range n {
		b.tokens = append(b.tokens, messages.Token(m.draw(0, 1, "token"))+messages.Token(i/8))
	}
	if m.draw(0, 2, "kind") == 0 {
		b.chunk = tpb * m.draw(1, 3, "chunk")
	}
	if m.draw(0, 3, "beams") == 0 {
		b.beams = 2
	}
	s := m.arena.Open(m.stamp)
	origin := Origin{Prompt: TokenCount(n), Session: "s"}
	if m.draw(0, 1, "retention") == 0 {
		origin.Retention = &messages.Retention{
			Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt}},
		}
	}
	s.Begin(origin, b.tokens, TokenCount(b.chunk))
	whole := matched / tpb
	s.Plan(BlockIndex(whole), TokenCount(matched))
	for p := range m.pools {
		end := blocksOf(n)
		if s.Covered(p) {
			end = blocksOf(int(s.ChunkEnd()))
		}
		b.left[p] = m.pools[p].FirstKept(matched)
		table := m.take(end)
		for i := m.pools[p].SinkBlocks(); i < b.left[p]; i++ {
			table[i] = messages.NoPage
		}
		s.SetTable(p, table)
	}
	s.Spread(b.beams)
	s.Admit(func(p int) PageCount {
		if !s.Covered(p) {
			return 0
		}
		return s.ChunkReserve(p, BlockIndex(whole))
	})
	m.board[s.ID()] = b
}

// commit computes up to the end of what may be committed.
func (m *model) commit() {
	s, b := m.pick(func(b *modelled) bool { return b.computed < len(b.tokens) })
	if s == nil {
		return
	}
	end := len(b.tokens)
	switch {
	case b.computed < b.prompt && b.chunk > 0:
		end = min(b.prompt, b.computed/tpb*tpb+b.chunk)
		require.EqualValues(m, end, s.ChunkEnd())
	case b.computed < b.prompt:
		end = b.prompt
	}
	n := end
	if b.computed >= b.prompt {
		n = m.draw(b.computed, end, "computed")
	}
	if b.computed < b.prompt && n < b.prompt {
		n = n / tpb * tpb
	}
	if n <= b.computed {
		return
	}
	next := make([]int, len(m.pools))
	for p := range m.pools {
		if s.Covered(p) && n < b.prompt {
			next[p] = max(0, blocksOf(int(s.NextChunkEnd(TokenCount(n))))-len(s.Table(p)))
		}
		b.left[p] = max(b.left[p], min(m.pools[p].FirstKept(n), len(s.Table(p))))
	}
	stored := min(n, b.prompt) / tpb
	if b.beams == 1 {
		stored = n / tpb
	}
	s.Commit(TokenCount(n), &Stored{Blocks: BlockIndex(stored),
		Cursor: protocol.Cursor{Generation: m.stamp + 1}})
	for p := range m.pools {
		if next[p] > 0 {
			s.SetTable(p, append(s.Table(p), m.take(next[p])...))
		}
	}
	b.computed = n
	if n >= b.prompt {
		b.chunk = 0
	}
}

// extend adds tokens to a sequence of one beam.
func (m *model) extend() {
	s, b := m.pick(func(b *modelled) bool { return b.beams == 1 && b.computed >= b.prompt })
	if s == nil {
		return
	}
	tokens := make([]messages.Token, m.draw(1, 6, "n"))
	for i := range tokens {
		tokens[i] = messages.Token(m.draw(0, 1, "token"))
	}
	s.OwnFrom(BlockIndex(min(b.computed/tpb, int(s.Blocks()))))
	s.Extend(tokens)
	b.tokens = append(b.tokens, tokens...)
	for p := range m.pools {
		if n := blocksOf(len(b.tokens)) - len(s.Table(p)); n > 0 {
			s.SetTable(p, append(s.Table(p), m.take(n)...))
		}
	}
}

// extendBeams makes both beams children of one.
func (m *model) extendBeams() {
	s, b := m.pick(func(b *modelled) bool { return b.beams > 1 && b.computed >= b.prompt })
	if s == nil {
		return
	}
	parent := m.draw(0, 1, "parent")
	s.ExtendBeams([]messages.BeamStep{{Parent: parent, Token: 7}, {Parent: parent, Token: 7}})
	b.tokens = append(slices.Clone(s.Tokens(0)[:len(b.tokens)]), 7)
	for p := range m.pools {
		tables := [][]messages.PageID{slices.Clone(s.Tables(p)[parent]),
			slices.Clone(s.Tables(p)[parent])}
		for i := range tables {
			tables[i] = append(tables[i], m.take(blocksOf(len(b.tokens))-len(tables[i]))...)
		}
		s.SetTables(p, tables)
	}
}

// rewind drops tokens, unless a page that the next one needs has been dropped.
func (m *model) rewind() {
	s, b := m.pick(func(b *modelled) bool { return b.beams == 1 && len(b.tokens) > b.prompt })
	if s == nil {
		return
	}
	n := m.draw(1, len(b.tokens)-b.prompt, "n")
	next := min(b.computed, len(b.tokens)-n)
	dropped := false
	for p := range m.pools {
		for block := range blocksOf(next) {
			gone := block >= m.pools[p].SinkBlocks() && block < b.left[p]
			dropped = dropped || gone && m.pools[p].Needs(block, next)
		}
	}
	_, _, refused := s.DroppedBefore(TokenCount(n))
	require.Equal(m, dropped, refused, "rewind of %d tokens\n%s", n, s)
	if refused {
		return
	}
	blocks := blocksOf(len(b.tokens) - n)
	require.EqualValues(m, blocks, s.RewindBlocks(TokenCount(n)))
	s.Rewind(TokenCount(n))
	b.tokens = b.tokens[:len(b.tokens)-n]
	b.computed = min(b.computed, len(b.tokens))
	for p := range m.pools {
		b.left[p] = min(b.left[p], blocks)
	}
}

// fork copies a sequence.
func (m *model) fork() {
	s, b := m.pick(func(b *modelled) bool { return b.beams == 1 && b.computed >= b.prompt })
	if s == nil {
		return
	}
	m.stamp++
	f := m.arena.Open(m.stamp)
	s.Fork(f)
	made := *b
	made.tokens, made.left = slices.Clone(b.tokens), slices.Clone(b.left)
	m.board[f.ID()] = &made
	require.Equal(m, s.RetentionFrom(), f.RetentionFrom())
}

// lose gives a sequence up; it holds its pages.
func (m *model) lose() {
	s, b := m.pick(func(*modelled) bool { return true })
	if s == nil {
		return
	}
	s.MarkLost(LostCopy)
	s.MarkLost(LostActor) // the first reason stays
	b.lost = true
}

// end ends any sequence.
func (m *model) end() {
	var ids []messages.SequenceID
	for id := range m.board {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		m.admit()
		return
	}
	slices.Sort(ids)
	id := ids[m.draw(0, len(ids)-1, "sequence")]
	m.arena.End(m.arena.Holder(id))
	delete(m.board, id)
	m.ended = append(m.ended, id)
}

// abandon opens sequences that never come to be.
func (m *model) abandon() {
	m.stamp++
	for range m.draw(1, 2, "n") {
		s := m.arena.Open(m.stamp)
		s.Begin(Origin{Prompt: 3}, make([]messages.Token, 3), 4)
		m.ended = append(m.ended, s.ID())
	}
	m.arena.EndOpenedBy(m.stamp)
}

// check compares the arena with the whiteboard.
func (m *model) check() {
	require.NoError(m, m.arena.Check(), "\n%s", m.arena)
	require.Equal(m, len(m.board), m.arena.Running())
	for _, id := range m.ended {
		_, refusal := m.arena.Find(id)
		require.ErrorIs(m, refusal, messages.ErrUnknownSequence)
		require.Nil(m, m.arena.Holder(id))
	}
	held := 0
	for id, b := range m.board {
		if b.lost {
			_, refusal := m.arena.Find(id)
			require.EqualError(m, refusal, "sequence "+id.String()+" was lost: a copy on write failed")
			require.True(m, m.arena.Holder(id).IsLost())
			continue
		}
		s, refusal := m.arena.Find(id)
		require.Nil(m, refusal)
		require.Equal(m, b.tokens, s.Tokens(0))
		require.EqualValues(m, b.computed, s.Computed())
		require.Equal(m, b.computed >= b.prompt, s.PromptComputed())
		require.Equal(m, b.beams, s.Beams())
		require.Equal(m, b.chunk > 0, s.Chunked())
		for p := range m.pools {
			for i, page := range s.Table(p) {
				gone := i >= m.pools[p].SinkBlocks() && i < b.left[p]
				require.Equal(m, gone, page == messages.NoPage, "block %d of pool %d\n%s", i, p, s)
				require.True(m, gone || page >= 0)
			}
			require.Len(m, s.CopyTables(nil)[p], b.beams)
		}
		held++
	}
	assert.GreaterOrEqual(m, m.arena.PagesHeld(), min(held, 1))
}
