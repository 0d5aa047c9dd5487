package pool

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestTakePiece: the pages, victims and records are those of takeEach, whether pages adjoin or not.
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
			dice := rand.New(rand.NewPCG(seed, uint64(c.run)))
			list, head := listOf(dice, c.pages, c.run)
			for i := range list {
				list[i].setHint(dice.Uint32())
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
			assert.Equal(t, want, run(func(pages []page, ids []messages.PageID, evicted []protocol.Victim) (int32, int) {
				return takePiece(pages, head, ids, evicted, &record)
			}), name)
		}
	}
}

// TestTakeBothEnds: the pages, victims and records are those of takeEach, whether pages adjoin or not, whatever hints name, and if there
// are fewer pages than ids.
func TestTakeBothEnds(t *testing.T) {
	record := taken(&protocol.PoolOp{})
	for n := 1; n <= 70; n++ {
		for _, run := range []int{1, max(1, n/2), n} {
			pages := n / run * run
			for _, more := range []int{0, 1, 2, pages, 100} {
				dice := rand.New(rand.NewPCG(uint64(n), uint64(run)))
				list, head := listOf(dice, pages, run)
				tail := none
				for i := head; i != none; i = list[i].next {
					list[i].prev, tail = tail, i
					list[i].setHint(dice.Uint32())
				}
				want, ids, victims := slices.Clone(list), make([]messages.PageID, pages), make([]protocol.Victim, pages)
				next, _ := takeEach(want, head, ids, victims, &record, math.MaxUint64)
				require.Equal(t, none, next)
				gotIDs, gotVictims := make([]messages.PageID, pages+more), make([]protocol.Victim, pages+more)
				require.Equal(t, pages, takeBothEnds(list, head, tail, gotIDs, gotVictims, &record))
				require.Equal(t, ids, gotIDs[:pages])
				require.Equal(t, victims, gotVictims[:pages])
				require.Equal(t, want, list)
			}
		}
	}
}

// setHint gives a listed page of a piece a hint.
func (g *page) setHint(line uint32) {
	g.state = listed | pageState(line<<2)
	g.covered = uint16(line >> 6)
}

// TestHintsOfPiecesAreIDs: what is read for a hint is an element of the ids.
func TestHintsOfPiecesAreIDs(t *testing.T) {
	hinted := 0
	for ids := range 400 {
		for pages := 1; pages < 600; pages++ {
			lead, turn := pieceHints(ids, pages)
			if lead == 0 {
				continue
			}
			hinted++
			for i := range ids {
				named := i - lead
				if i <= turn {
					named = i + lead
				}
				if i >= ids-pages && (named < max(0, ids-pages) || named >= ids) {
					t.Fatalf("%d ids, %d pages: the hint of %d is %d", ids, pages, i, named)
				}
			}
		}
	}
	require.Positive(t, hinted)
}

// TestHintsOfPieces: hints of a long piece lead towards its middle, and end when a page is used.
func TestHintsOfPieces(t *testing.T) {
	const n = 300 // a hint of up to 63 is in the state alone
	p := NewForecast("hints", n, Forecast{Seed: 1, Span: 1})
	p.cache.pieces.fetcher = &fetcher{}
	lead, _ := pieceHints(n, n)
	do := working(t, p, 0)
	pages := do(protocol.PoolOp{Kind: protocol.Take, N: n}).Ops[0].Pages
	rand.New(rand.NewPCG(6, 6)).Shuffle(n, func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	store := protocol.PoolOp{Kind: protocol.AttachPages, Pages: pages, Priority: messages.DefaultPriority}
	for b := range protocol.BlockID(n) {
		store.Blocks = append(store.Blocks, b)
	}
	do(store)
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: pages, Use: 2})
	for k, id := range pages {
		named := k - lead
		if k < n/2 {
			named = k + lead
		}
		g, want := &p.pages[id], uint32(0)
		if runtime.GOARCH == "amd64" {
			want = uint32(pages[named]) / 2
		}
		require.Equal(t, want, uint32(g.covered)<<6|uint32(g.state>>2), "block %d", k)
		require.True(t, g.cached())
		require.Zero(t, g.coveredReferences())
	}
	// A prefill with a reservation uses the first blocks, another request a block behind.
	do(protocol.PoolOp{Kind: protocol.Claim, Pages: pages[:40], CoveredByReservation: true})
	do(protocol.PoolOp{Kind: protocol.Claim, Pages: pages[60:61]})
	for k, id := range pages {
		g := &p.pages[id]
		switch {
		case k < 40:
			require.EqualValues(t, 1, g.coveredReferences())
			require.False(t, g.held())
		case k == 60:
			require.Zero(t, g.covered)
			require.True(t, g.held())
		default:
			require.True(t, g.cached())
			require.False(t, g.held())
		}
	}
	require.Panics(t, func() {
		p.Do(&protocol.PoolWork{Ops: []protocol.PoolOp{{Kind: protocol.EndCoverage, Pages: pages[50:51]}}})
	})
	do(protocol.PoolOp{Kind: protocol.EndCoverage, Pages: pages[:40]})
	do(protocol.PoolOp{Kind: protocol.Drop, Pages: append(slices.Clone(pages[:40]), pages[60]), Use: 4})
	require.Equal(t, n, p.Counts().Cached)
	w := do(protocol.PoolOp{Kind: protocol.Take, N: n})
	require.Len(t, w.Victims, n)
}
