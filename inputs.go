package kvactor

import (
	"fmt"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/windows"
)

// Query is the part of one sequence in a kernel's batch: the kernel computes the tokens
// from Sequence.Computed on, and writes their keys and values to the pages.
type Query struct {
	Sequence *Sequence
	// To is the number of tokens that are computed when the kernel has run: the end of a
	// chunk of the prompt. 0 is Sequence.Len, all of them.
	To int
}

// end is To with its default.
func (q *Query) end() int {
	if q.To == 0 {
		return q.Sequence.length
	}
	return q.To
}

// wrong says what is wrong with a query; "" if nothing is.
func (q *Query) wrong(e *Engine) string {
	switch s := q.Sequence; {
	case s == nil:
		return " has no sequence"
	case s.engine != e:
		return fmt.Sprintf(": sequence %v of another engine", s.id)
	case s.tokens == nil:
		return fmt.Sprintf(": sequence %v has been released", s.id)
	case q.end() < s.computed || q.end() > s.length:
		return fmt.Sprintf(": tokens [%d, %d) of sequence %v with %d", s.computed, q.end(), s.id,
			s.length)
	default:
		return ""
	}
}

// context tells whether the query computes tokens of the prompt. All beams share the prompt, so
// it is computed once.
func (q *Query) context() bool {
	s := q.Sequence
	return s.computed < s.prompt && (s.width() == 1 || q.end() <= s.prompt)
}

// rows is the number of the query's rows.
func (q *Query) rows() int {
	if q.context() {
		return 1
	}
	return q.Sequence.width()
}

// Inputs describe a batch as paged attention kernels take it. The rows of contexts, which compute
// tokens of a prompt, come before those of generations; otherwise rows are in the order of the
// queries. A context has one row, a generation one for each beam. The slices are used again by
// the next Fill.
//
// Other metadata has the same numbers under these names:
//
//	TensorRT-LLM    num_contexts, num_ctx_tokens, seq_lens (QueryLengths), kv_lens
//	                (SequenceLengths), num_cached_tokens_per_seq (CachedTokens), prompt_lens
//	vLLM            query_start_loc (QueryStarts), seq_lens (SequenceLengths), block_table,
//	                slot_mapping
//	FlashAttention  cu_seqlens_q (QueryStarts), seqused_k (SequenceLengths), block_table
//	FlashInfer      qo_indptr (QueryStarts), paged_kv_indptr, paged_kv_indices,
//	                paged_kv_last_page_len
type Inputs struct {
	Pools            []PoolInputs // by PoolID
	NumRows          int          // without padding
	NumTokens        int          // new tokens of all rows, without padding
	NumContexts      int          // leading rows that are contexts
	NumContextTokens int          // new tokens of these
	Queries          []int32      // [row]: index of its query
	Beams            []int32      // [row]: its beam, 0 for contexts
	SequenceLengths  []int32      // [row]: tokens that the last new token sees, itself included: To
	QueryLengths     []int32      // [row]: new tokens
	CachedTokens     []int32      // [row]: tokens whose keys and values are in the pages already
	PromptLengths    []int32      // [row]: tokens of the sequence's prompt
	LocalSlots       []int32      // [row]: Slot of the sequence, −1 for rows that pad
	// [row+1]: the row's first new token among all; the last is their number
	QueryStarts []int32
	Positions   []int32  // [new token]: its position in its sequence
	Ready       []Ticket // what the kernel must wait for

	order    []int32 // indices of the queries in the order of the rows
	reserved struct{ rows, tokens, blocks int }
}

// PoolInputs are the page tables of a batch in one pool.
type PoolInputs struct {
	// BlockTables has a row of Stride blocks for each row of the batch, as integers of 32 bits: block
	// b of row r is BlockTables[r*Stride+b], NoPage behind the end of a row, and where the window has
	// passed.
	BlockTables []PageID
	Stride      int
	// Slots says for each new token where its keys and values are written: page ×
	// tokens per block + the token's place in the block, or −1 if it has no page.
	// Pools whose pages do not hold the decoder's tokens, of cross attention and of
	// recurrent states, have none.
	Slots []int64
	// PageIndptr, PageIndices and LastPageLengths are the same tables as FlashInfer takes them:
	// PageIndices[PageIndptr[r]:PageIndptr[r+1]] are the pages of row r that have tokens, without
	// those that its window has passed, and LastPageLengths[r] is the number of tokens in the last
	// of them. The last of these tokens is the row's last new token, so without sinks the first
	// one is at position SequenceLengths[r] less the number of tokens in the row's pages. In a pool
	// with a window, pages of the sink (SinkTokenLength) come before a gap. Pools without Slots
	// have none.
	PageIndptr      []int32 // [row+1]
	PageIndices     []PageID
	LastPageLengths []int32 // [row]
}

// Reserve fixes the shape of what later Fills make, for graphs that are captured once: every slice
// keeps its address, each row has so many blocks, and rows and tokens that a batch lacks are
// padded. A row that pads has length 0 and no page, a token that pads has slot −1. Fill panics if a
// batch is larger.
func (in *Inputs) Reserve(e *Engine, rows, tokens, blocks int) {
	in.reserved.rows, in.reserved.tokens, in.reserved.blocks = rows, tokens, blocks
	for _, of := range in.byRow() {
		*of = make([]int32, 0, rows)
	}
	in.QueryStarts, in.Positions = make([]int32, 0, rows+1), make([]int32, 0, tokens)
	in.Pools = make([]PoolInputs, len(e.pools))
	for p := range in.Pools {
		in.Pools[p] = PoolInputs{BlockTables: make([]PageID, 0, rows*blocks)}
		if e.pools[p].Kind == windows.KindAttention {
			in.Pools[p].Slots = make([]int64, 0, tokens)
			in.Pools[p].PageIndptr, in.Pools[p].LastPageLengths = make([]int32, 0, rows+1),
				make([]int32, 0, rows)
			in.Pools[p].PageIndices = make([]PageID, 0, rows*blocks)
		}
	}
}

// byRow are the slices that have a number for each row.
func (in *Inputs) byRow() [7]*[]int32 {
	return [...]*[]int32{
		&in.Queries, &in.Beams, &in.SequenceLengths, &in.QueryLengths,
		&in.CachedTokens, &in.PromptLengths, &in.LocalSlots,
	}
}

// Fill describes the batch of the given queries. It panics if a sequence is not one of the
// engine's that run, or To is not within it: less than what is computed, or more than there is.
// It allocates nothing once the slices have grown; the cost is linear in table entries and new
// tokens.
func (in *Inputs) Fill(e *Engine, queries []Query) {
	for _, of := range in.byRow() {
		*of = (*of)[:0]
	}
	in.QueryStarts, in.Positions, in.Ready = append(in.QueryStarts[:0], 0), in.Positions[:0],
		in.Ready[:0]
	for i := range queries {
		q := &queries[i]
		if wrong := q.wrong(e); wrong != "" {
			panic(fmt.Sprintf("kvactor: query %d%s", i, wrong))
		}
		in.Ready = append(in.Ready, q.Sequence.ready...)
	}
	in.sort(queries)
	for _, i := range in.order {
		in.addRows(&queries[i], i)
	}
	in.NumRows, in.NumTokens = len(in.Queries), len(in.Positions)
	if most := &in.reserved; most.rows > 0 {
		if in.NumRows > most.rows || in.NumTokens > most.tokens {
			panic(fmt.Sprintf("kvactor: %d rows and %d tokens in inputs reserved for %d and %d",
				in.NumRows, in.NumTokens, most.rows, most.tokens))
		}
		in.pad()
	}
	for len(in.Pools) < len(e.pools) {
		in.Pools = append(in.Pools, PoolInputs{})
	}
	in.Pools = in.Pools[:len(e.pools)]
	for p := range in.Pools {
		in.fillPool(queries, &e.pools[p], p)
	}
}

// sort puts contexts first, and counts them.
func (in *Inputs) sort(queries []Query) {
	in.order, in.NumContexts, in.NumContextTokens = in.order[:0], 0, 0
	for _, contexts := range []bool{true, false} {
		for i := range queries {
			q := &queries[i]
			if q.context() != contexts {
				continue
			}
			in.order = append(in.order, int32(i))
			if contexts {
				in.NumContexts++
				in.NumContextTokens += q.end() - q.Sequence.computed
			}
		}
	}
}

// addRows adds the rows of a query.
func (in *Inputs) addRows(q *Query, index int32) {
	from, to := q.Sequence.computed, q.end()
	for beam := range q.rows() {
		in.Queries, in.Beams = append(in.Queries, index), append(in.Beams, int32(beam))
		in.SequenceLengths = append(in.SequenceLengths, int32(to))
		in.QueryLengths = append(in.QueryLengths, int32(to-from))
		in.CachedTokens = append(in.CachedTokens, int32(from))
		in.PromptLengths = append(in.PromptLengths, int32(q.Sequence.prompt))
		in.LocalSlots = append(in.LocalSlots, q.Sequence.slot)
		for position := from; position < to; position++ {
			in.Positions = append(in.Positions, int32(position))
		}
		in.QueryStarts = append(in.QueryStarts, int32(len(in.Positions)))
	}
}

// pad fills up what is by row and by token.
func (in *Inputs) pad() {
	rows := in.reserved.rows - in.NumRows
	for _, of := range in.byRow() {
		*of = appendCopies(*of, rows, 0)
	}
	in.LocalSlots = appendCopies(in.LocalSlots[:in.NumRows], rows, -1)
	in.QueryStarts = appendCopies(in.QueryStarts, rows, int32(in.NumTokens))
	in.Positions = appendCopies(in.Positions, in.reserved.tokens-in.NumTokens, 0)
}

// appendCopies appends a value so many times.
func appendCopies[T any](list []T, times int, value T) []T {
	for range times {
		list = append(list, value)
	}
	return list
}

// AppendCacheIndirection appends TensorRT-LLM's cache_indirection of one row: the row's own beam,
// once for each of so many tokens. The table of a beam has the pages of its whole history, also of
// what came before it was made from another beam.
func (in *Inputs) AppendCacheIndirection(to []int32, row, tokens int) []int32 {
	return appendCopies(to, tokens, in.Beams[row])
}

// Accesses lists the pages that a kernel with these inputs reads, and those that it writes, for
// gpu/check and for devices whose kernels are written in Go. A kernel on a real device has the
// block tables instead. A page with old and new tokens is in writes alone. Pages of cross attention
// and of recurrent states are not listed, because the model decides which kernel writes them. A
// host under gpu/check adds them: otherwise the checker reports that the engine copies pages that
// nothing has written.
func (in *Inputs) Accesses(e *Engine) (reads, writes []gpu.Access) {
	handles := e.below.DevicePools()
	for p := range in.Pools {
		tpb := e.pools[p].TokensPerBlock
		if e.pools[p].Kind != windows.KindAttention {
			continue
		}
		for row := range in.SequenceLengths {
			to := int(in.SequenceLengths[row])
			from := to - int(in.QueryStarts[row+1]-in.QueryStarts[row])
			for block, page := range in.Pools[p].row(row) {
				access := gpu.Access{Slot: gpu.Slot{Pool: handles[p], Tier: Primary, Page: page}}
				switch {
				case page == NoPage || block*tpb >= to: // a window has passed, or for later tokens
				case block < from/tpb:
					reads = append(reads, access)
				default:
					writes = append(writes, access)
				}
			}
		}
	}
	return reads, writes
}

// row is the block table of a row.
func (in *PoolInputs) row(row int) []PageID {
	return in.BlockTables[row*in.Stride : (row+1)*in.Stride]
}

// fillPool describes the batch in one pool.
func (in *Inputs) fillPool(queries []Query, shape *Pool, p int) {
	pool := &in.Pools[p]
	pool.Stride = in.reserved.blocks
	for i := range queries {
		for _, table := range queries[i].Sequence.tables[p] {
			pool.Stride = max(pool.Stride, len(table))
		}
	}
	if in.reserved.rows > 0 && pool.Stride > in.reserved.blocks {
		panic(fmt.Sprintf("kvactor: %d blocks in inputs reserved for %d", pool.Stride,
			in.reserved.blocks))
	}
	pool.BlockTables, pool.Slots = pool.BlockTables[:0], pool.Slots[:0]
	pool.PageIndptr, pool.PageIndices = pool.PageIndptr[:0], pool.PageIndices[:0]
	pool.LastPageLengths = pool.LastPageLengths[:0]
	if shape.Kind == windows.KindAttention {
		pool.PageIndptr = append(pool.PageIndptr, 0)
	}
	for row := range in.NumRows {
		q := &queries[in.Queries[row]]
		table := q.Sequence.table(p, int(in.Beams[row]))
		pool.BlockTables = append(pool.BlockTables, table...)
		pool.BlockTables = appendCopies(pool.BlockTables, pool.Stride-len(table), NoPage)
		if shape.Kind == windows.KindAttention {
			pool.addRow(table, q.Sequence.computed, q.end(), shape.TokensPerBlock)
		}
	}
	if in.reserved.rows > 0 {
		pool.pad(in.reserved.rows-in.NumRows, in.reserved.tokens-in.NumTokens,
			shape.Kind == windows.KindAttention)
	}
}

// addRow adds the slots of the tokens in [from, to), and the pages of those before to.
func (in *PoolInputs) addRow(table []PageID, from, to, tokensPerBlock int) {
	for position := from; position < to; position++ {
		in.Slots = append(in.Slots, slot(table, position, tokensPerBlock))
	}
	for b, page := range table {
		if page != NoPage && b*tokensPerBlock < to {
			in.PageIndices = append(in.PageIndices, page)
		}
	}
	in.PageIndptr = append(in.PageIndptr, int32(len(in.PageIndices)))
	in.LastPageLengths = append(in.LastPageLengths, int32((to-1)%tokensPerBlock+1))
}

// pad adds rows without pages and tokens without slots.
func (in *PoolInputs) pad(rows, tokens int, attention bool) {
	in.BlockTables = appendCopies(in.BlockTables, rows*in.Stride, NoPage)
	if attention {
		in.PageIndptr = appendCopies(in.PageIndptr, rows, int32(len(in.PageIndices)))
		in.LastPageLengths = appendCopies(in.LastPageLengths, rows, 0)
		in.Slots = appendCopies(in.Slots, tokens, -1)
	}
}

// slot is where the keys and values of the token at a position are written.
func slot(table []PageID, position, tokensPerBlock int) int64 {
	block := position / tokensPerBlock
	if block >= len(table) || table[block] == NoPage {
		return -1
	}
	return int64(table[block])*int64(tokensPerBlock) + int64(position%tokensPerBlock)
}

// width is the number of beams.
func (s *Sequence) width() int { return len(s.tables[0]) }

// table is the page table of a beam; the cross pool has one for all.
func (s *Sequence) table(pool, beam int) []PageID {
	return s.tables[pool][min(beam, len(s.tables[pool])-1)]
}
