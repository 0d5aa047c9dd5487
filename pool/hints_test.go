package pool

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// TestHintsLeadAhead: whatever the lengths of the runs, and although those of two priorities
// arrive by turns, a page that is listed in one leads to the page that goes some places after
// it in the list.
func TestHintsLeadAhead(t *testing.T) {
	const pages = 400
	priorities := []messages.Priority{messages.DefaultPriority, 80}
	y := &tenants{pool: New("hinted", pages)}
	y.pool.cache.whole.hinted = true
	for i, n := range []int{1, 2, 40, 90, 3, 3, 17, 16, 15, 1, 60, 5, 37, 110} {
		y.visit(0, n, priorities[i%2])
	}
	require.Zero(t, y.pool.Counts().Free)
	for _, priority := range priorities {
		var order []int32
		for i := y.pool.cache.whole.level(priority).head; i != none; i = y.pool.pages[i].next {
			order = append(order, i)
		}
		require.Greater(t, len(order), 3*hintDistance)
		for k, i := range order[:len(order)-hintDistance] {
			assert.Equal(t, order[k+hintDistance], y.pool.pages[i].child, "place %d of %d", k, priority)
		}
		for _, i := range order[len(order)-hintDistance:] {
			assert.Equal(t, none, y.pool.pages[i].child)
		}
	}
}

// TestPoolsWithHints: it depends on the pages and on the tokens of a block, also of a pool that is resized or rebuilt.
func TestPoolsWithHints(t *testing.T) {
	for _, c := range []struct {
		pages, tokens int
		hinted        bool
	}{
		{hintedPages, 0, true},
		{hintedPages - 1, 0, false},
		{hintedPages - 1, 16, false},
		{10_000, 16, false},
		{10_000, 64, true},
		{10_000, 512, true},
		{fewestHinted, 512, true},
		{fewestHinted - 1, 1 << 20, false},
	} {
		p := New("p", c.pages)
		p.SetBlockTokens(c.tokens)
		assert.Equal(t, c.hinted, p.cache.whole.hinted, "%+v", c)
		assert.Equal(t, c.hinted, p.Rebuilt(c.pages, nil).cache.whole.hinted, "%+v, rebuilt", c)
		p.Resize(&Resizing{Pages: 100})
		assert.False(t, p.cache.whole.hinted, "%+v, resized", c)
	}
}

// Hints that lead to pages which are no longer listed, or no longer there, are
// followed and change nothing.
func TestHintsMayBeStale(t *testing.T) {
	y := &tenants{pool: New("hinted", 100)}
	y.pool.cache.whole.hinted = true
	y.visit(0, 100, messages.DefaultPriority)
	y.do(protocol.PoolOp{Kind: protocol.Claim, Pages: []messages.PageID{70, 60, 50}})
	y.pool.Resize(&Resizing{Pages: 80})
	y.pool.cache.whole.hinted = true
	y.visit(0, 30, messages.DefaultPriority)
	y.do(protocol.PoolOp{Kind: protocol.DetachPages, Pages: []messages.PageID{40}})
	assert.Len(t, y.visit(0, 77, messages.DefaultPriority), 76)
	require.NoError(t, y.pool.Check())
}

// TestPageIsHalfACacheLine: a million pages are 32 MB, and none lies in two lines.
func TestPageIsHalfACacheLine(t *testing.T) {
	assert.EqualValues(t, 32, unsafe.Sizeof(page{}))
}

// listOf is a list of pages whose runs of so many pages adjoin, upwards or downwards, and lie
// anywhere, and the first of them. Hints name anything.
func listOf(dice *rand.Rand, pages, run int) (list []page, head int32) {
	var order []int
	for _, r := range dice.Perm(pages / run) {
		adjoining := make([]int, run)
		for k := range adjoining {
			adjoining[k] = r*run + k
		}
		if dice.IntN(2) == 0 {
			slices.Reverse(adjoining)
		}
		order = append(order, adjoining...)
	}
	list = make([]page, pages)
	for k, i := range order {
		list[i] = page{
			use: protocol.Use(1<<40 + k), block: protocol.BlockID(1<<20 + i), depth: int32(pages - k), priority: messages.Priority(k), state: listed,
			next: none, child: dice.Int32N(1<<20) - 1,
		}
		if k+1 < pages {
			list[i].next = int32(order[k+1])
		}
	}
	return list, int32(order[0])
}

// hint gives each page of a list the hint that a pool gives it.
func hint(list []page, head int32) {
	var order []int32
	for i := head; i != none; i = list[i].next {
		order = append(order, i)
	}
	for k, i := range order {
		list[i].child = none
		if k+hintDistance < len(order) {
			list[i].child = order[k+hintDistance]
		}
	}
}

// TestTakeFetching: the pages, victims and records are those of takeEach, up to the end of the
// list, to a bound and to the number of ids, whatever the hints name.
func TestTakeFetching(t *testing.T) {
	const n = 100
	record := taken(&protocol.PoolOp{})
	for name, c := range map[string]struct {
		run, ids, bound, taken int
		lead                   bool // hints name the pages that they are made for
	}{
		"the whole list":    {run: 1, ids: n + 7, bound: n, taken: n},
		"some of it":        {run: 1, ids: 31, bound: n, taken: 31},
		"up to a bound":     {run: 1, ids: n, bound: 47, taken: 47},
		"a bound and n ids": {run: 1, ids: 5, bound: 5, taken: 5},
		"no ids":            {run: 1, bound: n},
		"short runs":        {run: 4, ids: n, bound: n, taken: n},
		"long runs":         {run: 50, ids: n, bound: 77, taken: 77},
		"one run":           {run: n, ids: n, bound: n, taken: n},
		"hints that lead":   {run: 1, ids: n, bound: n, taken: n, lead: true},
		"hints and runs":    {run: 4, ids: n, bound: 91, taken: 91, lead: true},
	} {
		list, head := listOf(rand.New(rand.NewPCG(3, uint64(c.run))), n, c.run)
		if c.lead {
			hint(list, head)
		}
		type answer struct {
			pages   []page
			ids     []messages.PageID
			evicted []protocol.Victim
			next    int32
			n       int
		}
		run := func(take func([]page, int32, []messages.PageID, []protocol.Victim, *page, protocol.Use) (int32, int)) answer {
			a := answer{pages: slices.Clone(list), ids: make([]messages.PageID, c.ids), evicted: make([]protocol.Victim, c.ids)}
			a.next, a.n = take(a.pages, head, a.ids, a.evicted, &record, protocol.Use(1<<40+c.bound))
			a.ids = a.ids[:a.n] // those behind may be anything
			return a
		}
		got := run(takeFetching)
		assert.Equal(t, c.taken, got.n, name)
		assert.Equal(t, run(takeEach), got, name)
	}
}

// TestHintsDecideNothing: a pool that follows hints evicts the same pages as one that does
// not, from a list of scattered pages with priorities, claims and stale hints.
func TestHintsDecideNothing(t *testing.T) {
	const pages = 600
	plain, hinted := New("plain", pages), New("hinted", pages)
	hinted.cache.whole.hinted = true
	do := func(op protocol.PoolOp) *protocol.PoolWork {
		var answers [2]protocol.PoolWork
		for i, p := range []*Pool{plain, hinted} {
			answers[i].Ops = []protocol.PoolOp{op}
			answers[i].Ops[0].Pages = slices.Clone(op.Pages)
			p.Do(&answers[i])
			require.NoError(t, p.Check())
		}
		require.Equal(t, answers[0], answers[1])
		return &answers[0]
	}
	dice := rand.New(rand.NewPCG(5, 8))
	free, use := do(protocol.PoolOp{Kind: protocol.Take, N: pages}).Ops[0].Pages, protocol.Use(0)
	dice.Shuffle(pages, func(i, j int) { free[i], free[j] = free[j], free[i] })
	evicted := 0
	for range 400 {
		for len(free) > 0 {
			n := min(len(free), 1+dice.IntN(90))
			store := protocol.PoolOp{Kind: protocol.AttachPages, Pages: free[:n], Priority: messages.Priority(35 + 5*dice.IntN(2))}
			for _, id := range store.Pages {
				store.Blocks = append(store.Blocks, protocol.BlockID(id))
			}
			do(store)
			use += 2
			do(protocol.PoolOp{Kind: protocol.Drop, Pages: free[:n], Use: use})
			free = free[n:]
		}
		// Some come back early, to the heap; then some are evicted.
		touched := []messages.PageID{messages.PageID(dice.IntN(pages))}
		do(protocol.PoolOp{Kind: protocol.Claim, Pages: touched})
		do(protocol.PoolOp{Kind: protocol.Unclaim, Pages: touched})
		w := do(protocol.PoolOp{Kind: protocol.Take, N: 1 + dice.IntN(200)})
		free, evicted = w.Ops[0].Pages, evicted+len(w.Victims)
	}
	require.Greater(t, evicted, 10_000)
}
