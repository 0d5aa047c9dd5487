package hazards

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/gpu"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/windows"
)

// until tells whether the tickets name a stream.
func until(tickets []messages.Ticket, s gpu.Stream) (t messages.Ticket, ok bool) {
	for _, t := range tickets {
		if t.Stream == s {
			return t, true
		}
	}
	return t, false
}

// Who hits pages that are on their way joins them: nothing is copied twice, and
// all wait for the one copy. The streams stand still meanwhile, so everything is
// on its way.
func TestHitsJoinWhatIsInFlight(t *testing.T) {
	// the engine's streams, which it made first
	const offloads, onboards = gpu.Stream(1), gpu.Stream(2)
	w := newWorld(t, setup{pages: windows.PageCounts{Primary: 12, Secondary: 24},
		change: withoutAhead})
	w.leave(text(1, 24))
	w.leave(text(2, 48)) // the first text is in host memory
	w.sim.Drain()
	require.NoError(t, w.sim.Stall(offloads, time.Second))
	require.NoError(t, w.sim.Stall(onboards, time.Second))

	before := w.stats()
	first, a, err := w.admit(text(1, 25))
	require.NoError(t, err)
	require.Equal(t, 24, a.ReusedTokens)
	one, ok := until(a.Ready, onboards)
	require.True(t, ok)
	second, a, err := w.admit(text(1, 25))
	require.NoError(t, err)
	require.Equal(t, 24, a.ReusedTokens)
	two, ok := until(a.Ready, onboards)
	require.True(t, ok, "the second waits, too")
	assert.Equal(t, one, two)
	assert.EqualValues(t, 6, w.stats().Onboarded-before.Onboarded, "once for both")
	require.NoError(t, w.compute(first, 25))
	require.NoError(t, w.compute(second, 25))
	third, a, err := w.admit(text(1, 25)) // a kernel that has not run writes the last page
	require.NoError(t, err)
	require.Equal(t, 24, a.ReusedTokens)
	require.NoError(t, w.compute(third, 25))
	require.False(t, w.device.Done(one))
	for _, q := range []*sequence{first, second, third} {
		require.NoError(t, w.release(q))
	}

	// Out and back again, while neither way has moved a byte.
	w.leave(text(3, 48))
	fourth, a, err := w.admit(text(1, 25))
	require.NoError(t, err)
	require.Equal(t, 24, a.ReusedTokens)
	assert.False(t, w.device.Done(one), "still")
	require.NoError(t, w.compute(fourth, 25))
	w.right(fourth)
	require.NoError(t, w.device.Sync(context.Background(), one))
	require.NoError(t, w.release(fourth))
	w.close()
}
