package sequence

import (
	"github.com/kvactor/kvactor/messages"
)

// poolTables is what a sequence holds in one pool.
type poolTables struct {
	beams [][]messages.PageID // a table for each beam; one for all beams in a cross pool
	// windowStart: the blocks before it, but for the sink, have left the window.
	// Their entries are NoPage, and no other entry is.
	windowStart BlockIndex
	reserve     PageCount // counted in Arena.reserved; 0 without chunk
}

// pageTables are the tables of a sequence in all pools.
type pageTables struct {
	pools []poolTables
	view  [][]messages.PageID // scratch of View
	// working is the scratch of WorkingPages.
	working []messages.PageID
}

// Table is the page table of the first beam in a pool.
func (s *pageTables) Table(pool int) []messages.PageID { return s.pools[pool].beams[0] }

// Tables are the page tables of all beams in a pool.
func (s *pageTables) Tables(pool int) [][]messages.PageID { return s.pools[pool].beams }

// SetTable replaces the table of the first beam.
func (s *pageTables) SetTable(pool int, table []messages.PageID) { s.pools[pool].beams[0] = table }

// SetTables replaces the tables of all beams.
func (s *pageTables) SetTables(pool int, tables [][]messages.PageID) {
	s.pools[pool].beams = tables
}

// Blocks is the number of entries of the tables in the first pool, which has the
// shortest: chunks shorten the tables of limited pools, and those come first. Without
// pools of tokens it is the number of blocks of the tokens.
func (s *Sequence) Blocks() BlockIndex {
	if s.arena.tokenPools == 0 {
		return s.arena.blocks(s.Length())
	}
	return BlockIndex(len(s.pools[0].beams[0]))
}

// View is the tables of the first beam by pool, for one message to the tree.
func (s *pageTables) View() [][]messages.PageID {
	s.view = s.view[:0]
	for p := range s.pools {
		s.view = append(s.view, s.pools[p].beams[0])
	}
	return s.view
}

// CopyTables copies the tables for a host: one for each beam that it knows of, and
// one in a cross pool.
func (s *Sequence) CopyTables(into messages.Tables) messages.Tables {
	into = Reopen(into[:0], len(s.pools))
	for p := range s.pools {
		tables, n := s.pools[p].beams, s.Beams()
		// Beams share the table of a cross pool, and a model with states has one beam.
		if p >= s.arena.tokenPools {
			n = 1
		}
		into[p] = Reopen(into[p][:0], n)
		for b := range into[p] {
			into[p][b] = append(into[p][b], tables[min(b, len(tables)-1)]...)
		}
	}
	return into
}

// Clear empties the tables of a sequence that is lost, in all pools, and ends its
// reserve. The caller has dropped the references, or knows that the pages are gone.
func (s *Sequence) Clear() {
	for p := range s.pools {
		for b := range s.pools[p].beams {
			s.pools[p].beams[b] = s.pools[p].beams[b][:0]
		}
	}
	s.EndReserve()
}

// LeavingWindow is the range of blocks of a pool that leave the window when n
// tokens are computed; it is empty if from ≥ to.
func (s *Sequence) LeavingWindow(pool int, n TokenCount) (from, to BlockIndex) {
	if s.arena.keepsAll(pool) {
		return 0, 0
	}
	held := &s.pools[pool]
	from = max(held.windowStart, BlockIndex(s.arena.pools[pool].SinkBlocks()))
	return from, min(s.arena.firstKept(pool, n), BlockIndex(len(held.beams[0])))
}

// Covered tells whether pages that the sequence takes in a pool are covered by its
// reserve there.
func (s *Sequence) Covered(pool int) bool { return s.chunk > 0 && !s.arena.keepsAll(pool) }

// CoveredFrom is the first of some consecutive blocks, the first of which is at
// index from, that is covered by the reserve: those before it were reused.
func (s *Sequence) CoveredFrom(from BlockIndex, blocks int) int {
	return min(max(int(s.reusedBlocks-from), 0), blocks)
}

// EndOfReserve gives the parts of a table whose pages stop being covered when the
// prompt is computed and its reserve ends: those of the sink and those that stay in
// the window when n tokens are computed, both without what was reused.
func (s *Sequence) EndOfReserve(pool int, n TokenCount) (sink, window []messages.PageID) {
	table := s.pools[pool].beams[0]
	_, kept := s.LeavingWindow(pool, n)
	end := min(BlockIndex(s.arena.pools[pool].SinkBlocks()), BlockIndex(len(table)))
	if s.reusedBlocks < end {
		sink = table[s.reusedBlocks:end]
	}
	if from := max(kept, end, s.reusedBlocks); int(from) < len(table) {
		window = table[from:]
	}
	return sink, window
}

// Chunked tells whether the prompt is computed in chunks and not computed yet.
func (s *Sequence) Chunked() bool { return s.chunk > 0 }

// ChunkEnd is how far a commit may reach, and NextChunkEnd how far one may reach
// when n tokens are computed: to the last block boundary within n + chunk, never
// past the prompt.
func (s *Sequence) ChunkEnd() TokenCount { return s.NextChunkEnd(s.computed) }

// NextChunkEnd is described with ChunkEnd.
func (s *Sequence) NextChunkEnd(n TokenCount) TokenCount {
	tpb := TokenCount(s.arena.tokensPerBlock)
	from := n / tpb * tpb
	if s.chunk == 0 || s.chunk >= s.Prompt-from { // not their sum: a chunk may be as long as an int
		return s.Prompt
	}
	return from + s.chunk
}

// ChunkReserve is the pages that a limited pool reserves for a prompt in chunks of
// which so many blocks were reused: the window before the chunk, the chunk and the
// sink, but no more than what is left of the prompt.
func (s *Sequence) ChunkReserve(pool int, reused BlockIndex) PageCount {
	left := PageCount(s.arena.blocks(s.Prompt) - reused)
	return min(left, PageCount(s.arena.pools[pool].PrefillReserve(int(s.chunk))))
}

// setReserve changes the reserve of a pool and the sum over all sequences with it.
func (s *Sequence) setReserve(pool int, n PageCount) {
	held := &s.pools[pool]
	s.arena.reserved[pool] += n - held.reserve
	held.reserve = n
}

// EndReserve ends all reserves: the prompt is computed, or never will be. It is called
// from outside for a sequence that is lost, when pools are rebuilt: what it still holds
// counts like other pages from then on.
func (s *Sequence) EndReserve() {
	s.chunk = 0
	for p := range s.pools {
		s.setReserve(p, 0)
	}
}

// Uncomputed is the part of a table in a pool that a host may write to without asking
// again: the pages of blocks that are not computed to their end.
func (s *Sequence) Uncomputed(pool int, table []messages.PageID) []messages.PageID {
	computed := s.computed
	switch {
	case pool >= s.arena.selfPools:
		computed = s.Input.Computed
	// Every kernel writes the whole state.
	case pool >= s.arena.tokenPools:
		return table
	}
	return table[min(int(s.arena.wholeBlocks(computed)), len(table)):]
}
