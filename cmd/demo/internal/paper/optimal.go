package paper

import "math"

// optimal ranks blocks by the request that uses them next.
type optimal struct {
	ranked
	next [][]int32 // by request and block of it: the request that uses the block next
}

func newOptimal(capacity int, trace Trace) Cache {
	o := &optimal{ranked: newRanked(capacity, trace), next: make([][]int32, len(trace.Requests))}
	upcoming := make([]int32, len(o.at))
	for b := range upcoming {
		upcoming[b] = math.MaxInt32
	}
	for i := len(trace.Requests) - 1; i >= 0; i-- {
		o.next[i] = make([]int32, len(trace.Requests[i]))
		for k, b := range trace.Requests[i] {
			o.next[i][k] = upcoming[b]
		}
		for _, b := range trace.Requests[i] {
			upcoming[b] = int32(i)
		}
	}
	return o
}

// Use stores a prompt. A block that is not used again goes first, even if it is of this
// prompt.
func (o *optimal) Use(i int, blocks []int32) {
	for k, b := range blocks {
		o.set(b, -float64(o.next[i][k]), k)
	}
	o.shrink()
}
