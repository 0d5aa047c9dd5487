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
	// Pools whose pages do not hold the decoder's tokens, of cross attention and of
	// recurrent states, have none.
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
		in.Pools[p].fill(queries, &e.pools[p], p)
	}
}

// Accesses lists the pages that a kernel with these inputs reads, and those that it writes,
// for the simulated device and for gpu/check. A kernel on a real device has the block
// tables instead. A page with old and new tokens is in writes alone. Pages of cross
// attention and of recurrent states are not listed: when they are written is the model's.
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
				access := gpu.Access{Slot: gpu.Slot{Pool: handles[p], Tier: Primary, Page: PageID(page)}}
				switch {
				case PageID(page) == NoPage || block*tpb >= to: // the window has passed, or it is for later tokens
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
func (in *PoolInputs) row(row int) []int32 { return in.BlockTables[row*in.Stride : (row+1)*in.Stride] }

func (in *PoolInputs) fill(queries []Query, shape *Pool, pool int) {
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
			if shape.Kind != windows.KindAttention {
				continue
			}
			for position := q.Sequence.computed; position < q.end(); position++ {
				in.Slots = append(in.Slots, slot(table, position, shape.TokensPerBlock))
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
