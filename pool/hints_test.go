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

// TestHintsLeadAhead: whatever the lengths of the runs, a page that is listed in
// one leads to the page that goes some places after it.
func TestHintsLeadAhead(t *testing.T) {
	const pages = 200
	y := &tenants{pool: New("hinted", pages)}
	y.pool.cache.whole.hinted = true
	for _, n := range []int{1, 2, 40, 3, 3, 17, 16, 15, 1, 60, 5, 37} {
		y.visit(0, n, messages.DefaultPriority)
	}
	require.Zero(t, y.pool.Counts().Free)
	var order []int32
	for i := y.pool.cache.whole.level(messages.DefaultPriority).head; i != none; i = y.pool.pages[i].next {
		order = append(order, i)
	}
	require.Len(t, order, pages)
	for k, i := range order[:pages-hintDistance] {
		assert.Equal(t, order[k+hintDistance], y.pool.pages[i].child, "place %d", k)
	}
	for _, i := range order[pages-hintDistance:] {
		assert.Equal(t, none, y.pool.pages[i].child)
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

// TestGroupsDecideNothing: pools that read the records that hints name, or fetch them by
// groups, evict the same pages as one that does not, from a list of scattered pages with
// priorities, claims and stale hints.
func TestGroupsDecideNothing(t *testing.T) {
	const pages = 600
	plain, hinted, grouped := New("plain", pages), New("hinted", pages), New("grouped", pages)
	hinted.cache.whole.hinted = true
	grouped.cache.whole.hinted, grouped.cache.whole.grouped = true, true
	do := func(op protocol.PoolOp) *protocol.PoolWork {
		var answers [3]protocol.PoolWork
		for i, p := range []*Pool{plain, hinted, grouped} {
			answers[i].Ops = []protocol.PoolOp{op}
			answers[i].Ops[0].Pages = slices.Clone(op.Pages)
			p.Do(&answers[i])
			require.NoError(t, p.Check())
		}
		require.Equal(t, answers[0], answers[1])
		require.Equal(t, answers[0], answers[2])
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
