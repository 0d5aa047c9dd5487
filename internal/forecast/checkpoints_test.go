package forecast

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// learned is a policy that has seen checkpoints used after a minute, and those with a longer one
// behind them never.
func learned(t *testing.T) *Policy {
	p := NewCheckpoints()
	for range 2000 {
		last := p.Now()
		p.Advance(time.Duration(p.Now()+60_000) * time.Millisecond)
		p.Used(Features{Saved: 10}, last)
		p.Gone(Features{Saved: 10, GoesOn: true}, last)
	}
	require.NoError(t, p.Check())
	return p
}

// TestCheckpointsAreWorthTheirUses: the value of a checkpoint rises until the use that is expected
// and falls behind it; one that was never used is worth less.
func TestCheckpointsAreWorthTheirUses(t *testing.T) {
	p := learned(t)
	value := func(goesOn bool, age time.Duration) float64 {
		return p.Value(Features{Saved: 10, GoesOn: goesOn}, p.Now()-age.Milliseconds())
	}
	assert.Greater(t, value(false, 50*time.Second), 1.5*value(false, 0))
	assert.Greater(t, value(false, 50*time.Second), 1.5*value(false, time.Hour))
	assert.Greater(t, value(false, 50*time.Second), 10*value(true, 50*time.Second))
}

// TestCheckpointsAreWorthWhatTheySave: the value is in proportion to the blocks that a use saves.
func TestCheckpointsAreWorthWhatTheySave(t *testing.T) {
	p := learned(t)
	f := Features{Saved: 3, GoesOn: true}
	for _, blocks := range []int32{1, 2, 100, 1_000_000, math.MaxInt32} {
		g := Features{Saved: blocks, GoesOn: true}
		assert.Equal(t, classOf(&f), classOf(&g))
		want := math.Log(float64(blocks) / 3)
		assert.InDelta(t, want, float64(p.Rank(g, p.Now(), 0)-p.Rank(f, p.Now(), 0))/unit, 0.001,
			"%d blocks", blocks)
	}
}

// TestCheckpointsAwaited: a checkpoint that a request waits for is worth more than all others until
// it is used, or many requests have ended.
func TestCheckpointsAwaited(t *testing.T) {
	p := learned(t)
	p.BeginWait()
	f := p.Await(Features{Saved: 1, GoesOn: true})
	best := p.Rank(Features{Saved: math.MaxInt32}, p.Now(), 0)
	assert.Greater(t, p.Rank(f, p.Now(), 0), best)
	assert.Less(t, p.Rank(p.Used(f, p.Now()), p.Now(), 0), best)
	for range awaitedRequests {
		p.EndRequest(&Request{})
	}
	assert.Less(t, p.Rank(f, p.Now(), 0), best)
	assert.Contains(t, p.String(), "forecast of checkpoints")
}

// TestCheckpointsAllocateNothing: what is learned has its place from the start.
func TestCheckpointsAllocateNothing(t *testing.T) {
	p := learned(t)
	f := Features{Saved: 5}
	assert.Zero(t, testing.AllocsPerRun(200, func() {
		f = p.Used(f, p.Now())
		p.Gone(f, p.Now())
		p.Rank(f, p.Now(), 0)
	}))
}

// TestCheckpointsCountUses: what was used once is told from what was not, up to three uses.
func TestCheckpointsCountUses(t *testing.T) {
	p := NewCheckpoints()
	f := Features{Saved: 5}
	seen := map[int]bool{classOf(&f): true}
	for range 5 {
		f = p.Used(f, p.Now())
		seen[classOf(&f)] = true
	}
	assert.Len(t, seen, 1+checkpointUses)
	assert.EqualValues(t, 5, f.Saved)
}
