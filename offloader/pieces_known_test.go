package offloader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/pool/evict"
	"github.com/kvactor/kvactor/windows"
)

// These tests hold what is known of pages through pins, waits and changes of priority, and that
// Check sees where it is not.

// knownPool is a pool with a page for each of some features, the deepest first, all used at 7, and
// two free pages.
func knownPool(features ...uint64) *hostPool {
	h := &hostPool{}
	h.init(PoolConfig{Name: "known", HostPages: len(features) + 2, Policy: evict.Forecast}, nil)
	h.order.RankBy(byFeatures{})
	for i, f := range features {
		v := protocol.Victim{Block: protocol.BlockID(i), Depth: int32(len(features) - i),
			Priority: messages.DefaultPriority}
		h.decideOutcome(&v, &protocol.EvictedPiece{
			Features: protocol.Features{Wait: int64(f)}, Last: 7}, 0)
	}
	return h
}

// mustCheck fails the test if the pool is wrong.
func (h *hostPool) mustCheck(t *testing.T) {
	t.Helper()
	require.Empty(t, h.check())
}

// known is what is known of a page.
func (h *hostPool) known(p messages.PageID) (features, last int64) {
	known, _ := h.order.Noted(int32(p))
	return known.Features.Wait, known.Last
}

// TestPriorityKeepsWhatIsKnown: pages of a piece whose priority changes are of another piece, of
// which the same is known.
func TestPriorityKeepsWhatIsKnown(t *testing.T) {
	h := knownPool(5, 5, 5, 5)
	h.decideOutcome(&protocol.Victim{Block: 9, Priority: 80},
		&protocol.EvictedPiece{Features: protocol.Features{Wait: 3}, Last: 8}, 0)
	for b := range protocol.BlockID(3) {
		h.order.SetPriority(int32(h.findSole(b)), 80)
		h.mustCheck(t)
	}
	for p := range messages.PageID(4) {
		features, last := h.known(p)
		assert.Equal(t, []int64{5, 7}, []int64{features, last}, "page %d", p)
	}
}

// TestAdoptedPagesHavePieces: after a failure the order of contents is that of their use.
func TestAdoptedPagesHavePieces(t *testing.T) {
	o := New(Config{Pools: []PoolConfig{{
		Name: "adopted", HostPages: 4, PageBytes: 64, TokensPerBlock: 4,
		Regions: []windows.Region{{Runs: 2, TokenBytes: 8}}, Policy: evict.Forecast,
	}}})
	o.adopt(0, []protocol.KeptPage{
		{Page: 3, Block: 5, Use: 20, Priority: messages.DefaultPriority, Depth: 1},
		{Page: 1, Block: 6, Use: 10, Priority: messages.DefaultPriority, Depth: 2, Pins: 1},
		{Page: 0, Block: 7, Use: 10, Priority: messages.DefaultPriority, Depth: 3},
	})
	require.NoError(t, o.Check())
	h := &o.hosts[0]
	_, last := h.known(3)
	assert.Equal(t, int64(protocol.Use(20).Moment()), last)
	assert.EqualValues(t, 0, h.order.First())
}
