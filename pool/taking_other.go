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
func takePiece(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (next int32, n int) {
	if d := pages[at].next - at; d == 1 || d == -1 {
		return takeFetching(pages, at, ids, evicted, record, math.MaxUint64)
	}
	return takeEach(pages, at, ids, evicted, record, math.MaxUint64)
}

// takePairs takes pages from both ends of a list, of which the last ids and victims are, up to the middle: a page that is left, or none.
// It returns how many it took from either end.
func takePairs(pages []page, head, tail int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (middle int32, pairs int) {
	for k := len(ids) - 1; pairs < k && head != tail; k-- {
		g, h := &pages[head], &pages[tail]
		next, prev := g.next, h.prev
		g.fillVictim(head, &evicted[pairs])
		h.fillVictim(tail, &evicted[k])
		ids[pairs], ids[k] = messages.PageID(head), messages.PageID(tail)
		*g, *h = *record, *record
		pairs++
		if next == tail {
			return none, pairs
		}
		head, tail = next, prev
	}
	return head, pairs
}

// fetchPiece does nothing where it is not implemented.
func fetchPiece(*piece, *page, int, int) {}

// fetchPages does nothing where it is not implemented.
func fetchPages(*page, *page) {}
