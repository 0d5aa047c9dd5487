package paper

import (
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

// oracles are the policies as one would write them on a whiteboard: a list searched in full.
var oracles = map[string]func(capacity int, trace Trace) Cache{
	ARC:        func(capacity int, _ Trace) Cache { return &plainARC{capacity: capacity} },
	WTinyLFU:   newPlainTinyLFU,
	GDSFDepth:  newPlainGDSF,
	S3FIFO:     func(capacity int, _ Trace) Cache { return &plainS3FIFO{capacity: capacity, uses: map[int32]int{}} },
	Superseded: newPlainSuperseded,
	Optimal:    func(capacity int, trace Trace) Cache { return &plainOptimal{capacity: capacity, trace: trace} },
}

// TestModel holds each policy against its oracle: the same blocks are cached after each
// request, never more than fit.
func TestModel(t *testing.T) {
	require.Len(t, oracles, len(policies))
	for _, policy := range Names() {
		t.Run(policy, rapid.MakeCheck(func(t *rapid.T) {
			trace := drawTrace(t)
			capacity := rapid.IntRange(1, 40).Draw(t, "capacity")
			cache, oracle := New(policy, capacity, trace), oracles[policy](capacity, trace)
			blocks := int32(trace.blocks())
			for i, prompt := range trace.Requests {
				cache.Use(i, prompt)
				oracle.Use(i, prompt)
				held := 0
				for b := range blocks {
					require.Equal(t, oracle.Has(b), cache.Has(b), "block %d after request %d", b, i)
					if cache.Has(b) {
						held++
					}
				}
				require.LessOrEqual(t, held, capacity)
			}
		}))
	}
}

// TestNoPolicyBeatsTheOptimum, and with room for everything all hit the same.
func TestNoPolicyBeatsTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := drawTrace(t)
		capacity := rapid.IntRange(1, 60).Draw(t, "capacity")
		distances := Measure(trace)
		best := hits(New(Optimal, capacity, trace), trace)
		require.LessOrEqual(t, distances.Hits(capacity), best, "lru")
		for _, policy := range Names() {
			got := hits(New(policy, capacity, trace), trace)
			require.LessOrEqual(t, got, best, policy)
			if capacity >= distances.Distinct+1 {
				require.Equal(t, best, got, policy)
			}
		}
	})
}

// hits replays a trace.
func hits(c Cache, trace Trace) (n int64) {
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
			require.Equal(t, hits(&plainLRU{capacity: capacity}, trace), d.Hits(capacity), "capacity %d", capacity)
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

// TestPromptsOfTheWholeCache: where the blocks of the running request are nearly all that is cached, a policy still finds one to evict.
func TestPromptsOfTheWholeCache(t *testing.T) {
	const capacity = 40
	for _, policy := range Names() {
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
			cache, oracle := New(policy, capacity, trace), oracles[policy](capacity, trace)
			for i, prompt := range trace.Requests {
				cache.Use(i, prompt)
				oracle.Use(i, prompt)
				for b := range int32(trace.blocks()) {
					require.Equal(t, oracle.Has(b), cache.Has(b), "%s, seed %d: block %d after request %d", policy, seed, b, i)
				}
			}
		}
	}
}
