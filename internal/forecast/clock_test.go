package forecast

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestStamps: stamps have the time between two moments to 32 ms, whatever the clock shows, and none between a moment
// and an earlier one.
func TestStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int64Range(0, 1<<50).Draw(t, "from")
		passed := rapid.Int64Range(0, 390*24*3600*1000).Draw(t, "passed")
		require.InDelta(t, float64(passed)/1000, secondsBetween(stamp(from), stamp(from+passed)), 0.032)
		require.Zero(t, secondsBetween(stamp(from+passed), stamp(from)))
	})
}
