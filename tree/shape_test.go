package tree

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// fixture stores and matches without ceremony; every page is fresh.
type fixture struct {
	*Tree
	page  messages.PageID
	apply protocol.Apply
	ask   protocol.Match
}

func newFixture(c Config) *fixture {
	if len(c.Pools) == 0 {
		c.Pools = []PoolShape{{}}
	}
	return &fixture{Tree: New(c), ask: protocol.Match{Items: make([]protocol.MatchItem, 1)}}
}

// table gives fresh pages for all blocks of tokens.
func (f *fixture) table(tokens []messages.Token) [][]messages.PageID {
	n := (len(tokens) + f.arena.tpb - 1) / f.arena.tpb
	tables := make([][]messages.PageID, len(f.arena.pools))
	for p := range tables {
		for range n {
			f.page++
			tables[p] = append(tables[p], f.page)
		}
	}
	return tables
}

func (f *fixture) put(tokens []messages.Token) {
	f.apply.Stores = append(f.apply.Stores[:0], protocol.StoreItem{Tokens: tokens, To: len(tokens),
		Tables: f.table(tokens)})
	f.Apply(&f.apply)
}

func (f *fixture) match(tokens []messages.Token) *protocol.MatchItem {
	it := &f.ask.Items[0]
	it.Tokens, it.Limit, it.Partial = tokens, len(tokens)-1, true
	f.Match(&f.ask)
	return it
}

// evict takes a block's page in pool 0 away.
func (f *fixture) evict(b protocol.BlockID) {
	f.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Block: b, To: protocol.Nowhere}}})
}

func counting(n int) []messages.Token {
	tokens := make([]messages.Token, n)
	for i := range tokens {
		tokens[i] = messages.Token(i)
	}
	return tokens
}

// large scales a size down where the tree is walked after every change.
func large(n int) int {
	if invariants.Enabled {
		return n / 200
	}
	return n
}

// A hundred thousand children of one node: the best of them is found, and all
// of them go, without looking at each for each.
func TestManyChildren(t *testing.T) {
	children := large(100_000)
	f := newFixture(Config{TokensPerBlock: 4})
	tokens := make([]messages.Token, 8)
	for i := range children {
		// Multiplied by an odd constant, so that they come in no order.
		k := uint32(i) * 0x9e3779b1 >> 1
		tokens[4], tokens[5] = messages.Token(k>>16), messages.Token(k&0xffff)
		f.put(tokens)
	}
	require.Equal(t, children+1, f.Blocks())
	require.NoError(t, f.Check())
	var deepest int
	for i := 0; i < children; i += 7 {
		k := uint32(i) * 0x9e3779b1 >> 1
		tokens[4], tokens[5] = messages.Token(k>>16), messages.Token(k&0xffff)
		it := f.match(append(tokens[:6:6], -9, 0, 0))
		require.Equal(t, 6, it.Matched)
		require.Equal(t, tokens[4:6], f.arena.tokensOf(it.Source.Block)[:2])
		depth := 0
		b := it.Source.Block
		for x := f.arena.top(f.arena.before(b)); x != b; depth++ {
			x = f.arena.blocks[x].side[f.arena.sideOf(x, f.arena.tokensOf(b))]
		}
		deepest = max(deepest, depth)
	}
	require.Less(t, deepest, 64, "the treap is out of balance")
	g := protocol.Forget{Selector: messages.Selector{Prefix: &messages.Prefix{Tokens: make(
		[]messages.Token, 4)}}}
	f.Forget(&g)
	require.Equal(t, children+1, g.Blocks)
	require.Equal(t, "empty\n", f.String())
}

// Prompts that leave one long prompt at each of its blocks, and go again.
func TestBranchesEverywhere(t *testing.T) {
	depth := large(20_000)
	orders := map[string]func(i int) int{
		"from the head": func(i int) int { return i },
		"from the tail": func(i int) int { return depth - 2 - i },
		"from both":     func(i int) int { return (depth - 1 + i*7919) % (depth - 1) },
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Config{TokensPerBlock: 2})
			long, own := counting(2*depth), counting(2*depth)
			f.put(long)
			var twigs []protocol.BlockID
			table := [][]messages.PageID{make([]messages.PageID, depth)}
			var all protocol.Locate
			it := f.match(append(long, 0))
			ids := append([]protocol.BlockID(nil), it.IDs...)
			for i := range depth - 1 {
				at := order(i)
				f.page++
				table[0][at+1] = f.page
				own[2*at+2], own[2*at+3] = math.MaxInt32, messages.Token(i)
				s := protocol.StoreItem{
					Tokens: own, From: 2*at + 2, To: 2*at + 4, Tables: table,
					Cursor: f.arena.cursor(ids[at]),
				}
				f.apply.Stores = append(f.apply.Stores[:0], s)
				f.Apply(&f.apply)
				twigs = append(twigs, f.apply.Stores[0].Cursor.Block)
				copy(own[2*at+2:2*at+4], long[2*at+2:])
			}
			require.NoError(t, f.Check())
			require.Equal(t, 2*depth, f.match(append(long, 0)).Matched)
			for i := range twigs {
				f.evict(twigs[(i*7919)%len(twigs)])
			}
			require.NoError(t, f.Check())
			require.Equal(t, depth, f.Blocks())
			all.Blocks = ids
			f.Locate(&all)
			require.NotContains(t, all.Pages[0], protocol.Nowhere)
		})
	}
}

// A hundred thousand blocks one behind the other, stored one by one.
func TestLongPrompt(t *testing.T) {
	depth := large(100_000)
	f := newFixture(Config{TokensPerBlock: 2, Pools: []PoolShape{{Window: 6}, {}}})
	tokens := counting(2*depth + 1)
	tables := f.table(tokens)
	s := protocol.StoreItem{Tokens: tokens, Tables: tables}
	for i := range depth {
		s.From, s.To = 2*i, 2*i+2
		f.apply.Stores = append(f.apply.Stores[:0], s)
		f.Apply(&f.apply)
		s.Cursor = f.apply.Stores[0].Cursor
		require.Equal(t, int32(i), f.arena.blocks[s.Cursor.Block].depth)
	}
	it := f.match(tokens)
	require.Equal(t, 2*depth, it.Matched)
	require.Equal(t, protocol.Nowhere, it.Pages[0][depth-4])
	require.Equal(t, protocol.OnDevice(tables[0][depth-3]), it.Pages[0][depth-3])
	// Every third block lost by the window: each shorter match fails in turn.
	for i := 0; i < depth; i += 3 {
		f.apply = protocol.Apply{Moves: []protocol.BlockMove{{Pool: 0, Block: it.IDs[i],
			To: protocol.Nowhere}}}
		f.Apply(&f.apply)
	}
	it = f.match(tokens)
	require.Zero(t, it.Matched)
	require.Equal(t, 2*depth, it.Reach)
	require.NoError(t, f.Check())
}

// A warm match allocates nothing, whatever it finds.
func TestMatchAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the walk after each message allocates")
	}
	f := newFixture(Config{TokensPerBlock: 16, Pools: []PoolShape{{Window: 100, Sink: 4}, {}},
		Events: true})
	long := counting(16 * 200)
	f.put(long)
	for i := range 20 {
		own := append(long[:16*8*i:16*8*i], counting(40)...)
		own[16*8*i] = -messages.MaxToken
		own[16*8*i] = messages.Token(9_000_000 + i)
		f.put(own)
	}
	items := []messages.MultimodalItem{{Hash: [32]byte{1}, Start: 3, Length: 20}}
	for name, ask := range map[string]func(it *protocol.MatchItem){
		"long":    func(it *protocol.MatchItem) { it.Tokens = long },
		"partial": func(it *protocol.MatchItem) { it.Tokens = long[:16*150+7] },
		"cold":    func(it *protocol.MatchItem) { it.Namespace.Salt = "x" },
		"with one": func(it *protocol.MatchItem) {
			it.Multimodal = items
			it.Tokens = make([]messages.Token, 64)
		},
	} {
		it := &f.ask.Items[0]
		*it = protocol.MatchItem{Tokens: long, Limit: len(long), Partial: true, IDs: it.IDs,
			Pages: it.Pages, Source: it.Source}
		ask(it)
		f.Match(&f.ask)
		require.Zero(t, testing.AllocsPerRun(50, func() { f.Match(&f.ask) }), name)
	}
}

// Of the blocks that share the most tokens with a prompt, the latest one is reused.
func TestTheLatestSiblingIsReused(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 4})
	f.put([]messages.Token{1, 1, 1, 1})
	f.put([]messages.Token{1, 1, 2, 2})
	f.put([]messages.Token{1, 1, 3, 3})
	f.put([]messages.Token{1, 1, 4, 4})
	it := f.match([]messages.Token{1, 1, 0, 0, 0})
	require.Equal(t, []messages.Token{1, 1, 4, 4}, f.arena.tokensOf(it.Source.Block))
	f.evict(it.Source.Block)
	it = f.match([]messages.Token{1, 1, 0, 0, 0})
	require.Equal(t, []messages.Token{1, 1, 3, 3}, f.arena.tokensOf(it.Source.Block))
}

// A cursor of a block that is gone, or beyond what is offered, is no harm; one that
// other tokens lead to is a bug.
func TestCursors(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	f.put(counting(8))
	c := f.apply.Stores[0].Cursor
	require.Equal(t, protocol.Cursor{Block: 3, Generation: 4}, c)
	other := append(counting(4), 9, 9, 9, 9)
	f.put(other)
	f.apply.Stores = []protocol.StoreItem{{Tokens: counting(5), From: 2, To: 5,
		Tables: f.table(counting(5)), Cursor: c}}
	f.Apply(&f.apply)
	require.Equal(t, 5, f.match(append(counting(5), 0)).Matched)
	require.Equal(t, 8, f.match(append(other, 0)).Matched)
	require.Equal(t, 7, f.Blocks())
	if invariants.Enabled {
		require.PanicsWithValue(t, "tree: a cursor leads to block 3, whose tokens are others", func() {
			f.Apply(&protocol.Apply{Stores: []protocol.StoreItem{{Tokens: other, To: 8,
				Tables: f.table(other), Cursor: c}}})
		})
	}

	f.evict(c.Block)
	require.False(t, f.arena.alive(c.Block))
	f.apply.Stores = []protocol.StoreItem{{Tokens: counting(10), From: 8, To: 10,
		Tables: f.table(counting(10)), Cursor: c}}
	f.Apply(&f.apply)
	require.Equal(t, 7, f.Blocks())
	require.Contains(t, f.String(), "3 [6 7] -- ghost\n")
	require.NoError(t, f.Check())
}

// A match has a cursor of its last whole block, with which a store need not compare what
// was matched.
func TestCursorOfAMatch(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	f.put(counting(8))
	require.Zero(t, f.match([]messages.Token{5, 6}).Cursor, "nothing matched")
	tokens := append(counting(4), 9, 9)
	c := f.match(tokens).Cursor
	require.Equal(t, protocol.BlockID(1), c.Block)
	require.True(t, f.arena.follows(c))
	f.apply.Stores = []protocol.StoreItem{{Tokens: tokens, From: 4, To: 6, Tables: f.table(tokens),
		Cursor: c}}
	f.Apply(&f.apply)
	require.Equal(t, 6, f.match(append(tokens, 0)).Matched)
	require.NoError(t, f.Check())
}

// Our own mistakes are panics that state the facts.
func TestPanics(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2, Pools: []PoolShape{{}, {}}})
	require.PanicsWithValue(t, "tree: block 5 moves in pool 1, which is not in the tree", func() {
		f.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Pool: 1, Block: 5}}})
	})
	f.apply.Stores = []protocol.StoreItem{{Tokens: counting(2), To: 2,
		Tables: [][]messages.PageID{{7}, {messages.NoPage}}}}
	f.Apply(&f.apply)
	require.PanicsWithValue(t, "tree: block 0 moves in pool 1, which does not hold it", func() {
		f.Apply(&protocol.Apply{Moves: []protocol.BlockMove{{Pool: 1, Block: 0,
			To: protocol.OnDevice(1)}}})
	})
	require.PanicsWithValue(t, "tree: takeover of block 9, which is not in the tree", func() {
		f.Apply(&protocol.Apply{Takeovers: []protocol.BlockID{9}})
	})
	require.PanicsWithValue(t, "tree: release of symbol -1, which has no references", func() {
		f.Apply(&protocol.Apply{ReleasedSymbols: [][]messages.Token{{-1}}})
	})
	require.Panics(t, func() { New(Config{TokensPerBlock: 2}) })
}

// Check finds what is wrong, whatever it is.
func TestCheckFinds(t *testing.T) {
	for name, harm := range map[string]func(f *fixture){
		"depth":  func(f *fixture) { f.arena.blocks[1].depth++ },
		"page":   func(f *fixture) { f.arena.locations[0][1] = f.arena.locations[0][0] },
		"latest": func(f *fixture) { f.arena.blocks[0].latest[candidates]++ },
		"order": func(f *fixture) {
			for _, b := range f.arena.appendChildren(nil, f.arena.behind(1)) {
				f.arena.tokensOf(b)[0] = 7
			}
		},
		"parent":   func(f *fixture) { f.arena.blocks[1].parent = 3 },
		"made":     func(f *fixture) { f.arena.blocks[1].generation = f.arena.generation + 1 },
		"part":     func(f *fixture) { f.arena.blocks[1].tokens-- },
		"root":     func(f *fixture) { f.arena.byName = nil },
		"stamp":    func(f *fixture) { f.arena.blocks[1].stamp = f.arena.stamp + 1 },
		"held":     func(f *fixture) { f.arena.blocksHeld++ },
		"session":  func(f *fixture) { f.arena.sessions.refs[0]++ },
		"timer":    func(f *fixture) { f.arena.timers.slot[0] = 0 },
		"kind":     func(f *fixture) { f.arena.roots[0].cross = true },
		"free":     func(f *fixture) { f.arena.free = append(f.arena.free, 0) },
		"symbol":   func(f *fixture) { f.arena.symbols.refs[0] = 0 },
		"priority": func(f *fixture) { f.arena.blocks[0].priority = 101 },
	} {
		f := newFixture(Config{TokensPerBlock: 2, Events: true})
		tokens := counting(8)
		f.arena.symbols.acquire(tokens, []messages.MultimodalItem{{Start: 1, Length: 1}})
		retention := &messages.Retention{Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt,
			Duration: time.Second}}}
		for _, last := range []messages.Token{1, 2, 3} {
			tokens[4] = last
			f.apply.Stores = []protocol.StoreItem{{
				Tokens: tokens, To: 8, Prompt: 8, Tables: f.table(tokens), Session: "s", Retention: retention,
			}}
			f.Apply(&f.apply)
		}
		require.NoError(t, f.Check())
		harm(f)
		require.Error(t, f.Check(), name)
	}
}

func BenchmarkMatch(b *testing.B) {
	f := newFixture(Config{TokensPerBlock: 32})
	long := counting(32*4096 + 1)
	f.put(long)
	b.SetBytes(int64(4 * len(long)))
	for b.Loop() {
		f.match(long)
	}
}

func BenchmarkStore(b *testing.B) {
	long := counting(32 * 4096)
	b.SetBytes(int64(4 * len(long)))
	var before, after runtime.MemStats
	var f *fixture
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		f = newFixture(Config{TokensPerBlock: 32})
		f.put(long)
	}
	f.apply, f.log = protocol.Apply{}, journal{}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/4096-4*32, "B/block")
	runtime.KeepAlive(f)
	runtime.KeepAlive(long)
}

func BenchmarkStoreAgain(b *testing.B) {
	f := newFixture(Config{TokensPerBlock: 32})
	long := counting(32 * 4096)
	table := f.table(long)
	for b.Loop() {
		f.apply.Stores = append(f.apply.Stores[:0], protocol.StoreItem{Tokens: long, To: len(long),
			Tables: table})
		f.Apply(&f.apply)
	}
}

// A block that leaves the tree ends its timer.
func TestDroppedBlocksHaveNoTimer(t *testing.T) {
	f := newFixture(Config{TokensPerBlock: 2})
	tokens := counting(8)
	retention := &messages.Retention{Ranges: []messages.RetentionRange{{End: messages.EndOfPrompt,
		Priority: 80, Duration: time.Second}}}
	f.Apply(&protocol.Apply{Stores: []protocol.StoreItem{{Tokens: tokens, To: 8, Prompt: 8,
		Tables: f.table(tokens), Retention: retention}}})
	ghost := f.match(append(tokens, 0)).IDs[1]
	f.evict(ghost)
	require.NoError(t, f.Check())
	_, timed := f.arena.timers.of(ghost)
	require.False(t, timed)
}
