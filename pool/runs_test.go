package pool

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestRecordFields holds the places of fields that assembly compares or copies in one word.
func TestRecordFields(t *testing.T) {
	var g page
	assert.Equal(t, unsafe.Offsetof(g.prev)+4, unsafe.Offsetof(g.next))
	assert.Equal(t, unsafe.Offsetof(g.priority)+1, unsafe.Offsetof(g.state))
	assert.Equal(t, unsafe.Offsetof(g.priority)+2, unsafe.Offsetof(g.covered))
	assert.Equal(t, unsafe.Offsetof(g.priority)+4, unsafe.Sizeof(g))
	var v protocol.Victim
	assert.Equal(t, unsafe.Offsetof(g.block)+4, unsafe.Offsetof(g.depth))
	assert.Equal(t, unsafe.Offsetof(v.Block)+4, unsafe.Offsetof(v.Depth))
	assert.Equal(t, unsafe.Offsetof(v.Priority)+2, unsafe.Offsetof(v.Tenant))
	assert.Equal(t, unsafe.Offsetof(v.Priority)+4, unsafe.Offsetof(v.Use))
	assert.Zero(t, protocol.OtherTenants)
}

// appendable is a run of n pages that all can be appended, behind page tail.
func appendable(dice *rand.Rand, n int) (pages []page, ids []messages.PageID, r run, tail int32) {
	pages = make([]page, n+1)
	order := dice.Perm(n + 1)
	r = run{use: 1<<40 + 6, opUse: 1<<40 + 6, priority: 35, depth: math.MaxInt32, lead: n}
	if dice.IntN(2) == 0 {
		r.lead = hintDistance
	}
	if dice.IntN(3) == 0 {
		r.use += 10 // that of the pages is later than that of the operation
	}
	for k, i := range order[:n] {
		pages[i] = page{use: r.use, block: protocol.BlockID(i), depth: int32(3 + 2*k), prev: 1, priority: r.priority}
		if r.use == r.opUse {
			pages[i].use -= protocol.Use(dice.IntN(5))
		}
		ids = append(ids, messages.PageID(i))
	}
	return pages, ids, r, int32(order[n])
}

// TestAppend: a run is appended up to the first page that cannot be, whichever rule it
// breaks. The pages, the new tail and the count are those of appendEach.
func TestAppend(t *testing.T) {
	faults := map[string]func(r *run, ids []messages.PageID, k int, g *page){
		"none":             func(*run, []messages.PageID, int, *page) {},
		"no page":          func(_ *run, ids []messages.PageID, k int, _ *page) { ids[k] = messages.NoPage },
		"a shared page":    func(_ *run, _ []messages.PageID, _ int, g *page) { g.prev = 2 },
		"no references":    func(_ *run, _ []messages.PageID, _ int, g *page) { g.prev = 0 },
		"a pin":            func(_ *run, _ []messages.PageID, _ int, g *page) { g.next = 1 },
		"covered":          func(_ *run, _ []messages.PageID, _ int, g *page) { g.covered = 1 },
		"a listed page":    func(_ *run, _ []messages.PageID, _ int, g *page) { g.state = listed },
		"another priority": func(_ *run, _ []messages.PageID, _ int, g *page) { g.priority++ },
		"a term":           func(_ *run, _ []messages.PageID, _ int, g *page) { g.priority = timed },
		"nothing cached":   func(_ *run, _ []messages.PageID, _ int, g *page) { g.block = protocol.NoBlock },
		"too deep":         func(_ *run, _ []messages.PageID, k int, g *page) { g.depth += 2 },
		"a later use":      func(r *run, _ []messages.PageID, _ int, g *page) { g.use = r.use + 1 },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(7, uint64(len(name))))
			for range 300 {
				n := 1 + dice.IntN(70)
				pages, ids, r, tail := appendable(dice, n)
				k := dice.IntN(n)
				fault(&r, ids, k, &pages[ids[k]&math.MaxInt32%messages.PageID(len(pages))])
				want := slices.Clone(pages)
				last, done := r.appendEach(want, ids, tail)
				gotLast, gotDone := r.append(pages, ids, tail)
				require.Equal(t, done, gotDone)
				require.Equal(t, last, gotLast)
				require.Equal(t, want, pages)
				switch {
				case name == "none":
					require.Equal(t, n, done)
				case name == "too deep" && k == n-1: // the first page has no page before it
				default:
					require.Equal(t, n-1-k, done)
				}
			}
		})
	}
}

// TestAppendToPiece: a run of a piece is appended up to the first page that is not of it, as by appendEach.
func TestAppendToPiece(t *testing.T) {
	faults := map[string]func(ids []messages.PageID, k int, g *page){
		"none":             func([]messages.PageID, int, *page) {},
		"no page":          func(ids []messages.PageID, k int, _ *page) { ids[k] = messages.NoPage },
		"another piece":    func(_ []messages.PageID, _ int, g *page) { g.child++ },
		"a shared page":    func(_ []messages.PageID, _ int, g *page) { g.prev = 2 },
		"no references":    func(_ []messages.PageID, _ int, g *page) { g.prev = 0 },
		"a pin":            func(_ []messages.PageID, _ int, g *page) { g.next = 1 },
		"covered":          func(_ []messages.PageID, _ int, g *page) { g.covered = 1 },
		"a listed page":    func(_ []messages.PageID, _ int, g *page) { g.state = listed },
		"another priority": func(_ []messages.PageID, _ int, g *page) { g.priority++ },
		"a term":           func(_ []messages.PageID, _ int, g *page) { g.priority = timed },
		"too deep":         func(_ []messages.PageID, _ int, g *page) { g.depth += 1000 },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(8, uint64(len(name))))
			for range 300 {
				n := 1 + dice.IntN(70)
				pages, ids, of, tail := appendable(dice, n)
				for i := range pages {
					pages[i].child = 9
					pages[i].use = protocol.Use(dice.IntN(10))
				}
				r := pieceRun{opUse: protocol.Use(dice.IntN(10)), piece: 9, priority: of.priority, depth: int32(2*n + 100)}
				k := dice.IntN(n)
				fault(ids, k, &pages[ids[k]&math.MaxInt32%messages.PageID(len(pages))])
				want := slices.Clone(pages)
				last, done := r.appendEach(want, ids, tail)
				gotLast, gotDone := r.append(pages, ids, tail)
				require.Equal(t, done, gotDone)
				require.Equal(t, last, gotLast)
				require.Equal(t, want, pages)
				if name == "none" {
					require.Equal(t, n, done)
				} else {
					require.Equal(t, n-1-k, done)
				}
			}
		})
	}
}

// TestUnknownPage: of any number of entries, a wrong one is found wherever it is, and none
// where there is none.
func TestUnknownPage(t *testing.T) {
	const pages = 1000
	p := New("numbers", pages)
	for n := range 40 {
		ids := make([]messages.PageID, n)
		for i := range ids {
			ids[i] = [...]messages.PageID{0, messages.NoPage, pages - 1, 500}[i%4]
		}
		require.Equal(t, -1, p.unknownPage(ids))
		for i := range ids {
			for _, wrong := range []messages.PageID{pages, -2, math.MaxInt32, math.MinInt32, 1 << 30, -1 << 30} {
				was := ids[i]
				ids[i] = wrong
				require.Equal(t, i, p.unknownPage(ids), "%d", wrong)
				ids[i] = was
			}
		}
	}
	assert.Equal(t, 0, New("no pages", 0).unknownPage([]messages.PageID{0}))
}
