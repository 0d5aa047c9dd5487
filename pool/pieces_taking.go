package pool

import (
	"github.com/kvactor/kvactor/internal/invariants"
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// The pages of a piece are in a list, so a processor knows the next one only when it has read the record of the one before, unless it
// guesses, as in takeEach. Where they do not adjoin the guess is wrong, which takes as long as reading some records from the second cache.
// So a piece that is taken as a whole is taken from both ends, and two records are read at a time:
//
//	deepest block │ taken ──▶      ◀── taken │ first block
//
// In a pool beyond the caches the assembly of amd64 gives the pages of a long piece hints, which lead towards its middle from either end.

const (
	// bothEndsPages is up to how many pages a piece is taken from both ends even if they adjoin.
	bothEndsPages = 32
	// pieceLead is how many places ahead a hint of a page of a piece leads.
	pieceLead = 24
)

// bothEnds tells whether a piece of n pages is taken from both ends: if it is short, or its pages do not adjoin.
func bothEnds(head, tail int32, n int) bool {
	distance := int(tail - head)
	return n <= bothEndsPages || max(distance, -distance) > 2*n
}

// pieceHints says where the hints of pages lead that an operation appends to the list of their piece: see pieceRun.lead and turn. The
// operation has so many ids, and those of the piece, which has so many pages, are the last of them.
func pieceHints(ids, pages int) (lead, turn int) {
	lead = pieceLead
	if invariants.Enabled {
		lead = 2 // simulations have short pieces
	}
	pages = min(pages, ids)
	if pages <= 2*lead {
		return 0, 0
	}
	return lead, ids - pages + (pages-1)/2
}

// takeBothEnds is takeEach for the whole list of a piece, which has as many pages as there are ids or fewer: those that are used are not
// in it. It returns the number of pages.
func takeBothEnds(pages []page, head, tail int32, ids []messages.PageID, evicted []protocol.Victim, record *page) int {
	evicted = evicted[:len(ids)]
	middle, k := takePairs(pages, head, tail, ids, evicted, record)
	behind := len(ids) - k // the first page that was taken from the tail
	if middle != none {
		g := &pages[middle]
		g.fillVictim(middle, &evicted[k])
		ids[k] = messages.PageID(middle)
		*g = *record
		k++
	}
	// Those from the tail follow those from the head.
	if k < behind {
		copy(ids[k:], ids[behind:])
		copy(evicted[k:], evicted[behind:])
	}
	return k + len(ids) - behind
}
