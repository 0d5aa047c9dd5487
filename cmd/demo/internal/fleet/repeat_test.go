//go:build !isolated

package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/offloader/stores"
)

// What runs count is a function of their configuration, with a store and
// with an engine that is killed.
func TestRunsRepeat(t *testing.T) {
	path := writeTrace(t)
	for _, routing := range []bool{false, true} {
		var results []Result
		var first []float64
		for range 2 {
			c := fleetOf(t, path, &stores.Memory{})
			c.Routing, c.Kill = routing, true
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			sane(t, r)
			assert.Zero(t, r.StoreErrors+r.StoreDropped)
			// A copy to the store may be submitted before or after another one, which is
			// microseconds of the device's time.
			first = append(first, r.FirstSeconds)
			r.Seconds, r.FirstSeconds = 0, 0
			results = append(results, *r)
		}
		assert.Equal(t, results[0], results[1])
		assert.InDelta(t, first[0], first[1], 1e-4)
	}
}
