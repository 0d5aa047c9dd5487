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

// hintShift is where the hint of a page of a piece begins in the word of priority, state and covered. It is half of a page number, with
// which a cache line begins, and fits for eight million pages; those of larger pools name other lines.
//
//nolint:unused // by Go
const hintShift = 10

// takePiece is takeEach for the pages of a piece, without a bound. As soon as two pages adjoin it prefetches those that
// would follow: up to fetchedPages in the first run, later four times as many as the run before had. With fetchedPages for
// each of the runs of 1,000 scattered pages it took twice as long.
//
//go:noescape
func takePiece(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (next int32, n int)

// takePairs takes pages from both ends of a list, of which the last ids and victims are, up to the middle: a page that is left, or none.
// It returns how many it took from either end, and prefetches the records that hints name.
//
//go:noescape
func takePairs(pages []page, head, tail int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (middle int32, pairs int)

// fetchPiece prefetches the record of a piece, and records of pages at a distance of so many bytes.
//
//go:noescape
func fetchPiece(record *piece, first *page, distance, lines int)

// fetchPages prefetches the records of two pages.
//
//go:noescape
func fetchPages(a, b *page)
