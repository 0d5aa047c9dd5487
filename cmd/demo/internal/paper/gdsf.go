package paper

import "github.com/kvactor/kvactor/internal/heap"

// attentionTokens is the length of a context at which attention takes as long as the weights:
// 2 × 8e9 operations for a token against 4 × 32 heads × 128 × 32 layers for each token before
// it, in a model of the shape of Llama-3.1-8B. A block there costs twice the first one.
const attentionTokens = 30_518

// gdsf evicts the cached leaf of the least weight: uses × cost, on top of the weight of the
// last victim when the block was last used, so that blocks that are not used any more
// fall behind. Only leaves are evicted, blocks with no cached block behind them: by weight
// alone the first blocks of a prompt, which cost least, would go before the rest, and the
// rest could not be hit.
type gdsf struct {
	ranked  // its heap has the leaves alone
	cached  []bool
	parent  []int32 // by block: the block before it, −1: none
	behind  []int32 // by block: cached blocks directly behind it
	uses    []int32 // by block: since it was stored
	total   int     // cached blocks
	baseAge float64 // weight of the last victim
	slope   float64 // cost of a block beyond that of the one before it, the first costs 1
}

func newGDSF(capacity int, trace Trace) Cache {
	g := &gdsf{ranked: newRanked(capacity, trace), slope: float64(trace.TokensPerBlock) / attentionTokens}
	n := len(g.at)
	g.cached, g.parent, g.behind, g.uses = make([]bool, n), make([]int32, n), make([]int32, n), make([]int32, n)
	return g
}

// Has tells whether a block is cached.
func (g *gdsf) Has(b int32) bool { return g.cached[b] }

// Use stores a prompt. Blocks of the prompt that are the least worth are evicted with the
// rest.
func (g *gdsf) Use(_ int, blocks []int32) {
	parent := int32(nil32)
	for k, b := range blocks {
		if !g.cached[b] {
			g.store(b, parent)
		}
		g.uses[b]++
		weight := float64(g.uses[b]) * (1 + g.slope*float64(k))
		g.rank[b] = rank{g.baseAge + weight, int32(k)}
		if g.at[b] >= 0 {
			heap.Fix(g.heap, &g.ranked, int(g.at[b]))
		}
		parent = b
	}
	for g.total > g.capacity {
		g.evict()
	}
}

// store caches a block behind another one, which is no leaf any more.
func (g *gdsf) store(b, parent int32) {
	g.cached[b], g.uses[b], g.parent[b] = true, 0, parent
	g.total++
	heap.Push(&g.heap, &g.ranked, b)
	if parent == nil32 {
		return
	}
	g.behind[parent]++
	if at := g.at[parent]; at >= 0 {
		heap.Remove(&g.heap, &g.ranked, int(at))
	}
}

// evict removes the leaf of the least weight. What it hung on may become a leaf.
func (g *gdsf) evict() {
	b := heap.Pop(&g.heap, &g.ranked)
	g.cached[b] = false
	g.total--
	g.baseAge = g.rank[b].value
	parent := g.parent[b]
	if parent == nil32 {
		return
	}
	if g.behind[parent]--; g.behind[parent] == 0 {
		heap.Push(&g.heap, &g.ranked, parent)
	}
}
