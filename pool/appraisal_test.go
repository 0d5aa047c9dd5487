package pool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/pool/evict"
)

// What becomes useless and useful again between two requests is evicted as if nothing had
// happened: the runs of blocks that forecast knows keep together.
func TestUselessAndBack(t *testing.T) {
	made := madeTraces()["cyclic"]
	replay := func(every int) float64 {
		p := NewWith("forecast", made.pages, evict.Options{Name: evict.Forecast, Seed: 1, Span: 1})
		c := &atomicCache{pool: p, answers: true, clock: realTime}
		for i := range made.requests {
			c.request(&made.requests[i])
			for _, useless := range [2]bool{true, false} {
				for k := range p.pages {
					if every > 0 && i%every == 0 && p.pages[k].stored() {
						p.order.SetUseless(int32(k), useless)
					}
				}
			}
		}
		require.NoError(t, p.Check())
		return float64(c.hits) / float64(c.looked)
	}
	untouched := replay(0)
	assert.InDelta(t, untouched, replay(8), 0.02)
	assert.InDelta(t, untouched, replay(64), 0.02)
}
