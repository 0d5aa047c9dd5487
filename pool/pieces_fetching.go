package pool

import "github.com/kvactor/kvactor/internal/invariants"

// In a pool beyond the second cache of a processor a victim would wait for the records of its first pages, to which no hints lead. So what
// the next choices are likely to read is prefetched when a request has ended: the record of a piece with its first and last page when it
// is first seen among the last candidates, and then aheadSteps pages from either end.
//
// Prefetching decides nothing. A candidate that has been used since leads to pages that are not needed.

const (
	// aheadPieces is how many of the last candidates are looked at. With eight 16 pages of 100,000 or a million cost 6 % more.
	aheadPieces = 5
	// aheadPlaces is a number of places for pieces by their number. With eight, where most of five pieces share one, 16 pages of a million
	// cost a tenth more.
	aheadPlaces = 32
	// aheadSteps is how many steps are made when a request has ended. With eight all of a piece of 16 pages is prefetched: with four
	// those of a million scattered pages take two and a half times as long. Twelve save nothing more, and all that a pool does for
	// such a request takes 5 % longer.
	aheadSteps = 8
)

// fetcher is how far pages of the last candidates have been prefetched, by place.
type fetcher [aheadPlaces]ahead

// ahead is how far the pages of a piece have been prefetched from either end of its list; none: no further.
type ahead struct{ piece, head, tail int32 }

// newFetcher makes the fetcher of a pool with so many pages: nil for fewer than hintedPages, where prefetching costs more than it saves. Where
// invariants are checked all pools have one, so that simulations of small ones prefetch too.
func newFetcher(pages int) *fetcher {
	if pages < hintedPages && !invariants.Enabled {
		return nil
	}
	return &fetcher{}
}

// fetch goes ahead in what the choices among the last candidates of a front will read.
//
// Each step is one for all candidates, so that the processor waits for their records at the same time. Steps with each choice were
// rejected: they cost a tenth of an eviction of 16 pages.
func (f *fetcher) fetch(s *pieces, front *front) {
	if f == nil {
		return
	}
	for range aheadSteps {
		f.step(s, front)
	}
}

// step prefetches what is next for each of the last candidates.
func (f *fetcher) step(s *pieces, front *front) {
	for k := max(0, front.n-aheadPieces); k < front.n; k++ {
		n := front.list[k].piece
		switch a := &f[n%aheadPlaces]; {
		case a.piece != n:
			*a = s.all[n].fetch(n, s.pages)
		case a.head != none:
			a.goOn(s.pages)
		}
	}
}

// fetch prefetches the record of a piece and the ends of its list, or most of its pages if they adjoin.
func (q *piece) fetch(n int32, pages []page) ahead {
	if !q.cached() {
		return ahead{n, none, none}
	}
	length := q.tail - q.head
	if max(length, -length) > 2*q.pages {
		// The pages lie anywhere: two lines, with the first and the last one.
		fetchPiece(q, &pages[q.head], pageBytes*int(length), 2)
		return ahead{n, q.head, q.tail}
	}
	distance := 2 * pageBytes
	if length < 0 {
		distance = -distance
	}
	fetchPiece(q, &pages[q.head], distance, int(min(q.pages, fetchedPages)+1)/2)
	return ahead{n, none, none}
}

// goOn prefetches the next page from either end, up to the middle. The step before has prefetched the two records that are read here.
func (a *ahead) goOn(pages []page) {
	head, tail := pages[a.head].next, pages[a.tail].prev
	if head == a.tail {
		a.head = none
		return
	}
	// The links of a page that is used are numbers of holders.
	if uint(uint32(head)) >= uint(len(pages)) || uint(uint32(tail)) >= uint(len(pages)) {
		a.head = none
		return
	}
	fetchPages(&pages[head], &pages[tail])
	if a.head, a.tail = head, tail; head == tail {
		a.head = none
	}
}
