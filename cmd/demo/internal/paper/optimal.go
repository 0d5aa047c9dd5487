package paper

import (
	"math"

	"github.com/kvactor/kvactor/internal/heap"
)

// Optimal names the policy that knows the trace: it keeps the blocks whose next use is nearest.
// No policy has more hits while requests are atomic.
const Optimal = "optimal"

// Optimum is a cache of that policy. Each request is first looked up, then used.
type Optimum struct {
	capacity int
	next     [][]int32 // by request and block of it: the request that uses the block next
	upcoming []int32   // by block: that of its last use
	depth    []int32   // by block: in the prompt
	at       []int32   // by block: index in the heap, heap.Removed: not cached
	heap     []int32   // of cached blocks, the next victim at the top
}

// NewOptimum makes an empty cache of so many blocks for the requests of a trace.
func NewOptimum(capacity int, trace Trace) *Optimum {
	n := trace.blocks()
	o := &Optimum{
		capacity: capacity, next: make([][]int32, len(trace.Requests)),
		upcoming: make([]int32, n), depth: make([]int32, n), at: make([]int32, n),
	}
	for b := range o.upcoming {
		o.upcoming[b], o.at[b] = math.MaxInt32, heap.Removed
	}
	for i := len(trace.Requests) - 1; i >= 0; i-- {
		for _, b := range trace.Requests[i] {
			o.next[i] = append(o.next[i], o.upcoming[b])
		}
		for _, b := range trace.Requests[i] {
			o.upcoming[b] = int32(i)
		}
	}
	return o
}

// Has tells whether a block is cached.
func (o *Optimum) Has(b int32) bool { return o.at[b] != heap.Removed }

// Use stores the blocks of request i of the trace. A block that is not used again goes first,
// even if it is of this prompt.
func (o *Optimum) Use(i int, blocks []int32) {
	for k, b := range blocks {
		o.upcoming[b], o.depth[b] = o.next[i][k], int32(k)
		if o.Has(b) {
			heap.Fix(o.heap, o, int(o.at[b]))
		} else {
			heap.Push(&o.heap, o, b)
		}
	}
	for len(o.heap) > o.capacity {
		heap.Pop(&o.heap, o)
	}
}

// Before tells whether block a is evicted before block b. Blocks that are used by one request
// go from the deepest on, and then by their numbers, so that a replay repeats.
func (o *Optimum) Before(a, b int32) bool {
	switch {
	case o.upcoming[a] != o.upcoming[b]:
		return o.upcoming[a] > o.upcoming[b]
	case o.depth[a] != o.depth[b]:
		return o.depth[a] > o.depth[b]
	default:
		return a < b
	}
}

// Moved notes the index of a block.
func (o *Optimum) Moved(b int32, i int) { o.at[b] = int32(i) }
