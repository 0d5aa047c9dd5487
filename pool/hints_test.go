package pool

import (
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
