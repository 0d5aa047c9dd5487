package paper

import "github.com/kvactor/kvactor/internal/heap"

// ranked is a cache that evicts the block of the least rank. A block of the request under
// way is never evicted before all others.
type ranked struct {
	capacity int
	rank     []rank  // by block
	at       []int32 // by block: index in the heap, −1: not cached
	heap     []int32 // of cached blocks, the next victim at the top
}

// rank orders blocks: the least first, of equal ones the greatest depth first.
type rank struct {
	value float64
	depth int32
}

func newRanked(capacity int, trace Trace) ranked {
	blocks := trace.blocks()
	r := ranked{capacity: capacity, rank: make([]rank, blocks), at: make([]int32, blocks)}
	for i := range r.at {
		r.at[i] = -1
	}
	return r
}

// Has tells whether a block is cached.
func (r *ranked) Has(b int32) bool { return r.at[b] >= 0 }

// Before tells whether block a is evicted before block b. Blocks of the same rank go in the
// order of their numbers, so that a replay repeats.
func (r *ranked) Before(a, b int32) bool {
	x, y := r.rank[a], r.rank[b]
	if x.value != y.value {
		return x.value < y.value
	}
	return x.depth > y.depth || x.depth == y.depth && a < b
}

// Moved notes the index of a block.
func (r *ranked) Moved(b int32, i int) { r.at[b] = int32(i) }

// set gives a block a rank and stores it.
func (r *ranked) set(b int32, value float64, depth int) {
	r.rank[b] = rank{value, int32(depth)}
	if r.at[b] >= 0 {
		heap.Fix(r.heap, r, int(r.at[b]))
	} else {
		heap.Push(&r.heap, r, b)
	}
}

// shrink evicts until the cache fits.
func (r *ranked) shrink() {
	for len(r.heap) > r.capacity {
		heap.Pop(&r.heap, r)
	}
}
