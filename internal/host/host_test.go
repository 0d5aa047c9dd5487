package host

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// small is a pool whose rows have a tail: 3 elements of 2 bytes.
var small = windows.Pool{
	Name: "wfullh2", KVHeads: 2, HeadDim: 3, DType: windows.Float16, Layers: []int{1, 4},
	TokensPerBlock: 4,
}

// wide has rows of several words.
var wide = windows.Pool{
	ID: 1, Name: "w8h1", Window: 8, KVHeads: 1, HeadDim: 13, DType: windows.Float32, Layers: []int{0},
	TokensPerBlock: 4,
}

func tokens(ids ...messages.Token) []messages.Token { return ids }

func TestChainsDifferWhereAnythingDiffers(t *testing.T) {
	item := func(hash byte, start, length int) messages.MultimodalItem {
		return messages.MultimodalItem{Hash: [32]byte{31: hash}, Start: start, Length: length}
	}
	prefixes := []messages.Prefix{
		{Tokens: tokens(1, 2, 3)},
		{Tokens: tokens(1, 3, 2)},
		{Tokens: tokens(1, 2, 4)},
		{Tokens: tokens(0, 2, 3)},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{Salt: "a"}},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{Salt: "ab"}},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{HasLoRA: true}},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{LoRA: "a", HasLoRA: true}},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{Salt: "a", LoRA: "b", HasLoRA: true}},
		{Tokens: tokens(1, 2, 3), Namespace: messages.Namespace{Salt: "ab", HasLoRA: true}},
		{Tokens: tokens(1, 2, 3), Multimodal: []messages.MultimodalItem{item(1, 0, 3)}},
		{Tokens: tokens(1, 2, 3), Multimodal: []messages.MultimodalItem{item(2, 0, 3)}},
		{Tokens: tokens(1, 2, 3), Multimodal: []messages.MultimodalItem{item(1, 0, 2)}},
		{Tokens: tokens(1, 2, 3), Multimodal: []messages.MultimodalItem{item(1, 1, 2)}},
		{Tokens: tokens(1, 2, 3), Multimodal: []messages.MultimodalItem{item(1, 0, 1), item(1, 1, 2)}},
	}
	seen := make(map[Chain]int)
	for i, p := range prefixes {
		chains := Chains(p)
		require.Len(t, chains, 3)
		last := chains[2]
		if j, ok := seen[last]; ok {
			t.Errorf("prefixes %d and %d have one chain", i, j)
		}
		seen[last] = i
	}
}

// A name that means nothing without HasLoRA changes nothing.
func TestRootPassesOverALoRAThatIsNotThere(t *testing.T) {
	assert.Equal(t, Root(messages.Namespace{Salt: "s"}),
		Root(messages.Namespace{Salt: "s", LoRA: "left over"}))
}

func TestChainsAreOfPrefixesOnly(t *testing.T) {
	long := Chains(messages.Prefix{Tokens: tokens(5, 6, 7, 8),
		Multimodal: []messages.MultimodalItem{{Start: 2, Length: 2}}})
	short := Chains(messages.Prefix{Tokens: tokens(5, 6)})
	assert.Equal(t, short, long[:2])
	assert.NotEqual(t, Chains(messages.Prefix{Tokens: tokens(5, 6, 7)})[2], long[2])
}

// The place of each row is the formula that partial copies use.
func TestRowsLieWhereTheEngineCopiesThem(t *testing.T) {
	for _, pool := range []windows.Pool{small, wide} {
		l := NewLayout(pool)
		require.EqualValues(t, pool.PageBytes(), l.pageBytes())
		tpb, dim, elem := pool.TokensPerBlock, pool.HeadDim, pool.DType.Bytes()
		for token := range tpb {
			page := make([]byte, pool.PageBytes())
			l.Write(page, token, Chain(99))
			for at, b := range page {
				element := at / elem
				inRow := element/dim%tpb == token
				if !inRow {
					require.Zerof(t, b, "pool %s: token %d wrote byte %d", pool.Name, token, at)
				}
			}
			assert.NoError(t, l.Verify(page, token, Chain(99)))
		}
	}
}

func TestVerifySeesEveryByte(t *testing.T) {
	for _, pool := range []windows.Pool{small, wide} {
		l := NewLayout(pool)
		page := make([]byte, pool.PageBytes())
		for token := range pool.TokensPerBlock {
			l.Write(page, token, Chain(token))
		}
		row := pool.HeadDim * pool.DType.Bytes()
		for at := range page {
			page[at] ^= 0x10
			hit := at / row % pool.TokensPerBlock
			for token := range pool.TokensPerBlock {
				err := l.Verify(page, token, Chain(token))
				if token == hit {
					require.Errorf(t, err, "byte %d", at)
				} else {
					require.NoErrorf(t, err, "byte %d", at)
				}
			}
			page[at] ^= 0x10
		}
	}
}

func TestVerifyNamesTheRow(t *testing.T) {
	l := NewLayout(small)
	page := make([]byte, small.PageBytes())
	l.Write(page, 2, 7)
	// Second layer of the pool, V, second head, token 2.
	page[(((1*2+1)*2+1)*4+2)*6] ^= 1
	assert.EqualError(t, l.Verify(page, 2, 7), "layer 4, V, head 1, token 2 of the block: wrong bytes")
	assert.EqualError(t, l.Verify(page[1:], 2, 7), "page of 191 bytes, pool wfullh2 has 192")
}

func TestRowsOfAllRunsDiffer(t *testing.T) {
	l := NewLayout(small)
	page := make([]byte, small.PageBytes())
	l.Write(page, 1, 5)
	var rows []string
	for i := range l.runs {
		rows = append(rows, string(l.runs[i].rows(page, 1, 1)))
	}
	slices.Sort(rows)
	assert.Len(t, slices.Compact(rows), 8)
}

// board is a device that runs each kernel when it is told to.
type board struct {
	pages   map[gpu.Slot][]byte
	kernels []gpu.Kernel
	refuse  error
}

func newBoard() *board { return &board{pages: make(map[gpu.Slot][]byte)} }

func (b *board) Launch(s gpu.Stream, k gpu.Kernel) (gpu.Ticket, error) {
	if b.refuse != nil {
		return gpu.Ticket{}, b.refuse
	}
	b.kernels = append(b.kernels, k)
	return gpu.Ticket{Stream: s, Seq: uint64(len(b.kernels))}, nil
}

// bytes returns the page of a slot, which it makes at first use.
func (b *board) bytes(slot gpu.Slot) []byte {
	if b.pages[slot] == nil {
		size := small.PageBytes()
		if slot.Pool == 20 {
			size = wide.PageBytes()
		}
		b.pages[slot] = make([]byte, size)
	}
	return b.pages[slot]
}

func (b *board) runAll() {
	for _, k := range b.kernels {
		k.Run(b.bytes)
	}
	b.kernels = nil
}

func (b *board) writer() *Writer {
	return NewWriter(WriterConfig{
		Launcher: b, Stream: 3, Pools: []gpu.Pool{10, 20},
		Layouts: []Layout{NewLayout(small), NewLayout(wide)}, NanosPerToken: 7,
	})
}

// read is for the verifier.
func (b *board) read(pool messages.PoolID, tier messages.Tier, page messages.PageID) []byte {
	return b.pages[gpu.Slot{Pool: gpu.Pool(10 * (pool + 1)), Tier: tier, Page: page}]
}

func slot(pool gpu.Pool, page messages.PageID) gpu.Slot { return gpu.Slot{Pool: pool, Page: page} }

func TestLaunchDeclaresExactlyWhatTheKernelTouches(t *testing.T) {
	b := newBoard()
	w := b.writer()
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 4, 5, 6)})
	table := Table{{5, 6}, {messages.NoPage, 2}}
	ticket, err := w.Launch(Step{
		Label: "step", Waits: []gpu.Ticket{{Stream: 9, Seq: 4}},
		Reads:  []Span{{Chains: chains, To: 5, Table: table}},
		Writes: []Span{{Chains: chains, From: 5, To: 6, Table: table}},
	})
	require.NoError(t, err)
	assert.Equal(t, gpu.Ticket{Stream: 3, Seq: 1}, ticket)
	k := b.kernels[0]
	assert.Equal(t, []gpu.Ticket{{Stream: 9, Seq: 4}}, k.Waits)
	assert.EqualValues(t, 7, k.Nanos)

	// small: 8 runs of 4 rows of 6 bytes. wide: 2 runs of 4 rows of 52 bytes.
	var reads, writes []gpu.Access
	reads = append(reads, gpu.Access{Slot: slot(10, 5)})
	for run := range int64(8) {
		reads = append(reads, gpu.Access{Slot: slot(10, 6), Offset: run * 24, Bytes: 6})
		writes = append(writes, gpu.Access{Slot: slot(10, 6), Offset: run*24 + 6, Bytes: 6})
	}
	for run := range int64(2) {
		reads = append(reads, gpu.Access{Slot: slot(20, 2), Offset: run * 208, Bytes: 52})
		writes = append(writes, gpu.Access{Slot: slot(20, 2), Offset: run*208 + 52, Bytes: 52})
	}
	assert.Equal(t, reads, k.Reads)
	assert.Equal(t, writes, k.Writes)
}

func TestLaunchDeclaresOneRangeOfPagesWithManyRuns(t *testing.T) {
	many := small
	many.KVHeads = 33 // 2 layers × K, V × 33 heads
	b := newBoard()
	w := NewWriter(WriterConfig{Launcher: b, Stream: 1, Pools: []gpu.Pool{10},
		Layouts: []Layout{NewLayout(many)}})
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3)})
	_, err := w.Launch(Step{Writes: []Span{{Chains: chains, From: 1, To: 3, Table: Table{{0}}}}})
	require.NoError(t, err)
	assert.Equal(t, []gpu.Access{{Slot: slot(10, 0), Offset: 6, Bytes: 131*24 + 12}},
		b.kernels[0].Writes)
}

func TestLaunchOfNothingIsThePast(t *testing.T) {
	b := newBoard()
	chains := Chains(messages.Prefix{Tokens: tokens(1)})
	ticket, err := b.writer().Launch(
		Step{Writes: []Span{{Chains: chains, From: 1, To: 1, Table: Table{{0}, {0}}}}})
	require.NoError(t, err)
	assert.True(t, ticket.IsZero())
	assert.Empty(t, b.kernels)
}

func TestLaunchRefusesTokensWithoutABlock(t *testing.T) {
	b := newBoard()
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 4, 5)})
	_, err := b.writer().Launch(
		Step{Writes: []Span{{Chains: chains, To: 5, Table: Table{{0, 1}, {0}}}}})
	assert.ErrorIs(t, err, errNoPage)
	assert.ErrorContains(t, err, "pool w8h1, block 1 of 1")
}

// Beams that share a page write it once.
func TestLaunchWritesSharedPagesOnce(t *testing.T) {
	b := newBoard()
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 4)})
	span := Span{Chains: chains, To: 4, Table: Table{{5}, {6}}}
	_, err := b.writer().Launch(Step{Writes: []Span{span, span}})
	require.NoError(t, err)
	assert.Len(t, b.kernels[0].Writes, 2)
}

// What a kernel writes is fixed when it is launched.
func TestKernelsWriteWhatTheSequenceWasAtLaunch(t *testing.T) {
	b := newBoard()
	w := b.writer()
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3)})
	then := slices.Clone(chains)
	_, err := w.Launch(Step{Writes: []Span{{Chains: chains, To: 3, Table: Table{{0}, {0}}}}})
	require.NoError(t, err)
	chains[2] = 4711 // rewound and grown again before the kernel ran
	b.runAll()
	l := NewLayout(small)
	assert.NoError(t, l.Verify(b.bytes(slot(10, 0)), 2, then[2]))
}

func TestKernelsReportWhatTheyReadWrong(t *testing.T) {
	b := newBoard()
	w := b.writer()
	chains := Chains(messages.Prefix{Tokens: tokens(1, 2, 3, 4, 5)})
	table := Table{{0, 1}, {0, 1}}
	step := Step{Reads: []Span{{Chains: chains, To: 4, Table: table}},
		Writes: []Span{{Chains: chains, From: 4, To: 5, Table: table}}}
	_, err := w.Launch(step)
	require.NoError(t, err)
	b.runAll() // the prompt was never written
	assert.Equal(t, []string{
		"pool wfullh2, page 0, read by a kernel: layer 1, K, head 0, token 0 of the block: wrong bytes",
		"pool w8h1, page 0, read by a kernel: layer 0, K, head 0, token 0 of the block: wrong bytes",
	}, w.Problems())
	assert.Empty(t, w.Problems(), "told once")
}

// verified is a board with one sequence of six tokens and a tree of its first
// block, whose second pool keeps it in host memory, and the claims on it.
func verified(t *testing.T) (*board, *Verifier, Claims) {
	b := newBoard()
	w := b.writer()
	p := messages.Prefix{Namespace: messages.Namespace{Salt: "s"}, Tokens: tokens(1, 2, 3, 4, 5, 6),
		Multimodal: []messages.MultimodalItem{{Start: 1, Length: 3}}}
	chains := Chains(p)
	tables := messages.Tables{{{0, 1}}, {{messages.NoPage, 1}}}
	_, err := w.Launch(Step{Writes: []Span{{Chains: chains, To: 6, Table: Beam(tables, 0)}}})
	require.NoError(t, err)
	b.runAll()
	onHost := gpu.Slot{Pool: 20, Tier: messages.Secondary, Page: 7}
	l := NewLayout(wide)
	for token, c := range chains[:4] {
		l.Write(b.bytes(onHost), token, c)
	}
	covers := protocol.CoversOf(p.Multimodal, len(p.Tokens))
	return b, &Verifier{Layouts: []Layout{NewLayout(small), l}, Read: b.read}, Claims{
		Blocks: []protocol.Content{
			{Parent: -1, Namespace: p.Namespace, Tokens: p.Tokens[:4], Covers: covers[:4],
				Pages: []protocol.Location{protocol.OnDevice(0), protocol.OnHost(7)}},
			{Parent: 0, Namespace: p.Namespace, Depth: 1, Tokens: p.Tokens[4:5],
				Pages: []protocol.Location{protocol.OnDevice(1), protocol.Nowhere}},
		},
		Sequences: []Held{{Name: "A", Computed: 6, Beams: [][]Chain{chains}, Tables: tables}},
	}
}

func TestVerifierCountsPagesOnce(t *testing.T) {
	_, v, claims := verified(t)
	pages, problems := v.Verify(claims)
	assert.Equal(t, 4, pages) // 0 and 1 of the first pool, 1 and host 7 of the second
	assert.Empty(t, problems)
	assert.NotNil(t, problems)
}

func TestVerifierSaysWhatIsWrong(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*board, *Claims)
		want  []string
	}{
		{"a byte of a host page", func(b *board, _ *Claims) {
			b.pages[gpu.Slot{Pool: 20, Tier: messages.Secondary, Page: 7}][0] ^= 1
		},
			[]string{"pool w8h1, secondary page 7 (block 0 of tree): layer 0, K, head 0, token 0 of the " +
				"block: wrong bytes"}},
		{"a page that does not exist", func(_ *board, c *Claims) {
			c.Sequences[0].Tables[1][0][1] = 9
		}, []string{"pool w8h1, primary page 9 (block 1 of A): no such page"}},
		{"a table that is too short", func(_ *board, c *Claims) {
			c.Sequences[0].Tables[0][0] = c.Sequences[0].Tables[0][0][:1]
		}, []string{"sequence A: pool wfullh2 has 1 pages for 6 computed tokens"}},
		{"pages swapped", func(_ *board, c *Claims) {
			c.Sequences[0].Tables[0][0] = []messages.PageID{1, 0}
		}, []string{
			"pool wfullh2, primary page 1 (block 0 of A): layer 1, K, head 0, token 0 of the block: wrong bytes",
			"pool wfullh2, primary page 0 (block 1 of A): layer 1, K, head 0, token 0 of the block: wrong bytes",
		}},
		{"another namespace", func(_ *board, c *Claims) {
			c.Blocks = c.Blocks[:1]
			c.Blocks[0].Namespace.Salt = "t"
		}, []string{
			"pool wfullh2, primary page 0 (block 0 of tree): layer 1, K, head 0, token 0 of the block: " +
				"wrong bytes",
			"pool w8h1, secondary page 7 (block 0 of tree): layer 0, K, head 0, token 0 of the block: " +
				"wrong bytes",
		}},
		{"a child before its parent", func(_ *board, c *Claims) {
			c.Blocks[1].Parent = 1
		}, []string{"tree: block 1 stands before its parent 1"}},
		{"fewer tokens than computed", func(_ *board, c *Claims) {
			c.Sequences[0].Computed = 7
		}, []string{
			"sequence A: beam 0 has a table, but not 7 tokens",
			"sequence A: beam 0 has a table, but not 7 tokens",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, v, claims := verified(t)
			c.spoil(b, &claims)
			_, problems := v.Verify(claims)
			assert.Equal(t, c.want, problems)
		})
	}
}

func TestVerifierBoundsItsReport(t *testing.T) {
	v := &Verifier{Layouts: []Layout{NewLayout(small)}, Read: func(messages.PoolID, messages.Tier,
		messages.PageID) []byte {
		return nil
	}}
	var claims Claims
	for i := range maxProblems + 5 {
		claims.Blocks = append(claims.Blocks, protocol.Content{Parent: -1, Tokens: tokens(1),
			Pages: []protocol.Location{protocol.OnDevice(messages.PageID(i))}})
	}
	pages, problems := v.Verify(claims)
	assert.Equal(t, maxProblems+5, pages)
	require.Len(t, problems, maxProblems+1)
	assert.Equal(t, "and 5 problems more", problems[maxProblems])
}

// Spans that are written in any number of steps leave the same pages.
func TestStepsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 13).Draw(t, "tokens")
		prompt := make([]messages.Token, n)
		for i := range prompt {
			prompt[i] = messages.Token(rapid.Int32Range(0, 3).Draw(t, fmt.Sprintf("token %d", i)))
		}
		chains := Chains(messages.Prefix{Tokens: prompt})
		table := Table{{0, 1, 2, 3}, {3, 2, 1, 0}}
		once, often := newBoard(), newBoard()
		_, err := once.writer().Launch(Step{Writes: []Span{{Chains: chains, To: n, Table: table}}})
		require.NoError(t, err)
		w := often.writer()
		for at := 0; at < n; {
			to := rapid.IntRange(at+1, n).Draw(t, "to")
			_, err := w.Launch(Step{
				Reads:  []Span{{Chains: chains, To: at, Table: table}},
				Writes: []Span{{Chains: chains, From: at, To: to, Table: table}},
			})
			require.NoError(t, err)
			at = to
		}
		once.runAll()
		often.runAll()
		require.Empty(t, w.Problems())
		require.Len(t, often.pages, len(once.pages))
		for slot, page := range once.pages {
			require.True(t, bytes.Equal(page, often.pages[slot]), slot)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	wide := windows.Pool{KVHeads: 8, HeadDim: 128, DType: windows.Float16, Layers: []int{0, 1, 2, 3},
		TokensPerBlock: 32}
	narrow := windows.Pool{KVHeads: 1, HeadDim: 2, DType: windows.FP8, Layers: []int{0},
		TokensPerBlock: 64}
	for _, c := range []struct {
		name string
		pool windows.Pool
	}{{"wide", wide}, {"narrow", narrow}} {
		l := NewLayout(c.pool)
		page := make([]byte, c.pool.PageBytes())
		chains := make([]Chain, c.pool.TokensPerBlock)
		for i := range chains {
			chains[i] = Chain(i)
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(c.pool.PageBytes())
			for b.Loop() {
				l.Write(page, 0, chains...)
			}
		})
		b.Run(c.name+" verify", func(b *testing.B) {
			b.SetBytes(c.pool.PageBytes())
			for b.Loop() {
				if l.Verify(page, 0, chains...) != nil {
					b.Fatal("wrong bytes")
				}
			}
		})
	}
}
