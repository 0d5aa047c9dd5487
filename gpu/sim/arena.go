package sim

import (
	"github.com/kvactor/kvactor/gpu/internal/inprocess"
	"github.com/kvactor/kvactor/messages"
)

// Poison bytes: what a page holds before anything has been written to it.
const (
	PoisonNew    = 0xDD // a new page
	PoisonFlight = 0xDB // the destination of a copy that is under way
)

// pieceBytes is the size of an arena's pieces, in whole pages: large enough
// for few of them, small enough that a pool of which little is used stays small.
const pieceBytes = 1 << 20

// arena is the memory of one pool in one tier. Pages lie in pieces that are
// made when a page in them is first touched and stay where they are, so that
// HostBytes stays valid while the arena grows.
//
// Invariants: pieces has a place for each perPiece pages, the last one perhaps in part;
// len(touched) = pages. A touched page has a piece.
type arena struct {
	pageBytes int64
	perPiece  int
	pages     int
	pieces    [][]byte
	touched   []bool // by page: its first bytes have been written
	// poison: pages are filled when they are first touched. Given memory never is.
	poison bool
}

// newArena makes an arena of so many pages. No piece is allocated yet: a pool of
// gigabytes of which a test touches a few pages costs a few pages.
func newArena(pageBytes int64, pages int, poison bool) arena {
	// A pool smaller than a piece takes no more than it has.
	perPiece := max(1, min(pieceBytes/pageBytes, int64(pages)))
	a := arena{pageBytes: pageBytes, perPiece: int(perPiece), poison: poison}
	a.resize(pages)
	return a
}

// overMemory makes an arena over memory that the host application gives, with
// what is in it.
func overMemory(pageBytes int64, pages int, memory []byte) arena {
	// One piece: the memory is the host's, in one place, and the arena must not add to it. A
	// host tier is never resized.
	a := arena{pageBytes: pageBytes, perPiece: max(1, pages), pages: pages, pieces: [][]byte{memory},
		touched: make([]bool, pages)}
	for i := range a.touched {
		a.touched[i] = true
	}
	return a
}

// resize changes the number of pages at the end. Pages that come are new, also
// those that were there before.
func (a *arena) resize(pages int) {
	n := (pages + a.perPiece - 1) / a.perPiece
	// Pieces are made on first touch; here is only the place for them.
	for len(a.pieces) < n {
		a.pieces = append(a.pieces, nil)
	}
	// Otherwise the array would keep the pieces of pages that are gone alive.
	clear(a.pieces[n:])
	a.pieces = a.pieces[:n]
	for len(a.touched) < pages {
		a.touched = append(a.touched, false)
	}
	// A page that comes back is new, and is poisoned again on first touch.
	clear(a.touched[pages:])
	a.touched = a.touched[:pages]
	a.pages = pages
}

// page returns the bytes of a page.
// The page must be one of the arena: callers have checked the slot, see memory.checkRange.
// The first touch allocates and fills; later calls cost an index and a division.
func (a *arena) page(p messages.PageID) []byte {
	i := int(p) / a.perPiece
	if a.pieces[i] == nil {
		a.pieces[i] = make([]byte, int64(a.perPiece)*a.pageBytes)
	}
	lo := int64(int(p)%a.perPiece) * a.pageBytes
	// The capacity ends with the page, so that an append cannot reach the next one.
	b := a.pieces[i][lo : lo+a.pageBytes : lo+a.pageBytes]
	if !a.touched[p] {
		a.touched[p] = true
		if a.poison {
			inprocess.Fill(b, PoisonNew)
		}
	}
	return b
}
