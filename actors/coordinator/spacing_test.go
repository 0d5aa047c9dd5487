package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/windows"
)

// The interval begins at twice the tokens whose attention is as large as a checkpoint, halves down
// to half of them where checkpoints are missing, and doubles, to none, where they are evicted.
func TestSpacing(t *testing.T) {
	pools := []windows.Pool{
		{Name: "wfullh1", KVHeads: 1, HeadDim: 1, DType: windows.Int8, Layers: []int{0},
			TokensPerBlock: 4},
		{Name: "state", Kind: windows.KindState, StateBytes: 8 * 8, Checkpoints: true, Layers: []int{1},
			TokensPerBlock: 4},
	}
	s := spacingOf(&Config{Pools: pools, TokensPerBlock: 4})
	assert.Zero(t, s.interval)
	for _, step := range []struct {
		lost loss
		want int
	}{
		{loss{unmade: 49}, 0},              // too little of 1,000
		{loss{unmade: 10}, 2 * 8 * 4},      // with what came before
		{loss{unmade: 60, states: 50}, 64}, // both about as much
		{loss{unmade: 200}, 32},
		{loss{unmade: 200}, 16},
		{loss{unmade: 200}, 16},
		{loss{states: 200, unmade: 20}, 32},
		{loss{states: 200, evicted: 900}, 64},
		{loss{states: 200}, 0},
		{loss{states: 200}, 0},
		{loss{unmade: 200}, 64},
	} {
		s.note(step.lost)
		s.adjust(1000)
		assert.Equal(t, step.want, s.interval, "%+v", step.lost)
		if step.want == 64 && step.lost.states == 50 {
			s.clear()
		}
	}
	assert.Zero(t, spacingOf(&Config{Pools: pools[:1], TokensPerBlock: 4}), "no states")
}
