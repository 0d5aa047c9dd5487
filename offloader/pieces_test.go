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

// byFeatures ranks pieces by their features alone.
type byFeatures struct{}

func (byFeatures) Now() int64                                          { return 0 }
func (byFeatures) Rank(f protocol.Features, last int64, _ int32) int32 { return int32(f.Wait) }
func (byFeatures) Await(f protocol.Features) protocol.Features         { return f }

// manyPieces is a pool of host pages with a piece each, worth the given features.
func manyPieces(features []uint64) *hostPool {
	h := &hostPool{}
	h.init(PoolConfig{Name: "many", HostPages: len(features), Policy: evict.Forecast}, nil)
	for i, f := range features {
		v := protocol.Victim{Block: protocol.BlockID(i), Priority: messages.DefaultPriority}
		h.decideOutcome(&v, &protocol.EvictedPiece{Features: protocol.Features{Wait: int64(f)},
			Last: int64(i)}, 0)
	}
	h.order.RankBy(byFeatures{})
	return h
}

// TestEveryPieceIsCompared: among more pieces than a survey compares, those of least value are
// displaced once the surveys have begun with each piece of a step.
func TestEveryPieceIsCompared(t *testing.T) {
	const n = 3000
	var features []uint64
	for i := range uint64(n) {
		features = append(features, n+i*7919%n)
	}
	low := map[messages.PageID]bool{137: true, n - 1: true, 321: true}
	for page := range low {
		features[page] = 0
	}
	h := manyPieces(features)
	for range n / 10 {
		p := messages.PageID(h.order.First())
		delete(low, p)
		h.freePage(p)
	}
	assert.Empty(t, low)
	require.NoError(t, h.order.Check())
}

// TestNewPiecesAreCompared: the next survey finds a piece of no value that has just come, however
// many others there are.
func TestNewPiecesAreCompared(t *testing.T) {
	features := make([]uint64, 200)
	for i := range features {
		features[i] = 50
	}
	h := manyPieces(features)
	h.freePage(messages.PageID(h.order.First()))
	h.freePage(150)
	out, _ := h.decideOutcome(&protocol.Victim{Block: 200, Priority: messages.DefaultPriority},
		&protocol.EvictedPiece{Features: protocol.Features{Wait: 3}, Last: 500}, 0)
	p := out.Host
	for range 20 {
		victim := messages.PageID(h.order.First())
		if victim == p {
			return
		}
		h.freePage(victim)
	}
	t.Fail()
}

// TestARankingReplacesPlainLRU: what was chosen while no ranking was lent, by the last use alone,
// is not displaced once there is one.
func TestARankingReplacesPlainLRU(t *testing.T) {
	features := make([]uint64, 40)
	for i := range features {
		features[i] = uint64(len(features) - i)
	}
	h := manyPieces(features)
	h.order.RankBy(nil)
	require.Equal(t, int32(0), h.order.First(), "the earliest use")
	h.order.RankBy(byFeatures{})
	assert.Equal(t, int32(39), h.order.First(), "the least value")
	h.order.RankBy(nil)
	assert.Equal(t, int32(0), h.order.First())
}

// TestTenantsArePickedByValue: of the first pieces of several tenants the one of least value is
// displaced, though another one was used before it.
func TestTenantsArePickedByValue(t *testing.T) {
	h := &hostPool{}
	h.init(PoolConfig{Name: "tenants", HostPages: 4, Policy: evict.Forecast},
		[]windows.Quota{windows.NoQuota, windows.NoQuota / 2})
	for i, features := range []uint64{7, 2} {
		v := protocol.Victim{Block: protocol.BlockID(i), Priority: messages.DefaultPriority,
			Tenant: protocol.Tenant(i), Use: protocol.Use(10 * i)}
		h.decideOutcome(&v, &protocol.EvictedPiece{
			Features: protocol.Features{Wait: int64(features)}, Last: int64(i)}, 0)
	}
	h.order.RankBy(byFeatures{})
	assert.Equal(t, messages.PageID(1), messages.PageID(h.order.First()))
}

// pieces draws what the policy of a device pool knows of the victims, of some of which it knows
// nothing.
func (w *world) pieces(pool messages.PoolID) {
	pm := &w.move.Pools[pool]
	if w.cfg.Pools[pool].Policy != evict.Forecast || w.chance(4) {
		return
	}
	r := &ranking{now: int64(w.stamp) + 10}
	pm.Ranking = r
	for end := 1; end <= len(pm.Victims); end += 1 + w.pick(w.of(2, 4)) {
		last := int64(w.stamp) + 8 - int64(w.pick(5))
		if w.crowded {
			last -= last % 16 // more pieces are worth the same
		}
		pm.Pieces = append(pm.Pieces, protocol.EvictedPiece{End: end,
			Features: protocol.Features{Wait: int64(uint64(w.pick(3)))}, Last: last})
	}
}

// policyOf is a policy by name.
func policyOf(forecast bool) string {
	if forecast {
		return evict.Forecast
	}
	return evict.LRU
}

// byDepth ranks pieces by the depth of their next victim alone.
type byDepth struct{ byFeatures }

func (byDepth) Rank(_ protocol.Features, _ int64, depth int32) int32 { return depth }

// TestDepthsAreRanked: a ranking that asks for it is given the depth of the page that a piece would
// lose.
func TestDepthsAreRanked(t *testing.T) {
	h := &hostPool{}
	h.init(PoolConfig{Name: "depths", HostPages: 5, Policy: evict.Forecast}, nil)
	h.order.RankBy(byDepth{})
	for block, depths := range [][]int32{{9, 1}, {3, 2}, {5}} {
		for k, depth := range depths {
			v := protocol.Victim{Block: protocol.BlockID(10*block + k), Priority: messages.DefaultPriority,
				Depth: depth}
			h.decideOutcome(&v, &protocol.EvictedPiece{
				Features: protocol.Features{Wait: int64(block)}, Last: 7}, 0)
		}
	}
	var got []int32
	for range 5 {
		p := messages.PageID(h.order.First())
		got = append(got, h.order.Page(int32(p)).Depth)
		h.freePage(p)
	}
	assert.Equal(t, []int32{3, 2, 5, 9, 1}, got)
}
