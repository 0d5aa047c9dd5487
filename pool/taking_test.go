package pool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestTakePiece: the pages, victims and records are those of takeEach, whether pages adjoin or not, with and without the
// last page.
func TestTakePiece(t *testing.T) {
	record := taken(&protocol.PoolOp{})
	for name, c := range map[string]struct{ pages, run, ids int }{
		"a page":            {pages: 1, run: 1, ids: 3},
		"two pages":         {pages: 2, run: 2, ids: 2},
		"no ids":            {pages: 100, run: 1},
		"scattered":         {pages: 100, run: 1, ids: 100},
		"more ids":          {pages: 100, run: 1, ids: 107},
		"fewer ids":         {pages: 100, run: 1, ids: 31},
		"short runs":        {pages: 100, run: 4, ids: 100},
		"long runs":         {pages: 400, run: 200, ids: 400},
		"one run":           {pages: 300, run: 300, ids: 300},
		"some of a run":     {pages: 500, run: 500, ids: 201},
		"runs beyond fetch": {pages: 4 * fetchedPages, run: 2 * fetchedPages, ids: 4 * fetchedPages},
	} {
		for seed := range uint64(10) {
			list, head := listOf(rand.New(rand.NewPCG(seed, uint64(c.run))), c.pages, c.run)
			tail := none
			for i := head; i != none; i = list[i].next {
				list[i].prev, tail = tail, i
			}
			type answer struct {
				pages   []page
				ids     []messages.PageID
				evicted []protocol.Victim
				next    int32
				n       int
			}
			run := func(take func([]page, []messages.PageID, []protocol.Victim) (int32, int)) answer {
				a := answer{pages: slices.Clone(list), ids: make([]messages.PageID, c.ids), evicted: make([]protocol.Victim, c.ids)}
				a.next, a.n = take(a.pages, a.ids, a.evicted)
				return a
			}
			want := run(func(pages []page, ids []messages.PageID, evicted []protocol.Victim) (int32, int) {
				return takeEach(pages, head, ids, evicted, &record, math.MaxUint64)
			})
			assert.Equal(t, want.n, min(c.pages, c.ids))
			for _, last := range []int32{tail, none} {
				assert.Equal(t, want, run(func(pages []page, ids []messages.PageID, evicted []protocol.Victim) (int32, int) {
					return takePiece(pages, head, last, ids, evicted, &record)
				}), name)
			}
		}
	}
}
