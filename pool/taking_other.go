//go:build !amd64

package pool

import (
	"math"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

const fetchedPages = 128

// takePiece is takeEach for the pages of a piece, without a bound. Pages of a piece have no hints: takeFetching takes
// pages that adjoin in fewer instructions.
func takePiece(pages []page, at, _ int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (next int32, n int) {
	if d := pages[at].next - at; d == 1 || d == -1 {
		return takeFetching(pages, at, ids, evicted, record, math.MaxUint64)
	}
	return takeEach(pages, at, ids, evicted, record, math.MaxUint64)
}

// fetchPiece does nothing where it is not implemented.
func fetchPiece(*piece, *page, int, int) {}

// fetchPages does nothing where it is not implemented.
func fetchPages(*page, *page) {}
