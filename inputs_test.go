package kvactor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor"
	"github.com/kvactor/kvactor/gpu/attention"
	"github.com/kvactor/kvactor/gpu/sim"
	"github.com/kvactor/kvactor/windows"
)

// kernelCache keeps rows where Inputs say: it writes by slots, and reads by block tables or by
// FlashInfer's page lists.
type kernelCache struct {
	in         *kvactor.Inputs
	pool       int
	tpb        int
	flashInfer bool
	rows       map[int64][2][]float32 // by slot and part, of one head
}

func (c *kernelCache) Write(row int, part attention.Part, _, position int, x []float32) {
	at := int(c.in.QueryStarts[row]) + position - int(c.in.CachedTokens[row])
	slot := c.in.Pools[c.pool].Slots[at]
	kept := c.rows[slot]
	kept[part] = append([]float32(nil), x...)
	c.rows[slot] = kept
}

func (c *kernelCache) Read(
	_ []float32, row int, part attention.Part, _, position, _ int,
) ([]float32, int) {
	pool := &c.in.Pools[c.pool]
	page := pool.BlockTables[row*pool.Stride+position/c.tpb]
	if c.flashInfer {
		page = pool.PageIndices[int(pool.PageIndptr[row])+position/c.tpb]
	}
	return c.rows[int64(page)*int64(c.tpb)+int64(position%c.tpb)][part], 1
}

// numbers are the query, key, and value of a token, a function of what stands before it.
func numbers(history []kvactor.Token) []float32 {
	seed := uint32(7)
	for _, t := range history {
		seed = seed*1664525 + uint32(t) + 1013904223
	}
	row := make([]float32, 3*8)
	for d := range row {
		seed = seed*1664525 + 1013904223
		row[d] = float32(seed>>8)/float32(1<<24) - 0.5
	}
	return row
}

// attended computes what a kernel that takes these inputs gives for every new token.
func attended(
	t *testing.T, in *kvactor.Inputs, cache attention.Cache, texts [][]kvactor.Token,
) []float32 {
	t.Helper()
	layer := attention.Layer{Heads: 1, KVHeads: 1, HeadDim: 8}
	meta := attention.Metadata{NumContexts: in.NumContexts}
	var qkv []float32
	for row := range in.NumRows {
		s := attention.Sequence{Prompt: int(in.PromptLengths[row]), Cached: int(in.CachedTokens[row]),
			New: int(in.QueryLengths[row])}
		meta.Sequences = append(meta.Sequences, s)
		for i := range s.New {
			qkv = append(qkv, numbers(texts[row][:s.Cached+i+1])...)
		}
	}
	var plan attention.Plan
	require.NoError(t, plan.Prepare(meta))
	workers := attention.NewWorkers(1)
	defer workers.Close()
	out := make([]float32, in.NumTokens*8)
	require.NoError(t, attention.NewKernel(workers).Forward(&layer, &plan, cache,
		attention.Packed(qkv, &layer), out))
	return out
}

// whole computes the last tokens of a text without pages.
func whole(t *testing.T, text []kvactor.Token, last int) []float32 {
	t.Helper()
	n := int32(len(text))
	in := kvactor.Inputs{
		NumRows: 1, NumTokens: len(text), NumContexts: 1,
		PromptLengths: []int32{n}, CachedTokens: []int32{0}, QueryLengths: []int32{n},
	}
	out := attended(t, &in, attention.NewContiguous(1, 1, len(text), 8, windows.Float32),
		[][]kvactor.Token{text})
	return out[(len(text)-last)*8:]
}

// A batch of a generation and of a prompt with beams, then of its beams: what a kernel computes
// from Inputs is what it computes without pages, by block tables and by page lists.
func TestInputsForKernels(t *testing.T) {
	for _, flashInfer := range []bool{false, true} {
		e := open(t, 40)
		var in kvactor.Inputs
		cache := &kernelCache{in: &in, tpb: e.Pools()[0].TokensPerBlock, flashInfer: flashInfer,
			rows: map[int64][2][]float32{}}
		texts := map[*kvactor.Sequence][][]kvactor.Token{}
		step := func(queries ...kvactor.Query) {
			in.Fill(e, queries)
			var rows [][]kvactor.Token
			var want []float32
			var commits []kvactor.Step
			for row := range in.NumRows {
				q := queries[in.Queries[row]]
				text := texts[q.Sequence][in.Beams[row]][:in.SequenceLengths[row]]
				rows, want = append(rows, text), append(want, whole(t, text, int(in.QueryLengths[row]))...)
				assert.Equal(t, q.Sequence.Slot(), in.LocalSlots[row])
			}
			assert.Equal(t, want, attended(t, &in, cache, rows))
			for _, q := range queries {
				commits = append(commits, kvactor.Step{Sequence: q.Sequence, Computed: q.Sequence.Len()})
			}
			require.NoError(t, e.Commit(ctx, commits))
		}
		admit := func(width int, tokens ...kvactor.Token) *kvactor.Sequence {
			s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: tokens, BeamWidth: width})
			require.NoError(t, err)
			for range max(width, 1) {
				texts[s] = append(texts[s], append([]kvactor.Token(nil), tokens...))
			}
			return s
		}
		one := admit(0, 1, 2, 3, 4, 5)
		step(kvactor.Query{Sequence: one})
		require.NoError(t, one.Append(ctx, 6))
		texts[one][0] = append(texts[one][0], 6)
		beams := admit(3, 1, 2, 3, 4, 9, 9, 9, 8) // reuses a block of the first
		require.Equal(t, 4, beams.Reused())
		step(kvactor.Query{Sequence: one}, kvactor.Query{Sequence: beams})
		assert.Equal(t, 1, in.NumContexts)
		assert.Equal(t, 4, in.NumContextTokens)
		assert.Equal(t, []int32{1, 0}, in.Queries)
		assert.Equal(t, []int32{0, 0}, in.Beams, "a prompt with beams is computed once")
		assert.Equal(t, []int32{8, 6}, in.SequenceLengths)
		assert.Equal(t, []int32{4, 5}, in.CachedTokens)
		assert.Equal(t, []int32{8, 5}, in.PromptLengths)

		chosen := []kvactor.BeamStep{{Parent: 0, Token: 20}, {Parent: 0, Token: 21},
			{Parent: 0, Token: 22}}
		require.NoError(t, e.Append(ctx, []kvactor.Step{{Sequence: beams, Beams: chosen}}))
		for b := range 3 {
			texts[beams][b] = append(texts[beams][b], kvactor.Token(20+b))
		}
		step(kvactor.Query{Sequence: beams})
		assert.Zero(t, in.NumContexts)
		assert.Equal(t, []int32{0, 1, 2}, in.Beams)
		for row := range 3 {
			// Tables follow the parents, so the indirection of a beam is itself.
			assert.Equal(t, []int32{int32(row), int32(row)}, in.AppendCacheIndirection(nil, row, 2))
		}
		require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: one}, {Sequence: beams}}))
		shut(t, e)
	}
}

// FlashInfer's lists have no page that a window has passed, and say how full the last one is.
func TestInputsBehindAWindow(t *testing.T) {
	device, err := sim.New(sim.Config{MemoryBytes: 1 << 18})
	require.NoError(t, err)
	cache := kvactor.DefaultCache()
	cache.TokensPerBlock, cache.MaxAttentionWindow = 4, []int{4, 64}
	e, err := kvactor.Open(kvactor.Config{
		Model: kvactor.Model{Layers: 2, KVHeads: []int{1, 1}, HeadDim: 8, DType: kvactor.Float16,
			MaxSeqLen: 64},
		Cache: cache, Device: device, Pages: []kvactor.PageCounts{{Primary: 20}, {Primary: 20}},
	})
	require.NoError(t, err)
	defer shut(t, e)
	s, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: make([]kvactor.Token, 14), ChunkTokens: 8})
	require.NoError(t, err)
	require.NoError(t, s.Commit(ctx, 8, kvactor.Ticket{}))
	require.NoError(t, s.Commit(ctx, 12, kvactor.Ticket{}))
	var in kvactor.Inputs
	in.Fill(e, []kvactor.Query{{Sequence: s}})
	for p, pool := range e.Pools() {
		var want []kvactor.PageID
		for _, page := range s.Tables()[p][0] {
			if page != kvactor.NoPage {
				want = append(want, page)
			}
		}
		assert.Equal(t, want, in.Pools[p].PageIndices, pool.Name)
		assert.Equal(t, []int32{0, int32(len(want))}, in.Pools[p].PageIndptr)
		assert.Equal(t, []int32{2}, in.Pools[p].LastPageLengths)
	}
	assert.Less(t, len(in.Pools[0].PageIndices), len(in.Pools[1].PageIndices))
	require.NoError(t, s.Release(ctx, kvactor.Ticket{}))
}

// A graph that was captured once finds batches of any size at the same addresses.
func TestReservedInputs(t *testing.T) {
	e := open(t, 40)
	defer shut(t, e)
	var in kvactor.Inputs
	in.Reserve(e, 3, 8, 5)
	a, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}})
	require.NoError(t, err)
	b, err := e.Admit(ctx, kvactor.AdmitRequest{Tokens: []kvactor.Token{7, 8}})
	require.NoError(t, err)
	in.Fill(e, []kvactor.Query{{Sequence: a}, {Sequence: b}})
	pool := &in.Pools[0]
	lengths, table, slot, indptr := &in.SequenceLengths[0], &pool.BlockTables[0], &pool.Slots[0],
		&pool.PageIndptr[0]
	assert.Equal(t, []int32{5, 2, 0}, in.SequenceLengths)
	assert.Equal(t, []int32{0, 5, 7, 7}, in.QueryStarts)
	assert.Len(t, in.Positions, 8)
	assert.Equal(t, []int32{0, 1, -1}, in.LocalSlots)
	assert.Equal(t, 5, pool.Stride)
	assert.Len(t, pool.BlockTables, 15)
	assert.Equal(t, kvactor.NoPage, pool.BlockTables[14])
	assert.EqualValues(t, -1, pool.Slots[7])
	assert.Equal(t, []int32{0, 2, 3, 3}, pool.PageIndptr)
	assert.Equal(t, []int32{1, 2, 0}, pool.LastPageLengths)

	in.Fill(e, []kvactor.Query{{Sequence: b}})
	assert.Equal(t, 1, in.NumRows)
	assert.Equal(t, 2, in.NumTokens)
	assert.Equal(t, []int32{2, 0, 0}, in.SequenceLengths)
	pool = &in.Pools[0]
	assert.Same(t, lengths, &in.SequenceLengths[0])
	assert.Same(t, table, &pool.BlockTables[0])
	assert.Same(t, slot, &pool.Slots[0])
	assert.Same(t, indptr, &pool.PageIndptr[0])
	assert.Zero(t,
		testing.AllocsPerRun(10, func() { in.Fill(e, []kvactor.Query{{Sequence: a}, {Sequence: b}}) }))

	in.Reserve(e, 1, 8, 5)
	assert.Panics(t, func() { in.Fill(e, []kvactor.Query{{Sequence: a}, {Sequence: b}}) })
	in.Reserve(e, 2, 6, 5)
	assert.Panics(t, func() { in.Fill(e, []kvactor.Query{{Sequence: a}, {Sequence: b}}) })
	in.Reserve(e, 2, 8, 1)
	assert.Panics(t, func() { in.Fill(e, []kvactor.Query{{Sequence: a}, {Sequence: b}}) })
	require.NoError(t, e.Release(ctx, []kvactor.Step{{Sequence: a}, {Sequence: b}}))
}

// Inputs of a sequence that has ended would name pages of others.
func TestInputsRefuseWhatDoesNotRun(t *testing.T) {
	e, other := small(), small()
	defer closeEngine(e)
	defer closeEngine(other)
	prompt := kvactor.AdmitRequest{Tokens: []kvactor.Token{1, 2, 3, 4, 5}}
	foreign, err := other.Admit(ctx, prompt)
	require.NoError(t, err)
	ended, err := e.Admit(ctx, prompt)
	require.NoError(t, err)
	require.NoError(t, ended.Release(ctx, kvactor.Ticket{}))

	for want, s := range map[string]*kvactor.Sequence{
		"kvactor: query 0 has no sequence":                                           nil,
		"kvactor: query 0: sequence " + ended.ID().String() + " has been released":   ended,
		"kvactor: query 0: sequence " + foreign.ID().String() + " of another engine": foreign,
	} {
		var in kvactor.Inputs
		assert.PanicsWithValue(t, want, func() { in.Fill(e, []kvactor.Query{{Sequence: s}}) })
	}
	require.NoError(t, foreign.Release(ctx, kvactor.Ticket{}))
}
