package pool

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/messages"
)

// TestUnknownPage: of any number of entries, a wrong one is found wherever it is, and none
// where there is none.
func TestUnknownPage(t *testing.T) {
	const pages = 1000
	p := New("numbers", pages)
	for n := range 40 {
		ids := make([]messages.PageID, n)
		for i := range ids {
			ids[i] = [...]messages.PageID{0, messages.NoPage, pages - 1, 500}[i%4]
		}
		require.Equal(t, -1, p.unknownPage(ids))
		for i := range ids {
			for _, wrong := range []messages.PageID{pages, -2, math.MaxInt32, math.MinInt32, 1 << 30,
				-1 << 30} {
				was := ids[i]
				ids[i] = wrong
				require.Equal(t, i, p.unknownPage(ids), "%d", wrong)
				ids[i] = was
			}
		}
	}
	assert.Equal(t, 0, New("no pages", 0).unknownPage([]messages.PageID{0}))
}
