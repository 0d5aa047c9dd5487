//go:build !amd64 && !arm64

package pool

import (
	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// takeFetching is takeEach for a pool beyond the caches: with each page it reads the record
// that the page's hint names, so that the record is in the caches when it is taken.
//
// The comparison never holds. It is there so that the compiler cannot leave out the read. A
// hint may name no page, or one that the pool has no more.
func takeFetching(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page, bound protocol.Use) (next int32, n int) {
	evicted = evicted[:len(ids)]
	for n < len(ids) && uint(at) < uint(len(pages)) {
		g := &pages[at]
		if g.use >= bound {
			break
		}
		if uint(g.child) < uint(len(pages)) && pages[g.child].depth < 0 {
			panic("pool: a page of no depth")
		}
		g.fillVictim(at, &evicted[n])
		ids[n] = messages.PageID(at)
		n++
		at = g.next
		*g = *record
	}
	return at, n
}
