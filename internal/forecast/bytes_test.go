package forecast

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBytes: a policy takes at most four bytes for each page of a large pool and the bytes that Bytes documents in a
// smaller one, and what it says is what New allocates.
func TestBytes(t *testing.T) {
	for _, pages := range []int{
		0, 100, 511, 767, 1000, 4096, 8192, 10_000, 13_653, 13_654, 16_384, 28_300, 30_000, 50_000, 56_099, 56_100, 65_536,
		80_000, 100_000, 131_072, 196_607, 196_608, 300_000, 1_000_000, 1_048_577, 3_000_000, 10_000_000,
	} {
		most := 4 * pages
		switch {
		case pages <= 13_653:
			most = 132<<10 + 7*pages/10
		case pages < 56_100:
			most = 184<<10 + 7*pages/10
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := New(pages, 1, 1)
		runtime.ReadMemStats(&after)
		assert.LessOrEqual(t, p.Bytes(), most, "%d pages", pages)
		for _, n := range []int{pages, 16*pages - 1} {
			assert.LessOrEqual(t, New(n, 16, 1).Bytes(), most, "%d short blocks", n)
		}
		// The allocator rounds sizes up by an eighth at most, and other tests may have left work to the runtime.
		assert.InEpsilon(t, after.TotalAlloc-before.TotalAlloc, p.Bytes(), 0.15, "%d pages", pages)
	}
}

// TestBytesStayBounded: requests add nothing but room for two lists of the blocks of the longest one.
func TestBytesStayBounded(t *testing.T) {
	p := New(1000, 1, 1)
	before := p.Bytes()
	for s := range uint64(300) {
		visits(p, s+1, 20, 0, 0)
	}
	assert.Equal(t, before+2*4*20, p.Bytes())
}
