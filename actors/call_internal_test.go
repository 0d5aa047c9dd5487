package actors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A coordinator that fails before it has answered or parked a call puts it back into its queue:
// it begins again, also if its caller waits no longer but for the answer.
func TestACallBeginsAgain(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		c := &call{wake: make(chan struct{}, 1)}
		require.True(t, c.begin())
		if leaving {
			require.False(t, c.giveUp())
		}
		assert.True(t, c.begin(), "leaving %v", leaving)
		assert.Equal(t, !leaving, c.park())
	}
}
