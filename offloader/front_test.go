package offloader

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/internal/protocol"
	"github.com/kvactor/kvactor/messages"
)

// evenRanks makes all pieces worth the same, as plain LRU does.
type evenRanks struct{ byFeatures }

func (evenRanks) Rank(uint64, int64, int32) int32 { return 0 }

// backwards makes pieces worth the less the greater their features are.
type backwards struct{ byFeatures }

func (backwards) Rank(f uint64, _ int64, _ int32) int32 { return -int32(f) }

// roomyPool is a pool of fifty host pages.
func roomyPool(r protocol.Ranking) *hostPool {
	h := &hostPool{}
	h.init(PoolConfig{Name: "roomy", HostPages: 50, Forecast: true}, nil)
	h.pieces.rankBy(r)
	return h
}

// keep makes host memory keep the contents of one block.
func (h *hostPool) keep(b protocol.BlockID, depth int32, features uint64, last int64) messages.PageID {
	v := protocol.Victim{Block: b, Depth: depth, Priority: messages.DefaultPriority}
	return h.decideOutcome(&v, []protocol.EvictedPiece{{End: 1, Features: features, Last: last}}, 0).Host
}

// TestChosenPieceGivesWay: pages that join a piece within a Move make it the one of least value, though another one was chosen before.
func TestChosenPieceGivesWay(t *testing.T) {
	h := &hostPool{}
	h.init(PoolConfig{Name: "ties", HostPages: 5, Forecast: true}, nil)
	h.pieces.rankBy(evenRanks{})
	block := protocol.BlockID(0)
	evict := func(features uint64, depth int32) protocol.BlockID {
		v := protocol.Victim{Block: block, Depth: depth, Priority: messages.DefaultPriority}
		block++
		return h.decideOutcome(&v, []protocol.EvictedPiece{{End: 1, Features: features, Last: 7}}, 0).Displaced
	}
	for i, f := range []uint64{1, 1, 1, 2, 3} { // blocks 0, 1, 2; 3; 4
		evict(f, []int32{30, 29, 28, 20, 10}[i])
	}
	h.pieces.rankBy(evenRanks{})
	assert.EqualValues(t, 0, evict(3, 9), "of depth 30")
	assert.EqualValues(t, 1, evict(3, 40), "of depth 29")
	assert.EqualValues(t, 6, evict(3, 8), "of depth 40")
}

// TestChoiceEndsWithTheRound: another Move values pieces anew.
func TestChoiceEndsWithTheRound(t *testing.T) {
	h := manyPieces([]uint64{1, 2, 3})
	assert.EqualValues(t, 0, h.orders[sole].first())
	h.pieces.rankBy(backwards{})
	assert.EqualValues(t, 2, h.orders[sole].first())
}

// TestEqualPiecesLoseTheDeepestPage: between pieces of equal value the depth decides, page by page.
func TestEqualPiecesLoseTheDeepestPage(t *testing.T) {
	h := roomyPool(evenRanks{})
	for b, depth := range []int32{30, 10} {
		h.keep(protocol.BlockID(b), depth, 1, 7)
	}
	h.keep(2, 20, 2, 7)
	for _, p := range []messages.PageID{0, 2, 1} {
		assert.Equal(t, p, h.orders[sole].first())
		h.freePage(p)
	}
}

// TestChoiceIsMadeAgain: where values depend on the depth, a piece that was chosen is valued again for its next page, and where nothing
// predicts, a piece that has just come is chosen if it was used least recently.
func TestChoiceIsMadeAgain(t *testing.T) {
	type contents struct {
		depth    int32
		features uint64
		last     int64
	}
	for name, c := range map[string]struct {
		ranking      protocol.Ranking
		contents     [3]contents // the last ones come after the first choice
		first, again messages.PageID
	}{
		"depths":     {byDepth{}, [3]contents{{5, 1, 7}, {3, 2, 7}, {9, 2, 7}}, 1, 0},
		"no ranking": {nil, [3]contents{{1, 1, 7}, {1, 1, 8}, {1, 1, 3}}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := roomyPool(c.ranking)
			for b, x := range c.contents {
				if b == 2 {
					assert.Equal(t, c.first, h.orders[sole].first())
				}
				h.keep(protocol.BlockID(b), x.depth, x.features, x.last)
			}
			assert.Equal(t, c.again, h.orders[sole].first())
		})
	}
}

// TestPieceThatWasNotOffered: a piece that came while nothing predicted, as when a pin ends, is compared in the next Move.
func TestPieceThatWasNotOffered(t *testing.T) {
	h := roomyPool(byFeatures{})
	h.keep(0, 1, 2, 7)
	h.keep(1, 1, 5, 7)
	assert.EqualValues(t, 0, h.orders[sole].first())
	h.pieces.rankBy(nil)
	low := h.keep(2, 1, 1, 7)
	h.pieces.rankBy(byFeatures{})
	h.keep(3, 1, 9, 7)
	assert.Equal(t, low, h.orders[sole].first())
}

// TestSurveyComparesAll: where no piece has been compared, the first choice compares them all.
func TestSurveyComparesAll(t *testing.T) {
	h := roomyPool(nil)
	for b := range protocol.BlockID(30) {
		h.keep(b, 1, uint64(100-b), int64(b))
	}
	h.pieces.rankBy(byFeatures{})
	assert.EqualValues(t, 29, h.orders[sole].first())
}
