package kvactor

import "fmt"

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

// Inputs describe a batch as paged attention kernels take it. Rows are the queries in
// order; one of a sequence with beams has a row for each beam. The slices are used again
// by the next Fill.
type Inputs struct {
	Pools           []PoolInputs // by PoolID
	SequenceLengths []int32      // [row]: tokens that the last new token sees, itself included: To
	QueryStarts     []int32      // [row+1]: index of the row's first new token among those of all rows; the last is their number
	Positions       []int32      // [new token]: its position in its sequence
	Ready           []Ticket     // what the kernel must wait for
}

// PoolInputs are the page tables of a batch in one pool.
type PoolInputs struct {
	// BlockTables has a row of Stride blocks for each row of the batch: block b of row
	// r is BlockTables[r*Stride+b], NoPage behind the end of a row, and where the window
	// has passed.
	BlockTables []int32
	Stride      int
	// Slots says for each new token where its keys and values are written: page ×
	// tokens per block + the token's place in the block, or −1 if it has no page.
	Slots []int64
}

// Fill describes the batch of the given queries. It panics if To of a query is not within
// its sequence: less than what is computed, or more than there is. It allocates nothing
// once the slices have grown; the cost is linear in table entries and new tokens.
func (in *Inputs) Fill(e *Engine, queries []Query) {
	in.SequenceLengths, in.QueryStarts, in.Positions, in.Ready = in.SequenceLengths[:0], append(in.QueryStarts[:0], 0), in.Positions[:0], in.Ready[:0]
	for _, q := range queries {
		from, to := q.Sequence.computed, q.end()
		if from > to || to > q.Sequence.length {
			panic(fmt.Sprintf("kvactor: query [%d, %d) of sequence %v with %d tokens", from, to, q.Sequence.id, q.Sequence.length))
		}
		in.Ready = append(in.Ready, q.Sequence.ready...)
		for range q.Sequence.width() {
			in.SequenceLengths = append(in.SequenceLengths, int32(to))
			for position := from; position < to; position++ {
				in.Positions = append(in.Positions, int32(position))
			}
			in.QueryStarts = append(in.QueryStarts, int32(len(in.Positions)))
		}
	}
	for len(in.Pools) < len(e.pools) {
		in.Pools = append(in.Pools, PoolInputs{})
	}
	in.Pools = in.Pools[:len(e.pools)]
	for p := range in.Pools {
		in.Pools[p].fill(queries, p, e.pools[p].TokensPerBlock)
	}
}

func (in *PoolInputs) fill(queries []Query, pool, tokensPerBlock int) {
	in.Stride = 0
	for _, q := range queries {
		for _, table := range q.Sequence.tables[pool] {
			in.Stride = max(in.Stride, len(table))
		}
	}
	in.BlockTables, in.Slots = in.BlockTables[:0], in.Slots[:0]
	for _, q := range queries {
		for beam := range q.Sequence.width() {
			table := q.Sequence.table(pool, beam)
			for _, page := range table {
				in.BlockTables = append(in.BlockTables, int32(page))
			}
			for range in.Stride - len(table) {
				in.BlockTables = append(in.BlockTables, int32(NoPage))
			}
			for position := q.Sequence.computed; position < q.end(); position++ {
				in.Slots = append(in.Slots, slot(table, position, tokensPerBlock))
			}
		}
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
