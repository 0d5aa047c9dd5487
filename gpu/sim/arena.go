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

// arena is the memory of one pool in one tier. A page is made when it is first touched and
// stays where it is, so that HostBytes stays valid while the arena grows.
type arena struct {
	pageBytes int64
	pages     [][]byte // nil: not touched yet
	poison    bool     // pages are filled when they are made
}

// newArena makes an arena of so many pages. None is allocated yet: a pool of gigabytes of which
// a test touches a few pages costs a few pages.
func newArena(pageBytes int64, pages int, poison bool) arena {
	return arena{pageBytes: pageBytes, pages: make([][]byte, pages), poison: poison}
}

// overMemory makes an arena over memory that the host application gives, with
// what is in it.
func overMemory(pageBytes int64, pages int, memory []byte) arena {
	a := newArena(pageBytes, pages, false)
	for i := range a.pages {
		// The capacity ends with the page, so that an append cannot reach the next one.
		lo, hi := int64(i)*pageBytes, int64(i+1)*pageBytes
		a.pages[i] = memory[lo:hi:hi]
	}
	return a
}

// resize changes the number of pages at the end. Pages that come are new, also
// those that were there before.
func (a *arena) resize(pages int) {
	old := a.pages
	a.pages = make([][]byte, pages)
	copy(a.pages, old)
}

// page returns the bytes of a page.
// The page must be one of the arena: callers have checked the slot, see memory.checkRange.
func (a *arena) page(p messages.PageID) []byte {
	if a.pages[p] == nil {
		a.pages[p] = make([]byte, a.pageBytes)
		if a.poison {
			inprocess.Fill(a.pages[p], PoisonNew)
		}
	}
	return a.pages[p]
}
