package forecast

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBytes: a policy takes at most 3.3 bytes for each page of a large pool and the bytes that Bytes documents in a
// smaller one, and what it says is what New allocates.
func TestBytes(t *testing.T) {
	for _, pages := range []int{
		0, 100, 511, 767, 1000, 4096, 8192, 10_000, 13_653, 13_654, 16_384, 27_306, 28_300, 30_000, 37_800, 49_999, 50_000, 65_536,
		80_000, 100_000, 131_072, 196_607, 196_608, 300_000, 1_000_000, 1_048_577, 1_200_000, 1_600_000, 2_000_000, 3_000_000, 10_000_000,
	} {
		most := 33 * pages / 10
		switch {
		case pages <= 13_653:
			most = 99<<10 + pages/2
		case pages < 37_800:
			most = 129<<10 + pages/2
		case pages < 50_000:
			most = min(129<<10+pages/2, 4*pages)
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
