package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// fetchedPages is how far ahead records of a piece are prefetched: 64 cache lines. With 64 pages taking 256 of 100,000 or
// a million costs a tenth more, with 32 a third more, and without prefetching half as much again: what a
// processor prefetches by itself begins late, and pieces are short. PREFETCHT0 is slower, since fewer
// of them can be under way.
const fetchedPages = 128

// takePiece is takeEach for the pages of a piece, without a bound. As soon as two pages adjoin it prefetches those that
// would follow: up to fetchedPages in the first run, later four times as many as the run before had. With fetchedPages for
// each of the runs of 1,000 scattered pages it took twice as long. A processor has to wait for each of the other pages, as
// the next one is known only when it has been read. If all of a piece is taken, tail is its last page, and records are read
// from there too, so that two waits overlap.
//
//go:noescape
func takePiece(pages []page, at, tail int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (next int32, n int)

// fetchPiece prefetches the record of a piece, and records of pages at a distance of so many bytes.
//
//go:noescape
func fetchPiece(record *piece, first *page, distance, lines int)

// fetchPages prefetches the records of two pages.
//
//go:noescape
func fetchPages(a, b *page)
