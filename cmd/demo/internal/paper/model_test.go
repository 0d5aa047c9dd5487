package paper

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawTrace draws conversations that grow and branch.
func drawTrace(t *rapid.T) Trace {
	trace := Trace{TokensPerBlock: rapid.SampledFrom([]int{16, 512, 8192}).Draw(t, "tokens per block")}
	fresh := int32(0)
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		var prompt Request
		if n := len(trace.Requests); n > 0 && rapid.IntRange(0, 3).Draw(t, "new") > 0 {
			old := trace.Requests[rapid.IntRange(0, n-1).Draw(t, "old")]
			prompt = append(prompt, old[:rapid.IntRange(0, len(old)).Draw(t, "shared")]...)
		}
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			prompt = append(prompt, fresh)
			fresh++
		}
		trace.Requests = append(trace.Requests, prompt)
	}
	return trace
}

// cache is the optimum or an oracle.
type cache interface {
	Has(block int32) bool
	Use(i int, blocks []int32)
}

// TestModel holds the optimum against its oracle: the same blocks are cached after each
// request, never more than fit.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := drawTrace(t)
		capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
		agree(t, NewOptimum(capacity, trace), &plainOptimal{capacity: capacity, trace: trace}, trace)
	})
}

// agree replays a trace with two caches, which must hold the same blocks.
func agree(t require.TestingT, o *Optimum, oracle cache, trace Trace) {
	for i, prompt := range trace.Requests {
		o.Use(i, prompt)
		oracle.Use(i, prompt)
		held := 0
		for b := range int32(trace.blocks()) {
			require.Equal(t, oracle.Has(b), o.Has(b), "block %d after request %d", b, i)
			if o.Has(b) {
				held++
			}
		}
		require.LessOrEqual(t, held, o.capacity)
	}
}

// plainOptimal looks for each block's next use in the trace.
type plainOptimal struct {
	capacity int
	trace    Trace
	held     []int32
}

func (c *plainOptimal) Has(b int32) bool { return slices.Contains(c.held, b) }

func (c *plainOptimal) Use(i int, blocks []int32) {
	for _, b := range blocks {
		c.held = append(without(c.held, b), b)
	}
	next := func(b int32) (request, depth int) {
		for j, prompt := range c.trace.Requests[i+1:] {
			if slices.Contains(prompt, b) {
				return j, slices.Index(prompt, b)
			}
		}
		for _, prompt := range c.trace.Requests {
			if k := slices.Index(prompt, b); k >= 0 {
				return math.MaxInt, k
			}
		}
		return math.MaxInt, 0
	}
	slices.SortStableFunc(c.held, func(a, b int32) int {
		x, k := next(a)
		y, l := next(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(k, l), cmp.Compare(b, a))
	})
	c.held = c.held[:min(len(c.held), c.capacity)]
}

// TestLRUDoesNotBeatTheOptimum, and with room for everything both hit the same.
func TestLRUDoesNotBeatTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := drawTrace(t)
		capacity := rapid.IntRange(1, 60).Draw(t, "capacity")
		distances := Measure(trace)
		best := hits(NewOptimum(capacity, trace), trace)
		require.LessOrEqual(t, distances.Hits(capacity), best)
		if capacity >= distances.Distinct {
			require.Equal(t, best, distances.Hits(capacity))
		}
	})
}

// hits replays a trace.
func hits(c cache, trace Trace) (n int64) {
	for i, prompt := range trace.Requests {
		for _, b := range prompt {
			if !c.Has(b) {
				break
			}
			n++
		}
		c.Use(i, prompt)
	}
	return n
}

// TestDistances: the distances give the hits of LRU at every capacity.
func TestDistances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := drawTrace(t)
		d := Measure(trace)
		total := int64(0)
		for capacity := range d.Distinct + 2 {
			want := hits(&plainLRU{capacity: capacity}, trace)
			require.Equal(t, want, d.Hits(capacity), "capacity %d", capacity)
			total += d.Between(capacity, capacity+1)
		}
		require.Equal(t, d.Lookups-d.New, total)
		require.Equal(t, d.Hits(d.Distinct), total)
	})
}

// plainLRU is a list of blocks, the least recently used first.
type plainLRU struct {
	capacity int
	order    []int32
}

func (c *plainLRU) Has(b int32) bool { return slices.Contains(c.order, b) }

func (c *plainLRU) Use(_ int, blocks []int32) {
	for _, b := range slices.Backward(blocks) {
		c.order = append(without(c.order, b), b)
	}
	c.order = c.order[max(0, len(c.order)-c.capacity):]
}

// without is a list without a block.
func without(list []int32, b int32) []int32 {
	return slices.DeleteFunc(slices.Clone(list), func(x int32) bool { return x == b })
}

// TestPromptsOfTheWholeCache: the blocks of the running request may be nearly all that is
// cached.
func TestPromptsOfTheWholeCache(t *testing.T) {
	const capacity = 40
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var trace Trace
		trace.TokensPerBlock = 16
		for range 30 {
			// A prefix of one of three documents, which have many lengths.
			d, n := r.IntN(3), 1+r.IntN(capacity)
			if r.IntN(2) == 0 {
				n = capacity - r.IntN(3)
			}
			prompt := make(Request, n)
			for k := range prompt {
				prompt[k] = int32(d*capacity + k)
			}
			trace.Requests = append(trace.Requests, prompt)
		}
		oracle := &plainOptimal{capacity: capacity, trace: trace}
		agree(t, NewOptimum(capacity, trace), oracle, trace)
	}
}
